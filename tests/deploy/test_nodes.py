"""Names of nodes belong to keys."""

from __future__ import annotations

from headstart.deploy.nodes import Node, Registry, online

from .flower.fake_grid import FakeGrid, FakeNode


def test_a_name_belongs_to_the_key_it_first_came_with(tmp_path):
    registry = Registry.open(tmp_path / "nodes.json")
    a, b = Node("a", 1, "key-a"), Node("b", 2, "key-b")
    assert registry.known([a, b]) == ([a, b], [])
    again = Registry.open(tmp_path / "nodes.json")
    thief = Node("a", 9, "key-x")
    good, bad = again.known([thief, b])
    assert good == [b]
    assert [(failure.client, failure.code) for failure in bad] == [("a", "identity")]
    assert again.known([a])[0] == [a]
    assert again.known([a, thief])[0] == []  # one of the two is not who it says
    again.leave(lambda name: name == "a")
    assert Registry.open(tmp_path / "nodes.json").known([thief])[0] == [thief]


def test_a_forgotten_key_does_not_come_back_under_another_name(tmp_path):
    path = tmp_path / "nodes.json"
    registry = Registry.open(path, mark=lambda key: f"mark of {key[::-1]}")
    a, again = Node("a", 1, "key-a"), Node("alias", 2, "key-a")
    registry.known([a])
    registry.leave(lambda name: name == "a")
    kept = Registry.open(path, mark=registry.mark)
    good, bad = kept.known([again, Node("b", 3, "key-b")])
    assert [node.name for node in good] == ["b"]
    assert [(failure.client, failure.code) for failure in bad] == [("alias", "forgotten")]
    assert "key-a" not in path.read_text()
    kept.readmit = "alias"  # the operator says otherwise
    assert kept.known([again]) == ([again], [])
    assert Registry.open(path, mark=registry.mark).known([again]) == ([again], [])


def test_a_node_registered_without_a_name_is_called_by_its_key():
    (node,) = online(FakeGrid([FakeNode("", {}, b"key")]))
    assert node.name == f"node-{node.key[:12]}"

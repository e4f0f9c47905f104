"""A node's samples are read once, and again when its settings or its files have changed."""

import os
import stat

import numpy as np
import pytest

from headstart.deploy.flower import samples
from headstart.deploy.flower.settings import NodeSettings
from headstart.errors import DataError


@pytest.fixture
def reads(monkeypatch):
    """How often samples were read from where they lie; files count as old at once."""
    found = []
    real = samples.read
    monkeypatch.setattr(samples, "read", lambda *told: found.append(told) or real(*told))
    monkeypatch.setattr(samples, "SETTLED", 0)
    return found


@pytest.fixture
def node(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        f"{'ann' if i % 3 else 'ben'},{'cat' if i % 2 else 'dog'},{x:.6f},{y:.6f}"
        for i, (x, y) in enumerate(rng.normal(size=(30, 2)))
    ]
    (tmp_path / "mine.csv").write_text("\n".join(["client,label,x,y", *rows, ""]))
    return {
        "client": "ann",
        "data": str(tmp_path / "mine.csv"),
        "folder": str(tmp_path / "private"),
        "held_out": 0.3,
    }


def same(one, two):
    for part in ("samples", "test"):
        left, right = (getattr(found.client, part) for found in (one, two))
        assert (left is None) == (right is None)
        if left is not None:
            for was, now in zip(left.read(), right.read(), strict=True):
                assert was.dtype == now.dtype
                assert np.array_equal(was, now)
    return one.extractor == two.extractor


def test_many_questions_read_once(node, reads, tmp_path):
    first = samples.load_samples(NodeSettings(**node))
    for _ in range(3):
        assert same(first, samples.load_samples(NodeSettings(**node)))
    assert len(reads) == 1
    assert len(first.client.samples.labels) + len(first.client.test.labels) == 20
    assert stat.S_IMODE((tmp_path / "private" / samples._KEPT).stat().st_mode) == 0o600
    samples.load_samples(NodeSettings(**node, small=True))  # what may be sent is another matter
    assert len(reads) == 1


@pytest.mark.parametrize("change", [{"client": "ben"}, {"held_out": 0.0}, {"seed": 3}])
def test_other_settings_are_noticed(node, reads, change):
    samples.load_samples(NodeSettings(**node))
    other = NodeSettings(**{**node, **change})
    found = samples.load_samples(other)
    assert len(reads) == 2
    assert same(found, samples.read_samples(other))


def test_another_file_at_the_same_place_is_noticed(node, reads, tmp_path):
    path = tmp_path / "mine.csv"
    before = samples.load_samples(NodeSettings(**node))
    was = path.stat()
    path.write_text(path.read_text().replace("cat", "cow"))  # as long as it was
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    after = samples.load_samples(NodeSettings(**node))
    assert len(reads) == 2
    assert set(before.client.samples.labels) == {"cat", "dog"}
    assert set(after.client.samples.labels) == {"cow", "dog"}


def test_one_more_file_of_a_folder_is_noticed(node, reads, tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / "folder" / label).mkdir(parents=True)
        for i in range(3):
            np.save(tmp_path / "folder" / label / f"{i}.npy", np.full(4, float(i)))
    node = NodeSettings(**{**node, "data": str(tmp_path / "folder"), "held_out": 0.0})
    assert len(samples.load_samples(node).client.samples.labels) == 6
    np.save(tmp_path / "folder" / "dog" / "3.npy", np.ones(4))
    assert len(samples.load_samples(node).client.samples.labels) == 7
    assert len(samples.load_samples(node).client.samples.labels) == 7
    assert len(reads) == 2


def test_a_file_that_changed_a_moment_ago_is_not_kept(node, reads, monkeypatch, tmp_path):
    monkeypatch.setattr(samples, "SETTLED", 10**12)
    for _ in range(2):
        samples.load_samples(NodeSettings(**node))
    assert len(reads) == 2
    assert not (tmp_path / "private" / samples._KEPT).exists()


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_what_is_damaged_is_read_again(node, reads, tmp_path, damage):
    first = samples.load_samples(NodeSettings(**node))
    path = tmp_path / "private" / samples._KEPT
    data = path.read_bytes()
    path.write_bytes(data[:-40] if damage is None else damage)
    assert same(first, samples.load_samples(NodeSettings(**node)))
    assert len(reads) == 2
    assert path.read_bytes() == data


def test_an_error_is_that_of_the_reader_every_time(node, reads):
    for _ in range(2):
        with pytest.raises(DataError, match="expected samples of client 'nobody'"):
            samples.load_samples(NodeSettings(**{**node, "client": "nobody"}))


def test_a_users_own_file_is_never_written_over(node, reads, tmp_path):
    place = tmp_path / "private" / samples._KEPT
    place.parent.mkdir()
    np.savez(place, features=np.eye(4), label=[0, 1, 0, 1])
    before = place.read_bytes()
    own = NodeSettings(**{**node, "data": str(place), "held_out": 0.0})
    for _ in range(2):
        assert len(samples.load_samples(own).client.samples.labels) == 4
    assert place.read_bytes() == before


def test_a_node_may_take_both_views_of_its_images(node, tmp_path, monkeypatch):
    """The extractor's identity tells the server which views its features are of."""
    from PIL import Image

    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    for label in ("cat", "dog"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(2):
            pixels = np.random.default_rng(i).integers(0, 255, (8, 8, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{i}.png")
    told = {"data": str(tmp_path / "photos"), "extractor": corner(tmp_path), "held_out": 0.0}
    plain, flip = (
        samples.load_samples(NodeSettings(**{**node, **told, **views}))
        for views in ({}, {"views": "flip"})
    )
    assert "views" not in plain.extractor
    assert flip.extractor["views"] == "flip"
    assert flip.extractor["identity"] != plain.extractor["identity"]
    assert not np.allclose(flip.client.samples.features, plain.client.samples.features)
    with pytest.raises(DataError, match="views: expected images, which can be mirrored, got feat"):
        samples.load_samples(NodeSettings(**node, views="flip"))


def corner(folder):
    """An .onnx file whose features are the colours of an image's first pixels."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    bounds = {"starts": [0, 0], "ends": [1, 1], "axes": [2, 3]}
    nodes = [
        helper.make_node("Slice", ["x", *bounds], ["pixel"]),
        helper.make_node("Flatten", ["pixel"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "corner",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(np.array(value), name) for name, value in bounds.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "corner.onnx")
    return str(folder / "corner.onnx")

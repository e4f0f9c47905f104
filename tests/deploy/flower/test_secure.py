"""Secure sums over Flower: the simulator's digest, drop-outs, and what a node remembers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from headstart.data.samples import ArraySamples
from headstart.deploy import failpoints
from headstart.deploy.forgetting import forget
from headstart.deploy.ledger import Ledger
from headstart.errors import DataError, HeadstartError
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator

from .fake_grid import digest, solved
from .masked_runs import Hostile, known, members, run

STAGES = ("advertise", "share", "mask", "confirm", "unmask")


@pytest.fixture(autouse=True)
def without_a_page(monkeypatch):
    monkeypatch.setattr("headstart.deploy.flower.server.write_report", lambda *told: None)


@pytest.fixture
def clients(experiment):
    return {name: ClientData(data.samples) for name, data in experiment.clients.items()}


@pytest.fixture
def killed(monkeypatch):
    """Ends a node at a fail point, the first time that it comes there."""

    def at(point, times=1):
        left = [times]

        def hook(reached):
            if reached == point and left[0]:
                left[0] -= 1
                raise Killed

        monkeypatch.setattr(failpoints, "hook", hook)

    return at


class Killed(BaseException):
    pass


def leaves(node, stage):
    """The node is silent from this stage on."""
    heard = itertools.count()

    class Mute(str):
        def __eq__(self, other):
            return other == "silent" and next(heard) >= STAGES.index(stage)

        __hash__ = str.__hash__

    node.fault = Mute("silent")


@pytest.mark.parametrize("signed", [True, False])
def test_the_masked_total_is_the_simulators_and_the_server_holds_the_sum_alone(
    clients, tmp_path, signed
):
    nodes, told = members(clients, tmp_path, signed=signed)
    result = run(nodes, tmp_path, **told)
    assert result.head.digest == digest(clients)
    assert not result.failures
    head = solved(Simulator(clients))  # whose losses were seen one by one
    assert result.head.temperature == pytest.approx(head.temperature, rel=1e-6)
    with Ledger.open(tmp_path / "ledger", write=False) as ledger:
        (entry,) = ledger.entries()
        assert sorted(entry.clients) == sorted(clients)
    for node in nodes:
        own = Path(node.config["folder"]) / "secure"
        assert not list(own.glob("*.safetensors"))  # its secrets are gone
        assert (own / "history.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("stage", STAGES)
def test_who_leaves_at_a_stage_is_out_or_in_and_the_sum_is_exact(clients, tmp_path, stage):
    nodes, told = members(clients, tmp_path)
    leaves(nodes[1], stage)
    result = run(nodes, tmp_path, **told, patience=0.05)
    before_its_vector = STAGES.index(stage) <= STAGES.index("mask")
    stayed = {n: d for n, d in clients.items() if n != nodes[1].name or not before_its_vector}
    assert result.head.digest == digest(stayed)
    assert {(f.client, f.code) for f in result.failures} == {(nodes[1].name, "missing")}


def test_too_few_open_nothing(clients, tmp_path):
    nodes, told = members(clients, tmp_path)
    leaves(nodes[0], "mask")
    leaves(nodes[1], "mask")
    with pytest.raises(DataError, match=r"expected an upload, got none.*few"):
        run(nodes, tmp_path, **told, patience=0.05)


def test_a_group_is_asked_again_as_it_was_by_a_server_that_died_before_it_kept_the_sum(
    clients, tmp_path, monkeypatch
):
    nodes, told = members(clients, tmp_path)

    def dead(*told):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "accept", dead)
        with pytest.raises(Killed):
            run(nodes, tmp_path, **told)
    opened = json.loads((tmp_path / "ledger/groups.json").read_text())["opened"]
    assert opened == [sorted(clients)]
    assert run(nodes, tmp_path, **told).head.digest == digest(clients)
    # Without one of them the group is not summed, and nobody is asked.
    again = {**told, "ledger": str(tmp_path / "another"), "wanted": 4}
    for left in (nodes[1:], nodes[:4]):
        with pytest.raises(DataError, match="expected an upload, got none"):
            run(left, tmp_path, **again)
    assert run(nodes, tmp_path, **{**again, "wanted": 5}).head.digest == digest(clients)


def test_late_nodes_are_a_group_of_their_own_or_wait_for_more(experiment, tmp_path):
    data = {f"n{k}": ClientData(ArraySamples(*part)) for k, part in enumerate(parts(experiment, 8))}
    nodes, told = members(data, tmp_path)
    first = run(nodes[:4], tmp_path, **{**told, "wanted": 4})
    assert first.head.digest == digest({name: data[name] for name in ("n0", "n1", "n2", "n3")})
    two = run(nodes[:6], tmp_path, **{**told, "wanted": 6})
    assert two.head.digest == first.head.digest
    assert {(f.client, f.code) for f in two.failures} == {("n4", "group"), ("n5", "group")}
    assert run(nodes, tmp_path, **{**told, "wanted": 8}).head.digest == digest(data)


def parts(experiment, count):
    rows = [client.samples.read() for client in experiment.clients.values()]
    x, y = (np.concatenate(part) for part in zip(*rows, strict=True))
    order = np.random.default_rng(0).permutation(len(x))[:400]
    return [(x[at], y[at]) for at in np.array_split(order, count)]


def test_small_clients_may_join_a_sum(experiment, tmp_path):
    few = {
        f"n{k}": ClientData(ArraySamples(x[:4], y[:4]))
        for k, (x, y) in enumerate(parts(experiment, 3))
    }
    nodes, told = members(few, tmp_path)
    assert run(nodes, tmp_path, **told).head.digest == digest(few)
    with pytest.raises(DataError, match="fewer than 10"):
        run(nodes, tmp_path, **{**told, "secure": False, "ledger": str(tmp_path / "plain")})


def test_a_forgotten_member_takes_its_groups_sum_along_and_its_name_is_in_no_file(
    clients, tmp_path
):
    nodes, told = members(clients, tmp_path)
    run(nodes, tmp_path, **told)
    forgotten = forget(tmp_path / "ledger", nodes[0].name)
    assert forgotten.members == 0
    for path in (tmp_path / "ledger").rglob("*"):
        if path.is_file():
            assert nodes[0].name.encode() not in path.read_bytes(), path
    with pytest.raises(DataError, match="expected at least 3 nodes for a sum, got 0"):
        run(nodes, tmp_path, **{**told, "wanted": 4})


# -- what is refused before anybody is asked -------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"class_list": ""}, "class-list: expected the agreed classes"),
        ({"exact": False}, "expected exact"),
        ({"group_size": 2}, "group-size: expected at least 3 nodes, got 2"),
        ({"pipeline": "Fed3R + FedAvg-2(head)"}, "expected a head alone"),
        ({"personal": True}, "expected a head alone"),
        ({"peers": "nowhere.json"}, "peers: cannot read nowhere.json"),
        ({"pipeline": "fedcof"}, "rows"),
    ],
)
def test_what_masks_cannot_hide_is_refused_in_one_line(clients, tmp_path, told, why):
    nodes, usual = members(clients, tmp_path)
    with pytest.raises(HeadstartError, match=why):
        run(nodes, tmp_path, **{**usual, **told})
    assert not any((Path(node.config["folder"]) / "secure/history.json").exists() for node in nodes)


def test_two_nodes_are_no_group(clients, tmp_path):
    nodes, told = members(dict(list(clients.items())[:2]), tmp_path)
    with pytest.raises(DataError, match="expected at least 3 nodes for a sum, got 2"):
        run(nodes, tmp_path, **told)


# -- restarts of a node ----------------------------------------------------------------------------


@pytest.mark.parametrize("point", failpoints.SECURE)
@pytest.mark.parametrize("stage", STAGES)
def test_a_node_that_dies_before_its_answer_leaves_never_answers_that_stage_again(
    clients, tmp_path, killed, stage, point
):
    nodes, told = members(clients, tmp_path)
    hostile = Hostile(nodes, known=known(told)).until(stage)
    name = nodes[2].name
    killed(point)
    with pytest.raises(Killed):
        hostile.ask(name, hostile.asked[name])
    assert hostile.code(name, hostile.asked[name]) in ("replay", "history", "order")
    survivors = [one for one in clients if one != name or STAGES.index(stage) > 2]
    while hostile.server.stage != "done":
        hostile.stage(gone=[name])
    assert hostile.server.total.digest() == digest({one: clients[one] for one in survivors})

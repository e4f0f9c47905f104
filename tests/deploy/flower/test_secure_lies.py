"""Liars in a masked group, and a server that would like to know more: what each of them gets."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headstart import FedNCM
from headstart.data.samples import ArraySamples
from headstart.errors import DataError
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.privacy.layout import Layout
from headstart.privacy.messages import FROM_CLIENT, FROM_SERVER, decode, encode
from headstart.statistics import wire

from .fake_grid import EXACT, digest, write_samples
from .masked_runs import Hostile, known, members, run

NCM = steps.measure(FedNCM(), exact=True, bound=1.0)
SIZE, CLASSES = 6, range(3)


@pytest.fixture(autouse=True)
def without_a_page(monkeypatch):
    monkeypatch.setattr("headstart.deploy.flower.server.write_report", lambda *told: None)


@pytest.fixture
def clients():
    """Six clients of four features each."""
    rng = np.random.default_rng(0)
    return {
        f"n{k}": ClientData(ArraySamples(rng.uniform(size=(12, 4)), np.arange(12) % 3))
        for k in range(SIZE)
    }


@pytest.fixture
def nodes(clients, tmp_path):
    return members(clients, tmp_path)


def hostile(nodes, names=None, **how):
    members_, told = nodes
    chosen = {} if names is None else {"names": names}
    how = {"known": known(told), "dimension": 4, "classes": CLASSES, **chosen, **how}
    return Hostile(members_, **how)


def spoiling(kind, spoil):
    """A fault: the node's messages of one kind, with other arrays."""

    def fault(content):
        array = content.array_records["arrays"]["upload"]
        data = bytes(array.data)
        if data[:300].find(kind.encode()) > 0:
            _, arrays = wire.decode(data, FROM_CLIENT, wire.Limits())
            changed = wire.encode(kind, {**arrays, **spoil(arrays)})
            array.data, array.shape = changed, [len(changed)]
        return content

    return fault


# -- members who lie -------------------------------------------------------------------------------


def test_a_false_share_is_done_without_and_its_sender_is_named(clients, nodes, tmp_path):
    members_, told = nodes
    members_[3].fault = spoiling("secure-unmask", lambda a: {"seeds": a["seeds"] ^ 1})
    found = run(members_, tmp_path, **told, dimension=4)
    assert found.head.digest == digest(clients)
    ((failure,),) = [found.failures]
    assert (failure.client, failure.code) == ("n3", "share")
    assert failure.text == "n3: gave false shares of the secrets of n0"


def test_a_false_vector_voids_the_group_and_no_part_of_it_is_summed_again(nodes, tmp_path):
    members_, told = nodes
    told |= {"dimension": 4}
    members_[3].fault = spoiling("secure-mask", lambda a: {"vector": a["vector"] + 2**61})
    with pytest.raises(DataError, match="expected an upload, got none"):
        run(members_, tmp_path, **told)
    kept = json.loads((tmp_path / "ledger/groups.json").read_text())
    assert kept == {"opened": [], "void": [sorted(node.name for node in members_)]}
    members_[3].fault = None
    heard = [len(node.heard) for node in members_]
    for part in (members_, members_[:3]):
        with pytest.raises(DataError, match=r"got none.*group's sum was void"):
            run(part, tmp_path, **{**told, "wanted": len(part)})
    assert [len(node.heard) for node in members_] == heard  # nobody was asked


# -- a server that asks again ----------------------------------------------------------------------


def test_no_stage_is_answered_twice_and_no_other_story_is_believed(nodes):
    server = hostile(nodes)
    said = []
    while server.server.stage != "done":
        said.append(dict(server.asked))
        server.stage()
    for earlier in said:
        assert server.code("n1", earlier["n1"]) in ("replay", "order")
    server = hostile(nodes).until("confirm")
    assert server.code("n1", server.asked["n1"]) == "answered"
    fewer = encode("secure-ask-confirm", server.terms, {"ids": np.array([0, 1, 2, 3, 4])})
    assert server.code("n1", fewer) == "stories"


def test_terms_cannot_be_changed_in_the_middle_of_a_round(nodes):
    """The members' masks and shares were made for the first ones."""
    server = hostile(nodes).until("mask")
    _, arrays = decode(server.asked["n2"], FROM_SERVER, server.terms)
    other = replace(server.terms, samples=server.terms.samples - 1)
    arrays.pop("terms")
    again = encode("secure-ask-mask", other, arrays)
    assert server.code("n2", again, terms=other) == "stories"
    assert server.code("n2", server.asked["n2"]) == "answered"


FLOORS = {
    "two members": ({"names": ["n0", "n1"]}, "group"),
    "a low threshold": ({"threshold": 4}, "threshold"),
    "no signatures": ({"known": None}, "signature"),
}


@pytest.mark.parametrize("how", FLOORS)
def test_no_node_goes_below_its_owners_floors(nodes, how):
    lower, code = FLOORS[how]
    assert hostile(nodes, **lower).code("n0", b"") == code


def test_a_group_with_strangers_is_no_group(nodes, tmp_path):
    """Members of the server's own hide nobody: their keys are not on the node's list."""
    members_, told = nodes
    short = tmp_path / "short.json"
    keys = json.loads(Path(told["peers"]).read_text())
    short.write_text(json.dumps({name: keys[name] for name in ("n0", "n1", "n2")}))
    members_[0].config["peers"] = str(short)
    server = hostile(nodes).until("share")
    assert server.code("n0", server.asked["n0"]) == "signature"


def test_members_who_are_asked_different_things_open_nothing(nodes):
    """Else a server could have all but one say nothing, and the sum would be that one's."""
    server = hostile(nodes)
    silent = replace(EXACT, silent=True)
    assert server.code("n0", b"", step=silent) == "trust"
    assert server.code("n0", b"", step=NCM) == "terms"
    assert server.code("n0", b"", broadcast={"direction": np.ones(4)}) == "terms"
    # With terms of its own for one of them, that one's peers have other keys.
    other = replace(server.terms, task=Hostile.task(NCM, {}), layout=ncm_layout())
    told = {name: server.ask(name, b"") for name in server.asked if name != "n5"}
    told["n5"] = server.ask("n5", b"", step=NCM, terms=other)
    for name, message in told.items():
        if name != "n5":
            server.server.receive(name, message)
    roster = server.server.close()["n0"]
    _, arrays = decode(roster, FROM_SERVER, server.terms)
    _, mine = decode(told["n5"], FROM_CLIENT, other)
    arrays.pop("terms")
    arrays = {
        "ids": np.append(arrays["ids"], 5),
        "public": np.vstack([arrays["public"], mine["public"]]),
        "signatures": np.vstack([arrays["signatures"], mine["signature"]]),
    }
    spliced = encode("secure-ask-share", server.terms, arrays)
    assert server.code("n0", spliced) == "signature"


def ncm_layout():
    return Layout.of(
        FedNCM().measure(np.zeros((0, 4)), np.zeros(0, int), exact=True, bound=1.0), CLASSES
    )


def test_no_other_group_is_ever_joined_whatever_is_asked_by_whatever_server(nodes):
    """After the sum of three of six nodes, by servers that know nothing of each other."""
    first = ["n0", "n1", "n2"]
    server = hostile(nodes, first)
    while server.server.stage != "done":
        server.stage()
    assert hostile(nodes, first, step=NCM).until("unmask").server.stage == "unmask"  # the same: yes
    questions = itertools.cycle([EXACT, NCM, steps.counts()])
    for group, step in zip(others(first), questions, strict=False):
        again = hostile(nodes, group, step=step).until("mask")
        for name in set(group) & set(first):
            assert again.code(name, again.asked[name]) == "differencing", (group, step.name)
    rest = hostile(nodes, ["n3", "n4", "n5"])
    while rest.server.stage != "done":
        rest.stage()


def others(first):
    """Of six clients up to their names: i who were in the first sum, and j who were not."""
    rest = ["n3", "n4", "n5"]
    for i, j in itertools.product(range(1, 4), range(4)):
        if i + j >= 3 and (i, j) != (3, 0):
            yield [*first[-i:], *rest[:j]]


def test_samples_that_have_changed_are_not_summed_again(clients, nodes):
    members_, _ = nodes
    server = hostile(nodes)
    while server.server.stage != "done":
        server.stage()
    x, y = clients["n0"].samples.read()
    write_samples(members_[0].config["data"], ClientData(ArraySamples(x[1:], y[1:])))
    assert hostile(nodes).code("n0", b"") == "differencing"


@pytest.mark.parametrize("damage", ["", "{", '{"history": "{}", "samples": 3}'])
def test_a_damaged_or_missing_history_is_no_new_one(nodes, damage):
    members_, _ = nodes
    server = hostile(nodes).until("share")
    path = Path(members_[0].config["folder"]) / "secure/history.json"
    if damage:
        path.write_text(damage)
    else:
        path.unlink()
    assert server.code("n0", server.asked["n0"]) == "failed"
    assert hostile(nodes).code("n0", b"") == "failed"

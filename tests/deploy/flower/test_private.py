"""Differential privacy over Flower: the simulator's release, the owner's floors, the budget."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from headstart import Fed3R, LinearHead
from headstart.deploy.admission import Contract
from headstart.deploy.flower import client as node_half
from headstart.deploy.flower.settings import NodeSettings
from headstart.errors import HeadstartError
from headstart.federation import steps
from headstart.federation.protocol import ClientData, Step
from headstart.federation.simulator import Simulator
from headstart.privacy.accountant import mu_of
from headstart.privacy.budget import Budget
from headstart.privacy.differential import Private
from headstart.privacy.masked import Masked
from headstart.privacy.plan import PrivacyPlan
from headstart.privacy.unit_sums import unit_sums
from headstart.report import write_report

from ...privacy.parties import entropy
from .fake_grid import EXACT, digest, federation
from .masked_runs import Hostile, known, members, run

SAMPLES = 1000
NOISE = {"epsilon": 8.0, "samples": SAMPLES}


@pytest.fixture(autouse=True)
def without_a_page(monkeypatch):
    monkeypatch.setattr("headstart.deploy.flower.server.write_report", lambda *told: None)


@pytest.fixture
def clients(experiment):
    return {name: ClientData(data.samples) for name, data in experiment.clients.items()}


def plan(**how):
    return PrivacyPlan(classes=range(10), delta=1e-5, **{**NOISE, **how})


def seeded(monkeypatch):
    """Nodes whose noise a test knows: that of their names."""
    real = node_half.answer

    def answer(message, context):
        return real(message, context, entropy(context.node_config["client"]))

    monkeypatch.setattr(node_half, "answer", answer)


@pytest.mark.parametrize("mean", [True, False])
def test_a_release_of_masked_nodes_is_the_simulators_bit_for_bit(
    clients, tmp_path, monkeypatch, mean
):
    nodes, told = members(clients, tmp_path)
    seeded(monkeypatch)
    how = {"trust": "secure-sum", "mean": mean, "colluding": 1}
    result = run(nodes, tmp_path, **told, private={**NOISE, **how})
    simulated = Private(Masked(Simulator(clients), 5, range(10), entropy=entropy), plan(**how))
    release = simulated.total(EXACT).statistic
    assert result.head.digest == release.digest() == result.privacy.digest
    model = LinearHead.load(tmp_path / "out/model.safetensors")
    assert np.array_equal(model.weights, Fed3R().solve(release).weights)
    assert (result.privacy.epsilon, result.privacy.trust) == (8.0, "secure-sum")
    assert result.data.samples == SAMPLES  # the planned ones: nothing else is known
    assert not result.clients
    for node in nodes:
        spent = Budget(1.0, Path(node.config["folder"]) / "releases").spent
        assert spent == pytest.approx(mu_of(8.0, 1e-5), rel=1e-6)


@pytest.mark.parametrize("trust", ["server", "client"])
def test_a_release_is_drawn_once_and_answered_from_the_ledger_afterwards(clients, tmp_path, trust):
    nodes, told = members(clients, tmp_path)
    told |= {"secure": False, "private": {**NOISE, "trust": trust}}
    first = run(nodes, tmp_path, **told)
    heard = [len(node.heard) for node in nodes]
    again = run(nodes[1:], tmp_path, **told)
    assert again.head.digest == first.head.digest
    assert [len(node.heard) for node in nodes] == heard
    assert first.privacy.trust == trust
    with pytest.raises(HeadstartError, match="budget: expected a release of at most μ = 0"):
        run(nodes, tmp_path, **{**told, "private": {**told["private"], "epsilon": 7.0}})


def test_the_report_says_what_is_promised_and_no_exact_number(clients, tmp_path, monkeypatch):
    monkeypatch.setattr("headstart.deploy.flower.server.write_report", write_report)
    nodes, told = members(clients, tmp_path)
    result = run(nodes, tmp_path, **told, private={**NOISE, "trust": "secure-sum"})
    page = (tmp_path / "out/report.html").read_text()
    assert "add or remove one sample" in page
    kept = (tmp_path / "out/results.json").read_text()
    exact = sum(len(client.samples) for client in clients.values())
    assert exact != SAMPLES
    assert str(exact) not in page
    assert digest(clients) not in kept
    assert result.ledger


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"class_list": ""}, "class-list: expected the agreed classes"),
        ({"private": {"epsilon": 8.0}}, "samples: expected how many are planned"),
        ({"private": {**NOISE, "epsilom": 1}}, "unknown key 'private.epsilom'"),
        ({"private": {**NOISE, "trust": "nobody"}}, "trust: expected one of"),
        ({"pipeline": "fedcof"}, "expected a head that is solved from noisy sums"),
        ({"pipeline": "fed3r(ridge=gcv)"}, "ridge: expected a number with noisy sums"),
    ],
)
def test_what_cannot_be_released_is_refused_in_one_line(clients, tmp_path, told, why):
    nodes, usual = members(clients, tmp_path)
    with pytest.raises(HeadstartError, match=why):
        run(nodes, tmp_path, **{**usual, "private": NOISE, **told})
    assert not any((Path(node.config["folder"]) / "releases").exists() for node in nodes)


# -- what a node's owner insists on ----------------------------------------------------------------


def noise_of(kind="sums", **how):
    return plan(**{"trust": "client", **how}).noise(kind, 5)


def asking(nodes, step, broadcast=None):
    """The bytes of the first node, or its refusal's code."""
    over_grid = federation(nodes[:1])
    for _, reply in over_grid.replies(step, broadcast):
        return reply.payload
    return over_grid.failures[-1].code


def masked_step(**how):
    noise = plan(trust="secure-sum", **how).noise("sums", 5)
    return unit_sums("sums", range(10), noise)


def whole_step(**how):
    return unit_sums("sums", range(10), noise_of(**how))


WEAKER = {
    "less noise": ({"least_noise": 3.0}, whole_step(), "noise"),
    "another unit": ({"unit": "client"}, whole_step(), "noise"),
    "more than its budget": ({"most_epsilon": 1.0}, whole_step(), "budget"),
    "no noise": ({"most_epsilon": 1.0}, EXACT, "noise"),
    "counts without noise": ({"most_epsilon": 1.0}, steps.counts(), "noise"),
    "noise on what it is not made for": (
        {},
        Step("measure", {**EXACT.params, "noise": noise_of().to_plain()}),
        "noise",
    ),
    "a share outside a masked group": ({}, masked_step(), "noise"),
    "plain to who trusts members": ({"trust": "secure-sum"}, EXACT, "trust"),
    "unit sums for a server to add noise": (
        {"trust": "secure-sum"},
        unit_sums("sums", range(10)),
        "trust",
    ),
    "noise without a budget": ({"trust": "secure-sum"}, whole_step(), "trust"),
    "what is for the server to add noise to": (
        {"trust": "client", "most_epsilon": 8.0},
        unit_sums("sums", range(10)),
        "noise",
    ),
    "what is no noise": (
        {"most_epsilon": 1.0},
        Step("unit-sums", {"kind": "sums", "classes": [0], "noise": {"mu": 1}}),
        "noise",
    ),
}


@pytest.mark.parametrize("how", WEAKER)
def test_less_than_the_owners_floor_is_refused(clients, tmp_path, how):
    config, step, code = WEAKER[how]
    nodes, _ = members(clients, tmp_path, **config)
    assert asking(nodes, step) == code
    assert Budget(1.0, Path(nodes[0].config["folder"]) / "releases").spent == 0


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"least_noise": 3.0}, "noise"),
        ({"colluding": 2}, "noise"),
        ({"trust": "client", "most_epsilon": 8.0}, "trust"),
        ({"unit": "client"}, "noise"),
    ],
)
def test_nor_is_it_under_masks(clients, tmp_path, config, code):
    nodes, told = members(clients, tmp_path, **config)
    server = Hostile(nodes, known=known(told), step=masked_step(colluding=1))
    assert server.code(nodes[0].name, b"") == code


def test_masks_hide_what_an_owner_wants_noise_on_from_nobody_who_asks_without(clients, tmp_path):
    nodes, told = members(clients, tmp_path, most_epsilon=8.0)
    exact = Hostile(nodes, known=known(told))
    assert exact.code(nodes[0].name, b"") == "noise"
    # Nor with terms that leave out the noise which the step asks for.
    step = masked_step()
    server = Hostile(nodes, known=known(told), step=step)
    without = replace(server.terms, noise=None)
    assert server.code(nodes[0].name, b"", terms=without) == "noise"


def test_a_release_is_charged_before_anything_leaves(clients, tmp_path, monkeypatch):
    nodes, told = members(clients, tmp_path, most_epsilon=8.0)
    folder = Path(nodes[0].config["folder"]) / "releases"

    class Killed(BaseException):
        pass

    def killed(*told):
        assert Budget(9.0, folder).spent > 0  # on the disk already
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(node_half, "perform", killed)
        with pytest.raises(Killed):
            asking(nodes, whole_step(epsilon=4.0))
    assert asking(nodes, whole_step(epsilon=4.0)) == "budget"  # it may have left: it is spent
    # In a masked sum: in the stage that sends the vector, once for each draw.
    before = Budget(9.0, folder).spent
    server = Hostile(nodes, known=known(told), step=masked_step(epsilon=3.0)).until("mask")
    assert Budget(9.0, folder).spent == before
    name = nodes[0].name
    assert server.code(name, server.asked[name]) == "answered"
    after = Budget(9.0, folder).spent
    assert after > before
    assert server.code(name, server.asked[name]) == "replay"
    assert Budget(9.0, folder).spent == after
    again = Hostile(nodes, known=known(told), step=masked_step(epsilon=6.5)).until("mask")
    assert again.code(name, again.asked[name]) == "budget"
    assert again.code(name, again.asked[name]) != "answered"


def test_a_node_gives_the_same_release_again_and_never_a_second_draw(clients, tmp_path):
    nodes, _ = members(clients, tmp_path, most_epsilon=8.0)
    first = asking(nodes, whole_step(epsilon=6.0))
    assert isinstance(first, bytes)
    assert asking(nodes, whole_step(epsilon=6.0)) == first  # another server, another run
    folder = Path(nodes[0].config["folder"]) / "releases"
    assert Budget(9.0, folder).epsilon(1e-5) == pytest.approx(6.0, rel=0.05)
    assert asking(nodes, whole_step(epsilon=6.5)) == "budget"
    (release,) = folder.glob("*.safetensors")
    release.unlink()
    assert asking(nodes, whole_step(epsilon=6.0)) == "budget"  # never drawn again
    for path in folder.glob("*.json"):
        path.write_text('{"mu2": -1.0}')
    assert asking(nodes, whole_step(epsilon=1.0)) == "failed"


def test_no_setting_seeds_the_noise(clients, tmp_path):
    """Two nodes that are alike in all that can be set, and in all that is kept of a simulation."""
    found = []
    for name in "ab":
        (tmp_path / name).mkdir()
        nodes, _ = members(clients, tmp_path / name, seed=7)
        found.append(asking(nodes, whole_step()))
    assert found[0] != found[1]
    assert "entropy" not in {field.name for field in fields(NodeSettings)}


def test_a_direction_that_would_make_samples_longer_is_refused(clients, tmp_path):
    nodes, _ = members(clients, tmp_path)
    for direction in (np.full(64, 1e200), np.full(64, np.nan), np.zeros(64), np.ones(3)):
        broadcast = {"direction": direction}
        assert asking(nodes, whole_step(), broadcast) == "failed"


def test_hardly_any_noise_is_no_way_around_the_groups(clients, tmp_path):
    """Two sums with next to no noise, of which one lacks a member: without a budget they are sums
    like any other, and with one they do not come to pass."""
    names = sorted(clients)
    for most, code in ((0.0, "differencing"), (8.0, "budget")):
        (tmp_path / str(most)).mkdir()
        nodes, told = members(clients, tmp_path / str(most), most_epsilon=most)
        told = {"known": known(told), "step": masked_step(epsilon=1000.0 if not most else 7.9)}
        server = Hostile(nodes, names=names, **told).until("mask")
        while server.server.stage != "done":
            server.stage()
        fewer = Hostile(nodes, names=names[1:], **told).until("mask")
        assert {fewer.code(name, fewer.asked[name]) for name in names[1:]} == {code}


def test_a_node_that_trusts_nobody_has_a_budget():
    with pytest.raises(HeadstartError, match="most_epsilon: expected a budget above 0"):
        NodeSettings(client="a", data="b", folder="c", trust="client")


def test_which_classes_a_node_has_is_not_asked_one_by_one(clients, tmp_path):
    nodes, _ = members(clients, tmp_path, most_epsilon=8.0)
    agreed = Contract("1", EXACT.params, 64, class_list=tuple(range(10)))
    over_grid = federation(nodes[:1], contract=agreed)
    for classes, code in ((range(9), "agreement"), (range(10), "")):
        step = unit_sums("sums", classes, noise_of(epsilon=2.0))
        failed = len(over_grid.failures)
        assert len(list(over_grid.replies(step))) == (not code)
        assert [failure.code for failure in over_grid.failures[failed:]] == [code] * bool(code)

"""What all must agree on is the contract's: whoever comes first decides nothing for the others."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from headstart import Fed3R, HeadstartError, LinearHead
from headstart.data.samples import ArraySamples
from headstart.deploy import agreement
from headstart.deploy.admission import Contract
from headstart.deploy.flower.server import serve
from headstart.deploy.ledger import Ledger
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator

from . import fake_grid
from .fake_grid import FakeGrid, nodes_of

EXACT = steps.measure(Fed3R(), exact=True, bound=1.0)
ATTACKER = "attacker"  # whose name, and so whose answer, comes before all others


@pytest.fixture
def clients():
    rng = np.random.default_rng(3)
    means = rng.uniform(0.2, 0.8, (4, 12))

    def one(n):
        y = np.arange(n) % 4
        return ClientData(ArraySamples((means[y] + rng.normal(0, 0.05, (n, 12))).clip(0, 1), y))

    return {f"site-{name}": one(n) for name, n in (("a", 40), ("b", 24), ("c", 32))}


@pytest.fixture(autouse=True)
def lying(monkeypatch):
    """The attacker's node does not hold itself to what was agreed."""
    hold = agreement.hold

    def held(folder, *about):
        if folder.name != ATTACKER:
            hold(folder, *about)

    monkeypatch.setattr(agreement, "hold", held)


def run_settings(tmp_path, **changes):
    three = {"dimension": 12, "wanted": 3, "patience": 0.0}
    return fake_grid.run_settings(tmp_path, **{**three, **changes})


def with_attacker(clients, folder, labels):
    """Nodes of which the first sends statistics of the same form with labels of its own."""
    rng = np.random.default_rng(0)
    own = ClientData(ArraySamples(rng.uniform(size=(len(labels), 12)), np.array(labels)))
    return nodes_of({ATTACKER: own, **clients}, folder)


def refused(result):
    return {(failure.client, failure.code) for failure in result.failures}


def honest(clients, result, tmp_path):
    """Whether a run ended with the model of these clients, and of nobody else."""
    total = Simulator(clients).total(EXACT).statistic
    model = LinearHead.load(tmp_path / "out" / "model.safetensors")
    expected = Fed3R().solve(total)
    return result.head.digest == total.digest() and np.array_equal(model.weights, expected.weights)


def test_who_answers_first_with_text_labels_is_refused_alone(clients, tmp_path):
    nodes = with_attacker(clients, tmp_path, ["evil", "worse"] * 10)
    result = serve(FakeGrid(nodes), run_settings(tmp_path), "run", poll=0.01)
    assert refused(result) == {(ATTACKER, "labels")}
    assert honest(clients, result, tmp_path)


def test_text_labels_can_be_agreed_and_then_integers_are_refused(clients, tmp_path):
    named = {
        name: replace(one, samples=one.samples.relabelled(one.samples.labels.astype(str)))
        for name, one in clients.items()
    }
    nodes = with_attacker(named, tmp_path, [0, 1] * 10)
    result = serve(FakeGrid(nodes), run_settings(tmp_path, labels="text"), "run", poll=0.01)
    assert refused(result) == {(ATTACKER, "labels")}
    assert honest(named, result, tmp_path)


def test_who_says_first_what_made_its_features_says_it_for_nobody(clients, tmp_path):
    def claiming(content: RecordDict) -> RecordDict:
        about = json.loads(content["about"]["json"])
        about["extractor"] = {"name": "../evil.onnx\n", "identity": "evil"}
        return RecordDict({**content, "about": ConfigRecord({"json": json.dumps(about)})})

    nodes = with_attacker(clients, tmp_path, [0, 1] * 10)
    nodes[0].fault = claiming
    result = serve(FakeGrid(nodes), run_settings(tmp_path), "run", poll=0.01)
    assert refused(result) == {(ATTACKER, "extractor")}
    (failure,) = result.failures
    assert "expected features as they are, got those of ../evil.onnx" in failure.text
    assert failure.text.isprintable()
    assert honest(clients, result, tmp_path)


def test_nobody_fills_the_list_of_classes_with_its_own(clients, tmp_path):
    """Without a quota the first who comes takes all places; with one it is refused alone."""
    nodes = with_attacker(clients, tmp_path, list(range(100, 120)) * 2)
    open_ = run_settings(tmp_path, classes=20, wanted=1, ledger=str(tmp_path / "open"))
    assert refused(serve(FakeGrid(nodes), open_, "run", poll=0.01)) == {
        (name, "many") for name in clients
    }
    for name in clients:  # whose owners agree to other terms
        (tmp_path / name / agreement.FILE).unlink()
    closed = run_settings(tmp_path, classes=20, new_classes=4)
    result = serve(FakeGrid(nodes), closed, "run", poll=0.01)
    assert refused(result) == {(ATTACKER, "quota")}
    assert honest(clients, result, tmp_path)


def test_a_class_that_is_not_on_the_list_is_refused(clients, tmp_path):
    (tmp_path / "classes.txt").write_text("0\n1\n2\n3\n\n")
    nodes = with_attacker(clients, tmp_path, [0, 7] * 10)
    settings = run_settings(tmp_path, class_list=str(tmp_path / "classes.txt"))
    result = serve(FakeGrid(nodes), settings, "run", poll=0.01)
    assert refused(result) == {(ATTACKER, "unagreed")}
    assert honest(clients, result, tmp_path)
    with Ledger.open(tmp_path / "ledger", write=False) as ledger:
        assert ledger.contract.class_list == (0, 1, 2, 3)


def test_counts_of_another_kind_end_no_run(clients, tmp_path):
    """Of a client whose upload is not asked for its classes: `sorted` of both kinds would fail."""
    from headstart.deploy.flower.federation import FlowerFederation
    from headstart.deploy.nodes import online

    nodes = with_attacker(clients, tmp_path, ["evil"] * 20)
    grid = FakeGrid(nodes)
    contract = Contract("1", EXACT.params, 12)
    over_grid = FlowerFederation(
        grid, {node.name: node.id for node in online(grid)}, 0.5, poll=0.01, contract=contract
    )
    assert set(over_grid.total(steps.counts()).clients) == set(clients)
    assert [(one.client, one.code) for one in over_grid.failures] == [(ATTACKER, "labels")]


def test_a_message_of_another_dimension_is_refused_alone(clients, tmp_path):
    wide = Fed3R().measure(np.ones((20, 13)), np.arange(20) % 4, exact=True, bound=1.0, secret=b"")
    payload = wide.to_bytes()

    def wider(content: RecordDict) -> RecordDict:
        array = Array("uint8", (len(payload),), "headstart.wire", payload)
        return RecordDict({**content, "arrays": ArrayRecord({"upload": array})})

    nodes = with_attacker(clients, tmp_path, [0, 1] * 10)
    nodes[0].fault = wider
    result = serve(FakeGrid(nodes), run_settings(tmp_path), "run", poll=0.01)
    assert [name for name, _ in refused(result)] == [ATTACKER]
    assert honest(clients, result, tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": "colour"}, "labels: expected integer or text, got 'colour'"),
        ({"class_list": "missing.txt"}, "class-list: cannot read"),
        ({"class_list": "words.txt"}, "class-list: expected integers"),
        ({"class_list": "twice.txt"}, "class-list: expected classes in .*, got '1' twice"),
        ({"class_list": "empty.txt"}, "class-list: expected classes in .*, got none"),
        ({"new_classes": 0}, "new_classes: expected a whole number above 0"),
    ],
)
def test_the_agreement_is_checked_before_anybody_is_asked(clients, tmp_path, changes, said):
    for name, text in (("words", "a\nb"), ("twice", "1\n1"), ("empty", "\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    if "class_list" in changes:
        changes = {"class_list": str(tmp_path / changes["class_list"])}
    nodes = nodes_of(clients, tmp_path)
    with pytest.raises(HeadstartError, match=said):
        serve(FakeGrid(nodes), run_settings(tmp_path, **changes), "run", poll=0.01)
    assert not any(node.heard for node in nodes)


def test_a_ledger_is_of_one_agreement_on_labels_and_classes(clients, tmp_path):
    nodes = nodes_of(clients, tmp_path)
    serve(FakeGrid(nodes), run_settings(tmp_path), "run", poll=0.01)
    with pytest.raises(HeadstartError, match="begun with another labels"):
        serve(FakeGrid(nodes), run_settings(tmp_path, labels="text"), "run", poll=0.01)

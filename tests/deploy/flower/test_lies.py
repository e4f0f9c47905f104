"""Nodes that answer a step with something else: each is left out and named, the run goes on."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import Fed3R, FedNCM, LinearHead
from headstart.data.samples import ArraySamples
from headstart.deploy.admission import Contract
from headstart.deploy.flower.federation import FlowerFederation
from headstart.deploy.flower.messages import Question
from headstart.deploy.flower.server import serve
from headstart.deploy.nodes import LONGEST, online
from headstart.federation import promises, steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.personal import VARIANTS
from headstart.statistics.tally import Tally
from headstart.statistics.vectors import Vectors
from headstart.statistics.wire import Limits

from .fake_grid import FakeGrid, nodes_of
from .test_agreement import run_settings

torch = pytest.importorskip("torch")

from headstart.gradient.local import FineTuning, fine_tune_locally  # noqa: E402
from headstart.gradient.models import Spec  # noqa: E402
from headstart.gradient.steps import NUMBERS, Job, broadcast, full_gradient, update  # noqa: E402

D, C = 12, 4
EXACT = steps.measure(Fed3R(), exact=True, bound=1.0)
HEAD = LinearHead(np.eye(C, D), np.zeros(C), np.arange(C), temperature=1.0)


@pytest.fixture
def clients():
    rng = np.random.default_rng(3)

    def one(n):
        y = np.arange(n) % C
        return ClientData(
            ArraySamples(rng.uniform(size=(n, D)), y),
            ArraySamples(rng.uniform(size=(12, D)), y[:12]),
        )

    return {f"site-{name}": one(n) for name, n in (("a", 40), ("b", 24), ("c", 32))}


@pytest.fixture
def nodes(clients, tmp_path):
    return nodes_of(clients, tmp_path)


def federation(nodes, **told):
    grid = FakeGrid(nodes)
    ids = {node.name: node.id for node in online(grid)}
    contract = Contract("1", EXACT.params, D, samples=50)
    return FlowerFederation(grid, ids, deadline=0.3, poll=0.001, contract=contract, **told)


def saying(lie):
    """A node whose every answer is this statistic (or these bytes)."""
    payload = lie if isinstance(lie, bytes) else lie.to_bytes()

    def spoil(content: RecordDict) -> RecordDict:
        array = Array("uint8", (len(payload),), "headstart.wire", payload)
        return RecordDict({**content, "arrays": ArrayRecord({"upload": array})})

    return spoil


def training(algorithm="fedavg", **how):
    from headstart.gradient.loop import begin

    job = Job(algorithm, Spec(C, D), **how)
    params = {"head.weight": np.zeros((C, D), np.float32), "head.bias": np.zeros(C, np.float32)}
    state = begin(job, params)
    told = {name: state.server[name] for name in job.recipe.broadcast_state if name in state.server}
    return job, broadcast(job, params, told, np.arange(C))


SIZE = C * D + C


def vectors(*rows, numbers=(24.0, 1.0, 0.0, 0.0), names=NUMBERS, called=("update",)):
    return Vectors(np.array(rows, np.float32), np.array(numbers, np.float64), called, names)


def lies():
    """(what is asked, a lie), by name."""
    job, words = training()
    told, head = update(job, 0), steps.with_head(HEAD)
    honest = np.full(SIZE, 0.01)
    home = fine_tune_locally(job, FineTuning())
    yield "update of another size", told, words, vectors(honest[:-1])
    yield "update under another name", told, words, vectors(honest, called=("gift",))
    yield "update with a row more", told, words, vectors(honest, honest, called=("update", "x"))
    yield "update of a thousand clients", told, words, vectors(honest, numbers=(24, 1000, 0, 0))
    yield "update of a billion samples", told, words, vectors(honest, numbers=(1e9, 1, 0, 0))
    yield "update of less than a sample", told, words, vectors(honest, numbers=(0.5, 1, 0, 0))
    yield "update of negative weight", told, words, vectors(honest, numbers=(-24, 1, 0, 0))
    yield "update far too long", told, words, vectors(1e8 * honest)
    yield "update of nobody", told, words, vectors(honest, numbers=(0, 0, 0, 0))
    yield "update with squares of its own", told, words, vectors(honest, numbers=(24, 1, 1e9, 0))
    yield "update with a negative loss", told, words, vectors(honest, numbers=(24, 1, 0, -5))
    yield "numbers of other names", told, words, vectors(honest, names=("a", "b", "c", "d"))
    yield "an update where a gradient was asked", full_gradient(job, 0), words, vectors(honest)
    steep = vectors(1e9 * honest, numbers=(1.0,), names=("clients",), called=("gradient",))
    yield "gradient far too steep", full_gradient(job, 0), words, steep
    yield "losses of another length", steps.calibrate(), head, Tally(np.ones(3))
    yield "losses that choose the temperature", steps.calibrate(), head, Tally(np.full(46, 1e9))
    yield "more hits than samples", steps.personal(), head, Tally(np.arange(1.0 + len(VARIANTS)))
    yield "hits of a billion", steps.personal(), head, Tally(np.full(1 + len(VARIANTS), 1e9))
    yield "too few hits", steps.personal(), head, Tally(np.ones(2))
    yield "hits at home beyond the tests", home, words, Tally(np.array([1, 0, 0, 2.0, 0, 0]))
    yield (
        "samples from outside that were not sent",
        home,
        words,
        Tally(np.array([1, 9, 0, 1.0, 0, 0])),
    )
    other = Fed3R().measure(np.ones((24, D)), np.arange(24) % C, exact=True, bound=2.0)
    yield "another lattice", EXACT, {}, other
    yield "another statistic", EXACT, {}, FedNCM().measure(np.ones((24, D)), np.arange(24) % C)


LIES = {name: rest for name, *rest in lies()}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_costs_its_sender_and_not_the_round(clients, nodes, name):
    step, words, lie = LIES[name]
    nodes[1].fault = saying(lie)
    over_grid = federation(nodes)
    total = over_grid.total(step, words)
    assert total.clients == ("site-a", "site-c")
    ((failure,),) = [over_grid.failures]
    assert failure.client == "site-b"
    assert failure.code in ("promise", "kind")
    assert failure.text.isprintable()
    if step == EXACT:
        left = {name: clients[name] for name in total.clients}
        assert total.statistic.digest() == Simulator(left).total(EXACT).statistic.digest()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-1e12, 1e12), min_size=4, max_size=4),
    st.integers(-2, 2),
    st.floats(0, 1e12),
)
def test_no_update_that_passes_is_longer_than_training_can_make_it(numbers, more, scale):
    """Whatever weight is claimed: what enters the mean is bounded, and so is its weight."""
    job, words = training()
    check = promises.promised(update(job, 0), words)
    row = np.full(max(SIZE + more, 1), scale / np.sqrt(SIZE))
    try:
        check(vectors(row, numbers=numbers), Limits(samples=50, bound=1.0), 1)
    except promises.WireError:
        return
    weight, trained, squares, loss = numbers
    steps_ = 50 / job.training.batch
    longest = 10 * job.training.rate * steps_ * np.sqrt(2 * (D + 1))
    assert len(row) == SIZE
    assert 0 <= weight <= 50
    assert trained in (0, 1)
    assert squares >= 0
    assert loss >= 0
    assert np.linalg.norm(row) <= weight * longest * 1.001


def test_a_bound_on_samples_is_a_bound_on_updates():
    """Twice the norm, and the longest update is nearly twice as long."""
    job, words = training()
    check = promises.promised(update(job, 0), words)

    def longest(**limits) -> float:
        low, high = 0.0, 1e6
        for _ in range(60):
            middle = (low + high) / 2
            row = vectors(np.full(SIZE, 50 * middle / np.sqrt(SIZE)), numbers=(50.0, 1.0, 0, 0))
            try:
                check(row, Limits(samples=50, **limits), 1)
                low = middle
            except promises.WireError:
                high = middle
        return low

    assert longest(norm=20.0) / longest(norm=10.0) == pytest.approx(2, abs=0.01)
    assert longest(bound=1.0) == pytest.approx(longest(norm=np.sqrt(D)), rel=1e-3)
    assert longest(bound=1.0, norm=1.0) == pytest.approx(longest(norm=1.0), rel=1e-3)
    assert longest() == pytest.approx(1e6)  # nothing was agreed


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "scaffold", "feddyn", "mime", "fedexp"])
def test_honest_updates_of_extreme_samples_pass(tmp_path, algorithm, momentum):
    """Samples at the bound, all of one class, at a large rate, for some rounds."""
    from headstart.gradient.engine import Training
    from headstart.gradient.loop import Plan, begin, rounds

    corner = {
        name: ClientData(ArraySamples(np.full((50, D), side), np.full(50, at)))
        for at, (name, side) in enumerate((("site-a", 1.0), ("site-b", -1.0)))
    }
    over_grid = federation(nodes_of(corner, tmp_path))
    job, _ = training(algorithm, training=Training(1.0, 3, 5, momentum=momentum))
    params = {"head.weight": np.zeros((C, D), np.float32), "head.bias": np.zeros(C, np.float32)}
    over_grid.begin_training("extreme")
    for _ in rounds(job, Plan(4, 2), over_grid, np.arange(C), begin(job, params)):
        pass
    assert not over_grid.failures


def test_a_training_ends_with_a_model_though_a_node_lies_in_every_round(clients, nodes, tmp_path):
    """Before, one answer of another shape ended the run."""
    liar, lie = nodes[1], saying(vectors(np.zeros(3)))
    grid = FakeGrid(nodes)
    push = grid.push_messages

    def pushed(messages):
        asked = [Question.from_content(message.content).step for message in messages]
        liar.fault = lie if any(step and step.name == "update" for step in asked) else None
        return push(messages)

    grid.push_messages = pushed
    told = run_settings(tmp_path, pipeline="Fed3R + FedAvg-2(head)", cohort=3)
    result = serve(grid, told, "run", poll=0.01)
    assert [(one.client, one.code) for one in result.failures] == [("site-b", "promise")] * 2
    honest = {name: data for name, data in clients.items() if name != "site-b"}
    assert [point.round for point in result.curve] == [0, 1, 2]
    assert LinearHead.load(tmp_path / "out" / "model.safetensors").weights.shape == (C, D)
    assert set(honest) < set(result.split.clients)  # its upload was admitted, and stays


def test_a_node_trains_on_no_more_samples_than_it_was_admitted_with(clients, nodes, tmp_path):
    """Its weight in the mean is that of its upload."""
    job, words = training()
    heavy = vectors(np.full(SIZE, 0.01), numbers=(49.0, 1.0, 0.0, 0.0))
    nodes[1].fault = saying(heavy)
    over_grid = federation(nodes, samples={"site-a": 40, "site-b": 24, "site-c": 32})
    assert set(over_grid.total(update(job, 0), words).clients) == {"site-a", "site-c"}
    assert "weight: expected a whole number up to 24, got 49" in over_grid.failures[0].text


@pytest.mark.parametrize("text", ["x" * 15_000, "a\nb\x1b[2J" * 1000, "\u202e" * 3000, "\0" * 900])
def test_a_nodes_words_are_cut_to_a_line(nodes, tmp_path, text, caplog):
    def spoil(content: RecordDict) -> RecordDict:
        about = {**json.loads(content["about"]["json"]), "code": "missing", "text": text}
        return RecordDict({**content, "about": ConfigRecord({"json": json.dumps(about)})})

    nodes[0].fault = spoil
    result = serve(FakeGrid(nodes), run_settings(tmp_path, wanted=2), "run", poll=0.01)
    ((failure,),) = [[one for one in result.failures if one.client == "site-a"]]
    assert failure.code == "failed"  # `missing` is the server's to say
    assert len(failure.text) <= LONGEST
    assert failure.text.isprintable()
    assert all(len(record.getMessage()) < 2 * LONGEST for record in caplog.records)


def test_a_lie_of_one_does_not_change_what_others_are_asked(nodes):
    job, words = training()
    over_grid = federation(nodes)
    over_grid.begin_training("one")
    nodes[1].fault = saying(b"rubbish")
    over_grid.total(update(job, 0), words)
    assert over_grid.last == {"site-a": 1, "site-c": 1}
    nodes[1].fault = None
    assert len(over_grid.total(replace(update(job, 0)), words).clients) == 3

"""Every phase of a pipeline over a grid gives what it gives simulated."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from flwr.app import Message

from headstart import LinearHead
from headstart.deploy.flower.messages import Question
from headstart.deploy.flower.recorded import LedgerStore
from headstart.deploy.flower.server import serve
from headstart.deploy.ledger import Ledger
from headstart.federation import steps
from headstart.federation.recorded import Recorded
from headstart.federation.simulator import Simulator
from headstart.pipeline.config import parsed
from headstart.pipeline.personalize import linear_head
from headstart.pipeline.run import simulate

from .fake_grid import (
    FakeGrid,
    asked_of,
    digest,
    federation,
    run_settings,
    served,
)

PIPELINES = (
    "Fed3R + Scaffold-2(head, lr=0.01)",
    "OLL(Fed3R + FedAvg-2(head)) + FP-2(head)",
    "Fed3R + FedAvgM-1(head) + Ditto-2 + FP-1(head)",
    "Fed3R + prior",
)


@pytest.mark.parametrize("text", PIPELINES)
def test_every_phase_gives_over_the_grid_what_it_gives_simulated(experiment, nodes, tmp_path, text):
    """One client at a time, in one order, with the same secrets: the same bits."""
    alone = Simulator(experiment.clients, together=False)
    expected, state, context = simulate(replace(experiment, federation=alone), parsed(text))
    test = experiment.test
    np.savez(tmp_path / "test.npz", features=test.features, label=test.labels)
    told = run_settings(
        tmp_path, pipeline=text, personal=True, cohort=3, test_data=str(tmp_path / "test.npz")
    )
    found = served(FakeGrid(nodes, newest_first=True), told)
    assert not found.failures
    assert found.head.digest == digest(experiment.clients)
    ours = LinearHead.load(tmp_path / "out" / "model.safetensors")
    theirs = linear_head(context, state)
    assert np.array_equal(ours.weights, theirs.weights)
    assert np.array_equal(ours.bias, theirs.bias)
    assert found.personal == expected.personal
    for point, other in zip(found.curve, expected.curve, strict=True):
        assert asdict(point) == pytest.approx(asdict(other))


def test_a_pipeline_is_served_and_goes_on_without_a_client_that_dies(experiment, nodes, tmp_path):
    told = run_settings(tmp_path, pipeline="Fed3R + FedAvg-2(head) + FP-1(head)", personal=True)
    grid = FakeGrid(nodes)
    push = grid.push_messages

    def dying(messages):
        steps_ = [Question.from_content(message.content).step for message in messages]
        if any(step and step.name == "update" for step in steps_):
            nodes[0].fault = "dead"
        return push(messages)

    grid.push_messages = dying
    results = served(grid, told)
    assert [point.phase for point in results.curve] == [0, 1, 1, 2]
    assert nodes[0].name not in results.personal.clients
    assert len(results.personal.clients) == 4
    assert results.accuracy is None  # the server has nothing to test with
    assert LinearHead.load(tmp_path / "out" / "model.safetensors").weights.shape == (10, 64)
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert ledger.total().digest() == digest(experiment.clients)


def test_memories_of_one_training_are_not_those_of_the_next(nodes, tmp_path):
    grid, told = FakeGrid(nodes), run_settings(tmp_path, pipeline="Fed3R + Scaffold-2(head)")
    weights = []
    for run in ("one", "two"):
        serve(grid, told, run, poll=0.01)
        weights.append(LinearHead.load(tmp_path / "out" / "model.safetensors").weights)
    assert np.array_equal(*weights)


def test_phases_go_on_without_members_that_are_away_and_keep_their_classes(nodes, tmp_path):
    """The head has a row for a class that only a client knows that is not there any more."""
    text = "Fed3R + FedAvg-1(head)"
    served(FakeGrid(nodes), run_settings(tmp_path))
    results = served(FakeGrid(nodes[:2]), run_settings(tmp_path, pipeline=text, wanted=1))
    assert len(results.split.clients) == 5
    assert ["update" in asked_of(node) for node in nodes] == [True, True, False, False, False]
    assert LinearHead.load(tmp_path / "out" / "model.safetensors").weights.shape == (10, 64)


@pytest.mark.parametrize("head", ["fedncm", "fedcof", "etf", "lda"])
def test_every_kind_of_upload_tells_the_label_counts(experiment, nodes, tmp_path, head):
    """So that nobody is asked for them, and who is away is counted as well."""
    served(FakeGrid(nodes), run_settings(tmp_path, pipeline=head))
    for node in nodes:
        node.heard.clear()
    with Ledger.open(tmp_path / "ledger") as ledger:
        recorded = Recorded(federation(nodes[:2]), LedgerStore(ledger))
        found = {answer.clients[0]: answer.statistic for answer in recorded.answers(steps.counts())}
        total = recorded.total(steps.counts()).statistic
    assert not any(node.heard for node in nodes)
    expected = {one.clients[0]: one for one in experiment.federation.answers(steps.counts())}
    assert found.keys() == expected.keys()
    for name, answer in expected.items():
        assert found[name].digest() == answer.statistic.digest()
    assert total.digest() == experiment.federation.total(steps.counts()).statistic.digest()


def test_messages_carry_no_pickles(nodes):
    """What goes out and comes back is NumPy's own format, or the wire's."""
    over_grid = federation(nodes[:1])
    head = LinearHead(np.eye(2, 64), np.zeros(2), np.array([0, 1]))
    list(over_grid.answers(steps.calibrate(), steps.with_head(head)))
    (message,) = nodes[0].heard
    assert isinstance(message, Message)
    assert {array.stype for array in message.content["arrays"].values()} == {"numpy.ndarray"}

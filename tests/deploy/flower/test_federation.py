"""The federation over a grid: the total of whoever answered well, and what went wrong elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart import FedNCM, HeadstartError
from headstart.federation import steps
from headstart.federation.protocol import STEPS, Step, step_kind, tallies
from headstart.federation.simulator import Simulator

from .fake_grid import (
    EXACT,
    federation,
    solved,
)


@pytest.mark.parametrize("newest_first", [False, True])
def test_the_total_is_the_simulators_and_so_are_the_bytes(experiment, nodes, newest_first):
    over_grid = federation(nodes, newest_first=newest_first)
    for step in (EXACT, steps.measure(FedNCM(), bound=1.0), steps.counts()):
        ours, theirs = over_grid.total(step), experiment.federation.total(step)
        assert ours.statistic.digest() == theirs.statistic.digest()
        assert (ours.up, ours.down) == (theirs.up, theirs.down)
        assert sorted(ours.clients) == sorted(theirs.clients)
    assert not over_grid.failures
    head = steps.with_head(solved(experiment.federation))
    for step in (steps.calibrate(), steps.personal()):
        ours, theirs = (tallies(one, step, head) for one in (over_grid, experiment.federation))
        assert list(ours) == list(theirs)
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_client_that_is_told_to_be_silent_answers_with_nothing(experiment, nodes):
    hidden = replace(EXACT, silent=True)
    ours, theirs = federation(nodes).total(hidden), experiment.federation.total(hidden)
    assert ours.statistic.samples == 0
    assert ours.statistic.digest() == theirs.statistic.digest()


def test_every_step_says_what_it_is_answered_with():
    assert {"measure", "counts", "update", "refit", "home", "channels"} <= set(STEPS)
    for name in STEPS:
        assert step_kind(name).answer is not None
    asked = steps.measure(FedNCM())
    assert step_kind("measure").answer_type(asked) is FedNCM.statistic
    with pytest.raises(HeadstartError, match="step: expected one of"):
        list(federation([]).answers(Step("steal")))


def spoiled(content: RecordDict) -> RecordDict:
    payload = bytearray(content["arrays"]["upload"].data)
    payload[-1] ^= 1
    array = Array("uint8", (len(payload),), "headstart.wire", bytes(payload))
    return RecordDict({"about": content["about"], "arrays": ArrayRecord({"upload": array})})


def renamed(content: RecordDict) -> RecordDict:
    about = json.loads(content["about"]["json"])
    about["client"] = "client-0"
    return RecordDict(
        {"about": ConfigRecord({"json": json.dumps(about)}), "arrays": content["arrays"]}
    )


def impersonated(content: RecordDict) -> RecordDict:
    """As if from a node that was not told the question's nonce."""
    about = {**json.loads(content["about"]["json"]), "nonce": "guessed"}
    return RecordDict({**content, "about": ConfigRecord({"json": json.dumps(about)})})


def emptied(content: RecordDict) -> RecordDict:
    return RecordDict({"about": content["about"]})


FAULTS = {
    "silent": "missing",
    "dead": "unreachable",
    spoiled: "digest",
    renamed: "identity",
    impersonated: "identity",
    emptied: "malformed",
}


@pytest.mark.parametrize(
    ("fault", "code"), FAULTS.items(), ids=lambda it: getattr(it, "__name__", it)
)
def test_what_goes_wrong_at_one_client_is_told_and_the_others_are_summed(
    experiment, nodes, fault, code
):
    nodes[2].fault = fault
    over_grid = federation(nodes)
    found = over_grid.total(EXACT)
    kept = {name: data for name, data in experiment.clients.items() if name != nodes[2].name}
    assert found.statistic.digest() == Simulator(kept).total(EXACT).statistic.digest()
    ((failure,),) = [over_grid.failures]
    assert (failure.client, failure.code) == (nodes[2].name, code)
    assert nodes[2].name in failure.text


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from([None, "dead", spoiled, renamed, emptied]), min_size=4, max_size=4),
    st.booleans(),
)
def test_the_total_is_always_that_of_whoever_answered_well(experiment, nodes, faults, newest_first):
    for node, fault in zip(nodes, [None, *faults], strict=True):
        node.fault = fault
    over_grid = federation(nodes, newest_first=newest_first)
    well = {node.name: experiment.clients[node.name] for node in nodes if not node.fault}
    assert (
        over_grid.total(EXACT).statistic.digest() == Simulator(well).total(EXACT).statistic.digest()
    )
    assert {failure.client for failure in over_grid.failures} == {
        node.name for node in nodes if node.fault
    }


def test_a_question_that_flower_will_not_carry_is_told(nodes):
    over_grid = federation(nodes)
    over_grid.grid.push_messages = lambda messages: []  # as for a message that is too large
    assert list(over_grid.answers(EXACT)) == []
    assert {failure.code for failure in over_grid.failures} == {"unreachable"}
    assert len(over_grid.failures) == len(nodes)


def test_nobody_answers(nodes):
    for node in nodes:
        node.fault = "dead"
    with pytest.raises(HeadstartError, match=r"measure: .*Node Unavailable"):
        federation(nodes).total(EXACT)


def test_unknown_clients_and_deadlines_are_refused(nodes):
    with pytest.raises(HeadstartError, match="cohort: expected known clients, got nobody"):
        federation(nodes).total(EXACT, cohort=["nobody"])
    with pytest.raises(HeadstartError, match="deadline"):
        federation(nodes, deadline=0)

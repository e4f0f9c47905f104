"""Fed3R-FT's running total: every client's last accepted statistic, whatever is lost on the way."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import ETF, LDA, DataError, Fed3R, FedCOF, FedNCM
from headstart.data.samples import ArraySamples
from headstart.federation.simulator import Simulator
from headstart.gradient.models import Spec, build, initial
from headstart.gradient.refit import (
    RunningTotal,
    extractor_arrays,
    features_of,
    packed,
    refit,
)
from headstart.testing.federations import vectors

SPEC, CLASSES = Spec(3, 2, network="testing-turn"), np.arange(3)
SIZES = (6, 0, 9, 4)
HEADS = (Fed3R(), FedNCM())
every_head = pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)


def network(round_):
    """The extractor of a round: another one every time, as if it trained."""
    params = initial(build(SPEC), None, 0)
    turned = params["extractor.turn"] * (1 + 0.3 * round_) + 0.1 * round_
    return {**params, "extractor.turn": turned.astype(np.float32)}


@dataclass
class Lossy:
    """A federation of which some answers are lost, before their clients have worked or after."""

    inner: Simulator
    before: set[str] = field(default_factory=set)
    after: set[str] = field(default_factory=set)

    @property
    def clients(self):
        return self.inner.clients

    def answers(self, step, broadcast=None, cohort=None):
        reached = [name for name in cohort or self.clients if name not in self.before]
        for answer in self.inner.answers(step, broadcast, reached):
            if answer.clients[0] not in self.after:
                yield answer


def asked(federation, total, head, round_, cohort=None):
    """One round's question and the answers to it."""
    cohort = cohort or list(federation.clients)
    words = extractor_arrays(SPEC, network(round_)) | {"classes": CLASSES}
    step = refit(SPEC, head, round_)
    return list(federation.answers(step, {**words, **total.broadcast(cohort)}, cohort))


def measured(client, head, round_):
    """What a client's statistic is in a round, by hand."""
    features = features_of(build(SPEC), network(round_), client.samples)
    return packed(head.measure(features, client.samples.labels), CLASSES)


def assert_total(total, data, head, visits):
    """The sum of every client's statistic of the round of its last accepted visit."""
    expected = sum(measured(data[name], head, round_) for name, round_ in visits.items())
    np.testing.assert_allclose(total.vector, expected, atol=1e-9)
    counted = sum(len(data[name].samples) for name in visits)
    assert total.vector[-3:].sum() == pytest.approx(counted)


FATES = st.sampled_from(["accepted", "lost before", "lost after", "not asked"])
ROUNDS = st.lists(st.lists(FATES, min_size=4, max_size=4), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(rounds=ROUNDS, head=st.sampled_from(HEADS))
def test_the_total_is_that_of_every_clients_last_accepted_statistic(rounds, head):
    data = vectors(SIZES)
    total, visits = RunningTotal(), {}
    federation = Lossy(Simulator(data))
    for round_, fates in enumerate(rounds):
        fate = dict(zip(data, fates, strict=True))
        federation.before = {name for name in data if fate[name] == "lost before"}
        federation.after = {name for name in data if fate[name] == "lost after"}
        cohort = [name for name in data if fate[name] != "not asked"]
        if not cohort:
            continue
        total = total.accepted(asked(federation, total, head, round_, cohort))
        visits |= {name: round_ for name in cohort if fate[name] == "accepted"}
        assert set(total.tags) == set(visits)
        if visits:
            assert_total(total, data, head, visits)


@every_head
def test_a_client_that_comes_again_with_other_samples_changes_the_total_by_that(head):
    data = vectors(SIZES)
    federation = Simulator(data)
    total = RunningTotal().accepted(asked(federation, RunningTotal(), head, 0))
    rest = federation.data["c02"]
    data["c02"] = replace(rest, samples=rest.samples.first(3).relabelled(np.array([2, 2, 2])))
    total = total.accepted(asked(federation, total, head, 1))
    assert_total(total, data, head, dict.fromkeys(data, 1))


@every_head
def test_a_question_asked_again_is_answered_alike_and_changes_nothing(head):
    data = vectors(SIZES)
    federation = Simulator(data)
    total = RunningTotal()
    for round_ in range(3):
        first, again = (asked(federation, total, head, round_) for _ in range(2))
        assert [one.payload for one in first] == [two.payload for two in again]
        total = total.accepted(again)
        late = asked(federation, total, head, round_)  # its first answer was accepted by then
        assert not any(answer.statistic.vectors.any() for answer in late)
        total = total.accepted(late)
        assert_total(total, data, head, dict.fromkeys(data, round_))


@every_head
def test_a_client_that_has_lost_what_the_server_holds_refuses_in_one_line(head):
    data = vectors(SIZES)
    federation = Simulator(data)
    total = RunningTotal().accepted(asked(federation, RunningTotal(), head, 0))
    total = total.accepted(asked(federation, total, head, 4))
    data["c02"].memory.clear()
    with pytest.raises(DataError) as refused:
        asked(federation, total, head, 6)
    said = str(refused.value)
    assert said.startswith("refit: the server holds this client's statistic of round 5, which it")
    assert "\n" not in said


def test_a_client_that_lost_its_memory_before_anything_was_accepted_begins_anew():
    data = vectors(SIZES)
    federation = Lossy(Simulator(data), after={"c02"})
    total = RunningTotal().accepted(asked(federation, RunningTotal(), Fed3R(), 0))
    data["c02"].memory.clear()
    federation.after = set()
    total = total.accepted(asked(federation, total, Fed3R(), 1))
    assert_total(total, data, Fed3R(), dict.fromkeys(data, 1))


@every_head
def test_the_head_of_the_total_is_the_head_of_the_pooled_samples(head):
    data = vectors(SIZES)
    total = RunningTotal().accepted(asked(Simulator(data), RunningTotal(), head, 2))
    found = head.solve(total.statistic(head, CLASSES, 2))
    held = zip(*(client.samples.read() for client in data.values()), strict=True)
    pool = ArraySamples(*map(np.concatenate, held))
    features = features_of(build(SPEC), network(2), pool)
    pooled = head.solve(head.measure(features, pool.labels))
    np.testing.assert_allclose(found.weights, pooled.weights, rtol=1e-6, atol=1e-9)


def test_tags_name_nobody_and_are_those_of_the_cohort_alone():
    data = vectors(SIZES)
    total = RunningTotal().accepted(asked(Simulator(data), RunningTotal(), Fed3R(), 0))
    assert len(set(total.tags.values())) == len(data)
    sent = total.broadcast(["c03", "c00", "nobody yet"])["accepted"]
    assert sent.tolist() == sorted([total.tags["c00"], total.tags["c03"]])


def test_only_heads_of_sums_of_features_can_be_refitted():
    for head in (ETF(), FedCOF()):
        with pytest.raises(DataError, match="refit: expected a head of sums of features, got"):
            refit(SPEC, head, 0)
    assert refit(SPEC, LDA(), 0).name == "refit"


def test_nothing_accepted_has_no_head():
    with pytest.raises(DataError, match="refit: expected statistics of some client, got none"):
        RunningTotal().statistic(Fed3R(), CLASSES, 2)

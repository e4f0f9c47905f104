"""Answers are held to what their step promised: a liar is left out and named, others are summed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart import Fed3R, FedNCM, LinearHead, WireError
from headstart.data.samples import ArraySamples
from headstart.errors import SkippedWarning
from headstart.federation import promises, simulator, steps
from headstart.federation.protocol import OWN_STEPS, Answer, ClientData, Step, perform, step_kind
from headstart.federation.ray import RayFederation
from headstart.federation.recorded import Recorded
from headstart.federation.simulator import Simulator
from headstart.heads.linear import TEMPERATURES
from headstart.personal import VARIANTS
from headstart.statistics.tally import Tally
from headstart.statistics.wire import Limits

HEAD = LinearHead(np.eye(3, 4), np.zeros(3), np.arange(3), temperature=1.0)
WITH_HEAD = steps.with_head(HEAD)


@pytest.fixture
def clients():
    rng = np.random.default_rng(0)

    def one():
        y = np.arange(12) % 3
        return ClientData(
            ArraySamples(rng.uniform(size=(12, 4)), y),
            ArraySamples(rng.uniform(size=(6, 4)), y[:6]),
        )

    return {name: one() for name in "abc"}


def test_every_step_of_ours_makes_a_promise():
    for name in OWN_STEPS:
        assert step_kind(name).promise is not None, name


@pytest.mark.parametrize(
    ("step", "broadcast"),
    [
        (steps.counts(), {}),
        (steps.calibrate(), WITH_HEAD),
        (steps.personal(), WITH_HEAD),
        *((steps.measure(h, exact=e), {}) for h in (Fed3R(), FedNCM()) for e in (True, False)),
    ],
    ids=lambda it: getattr(it, "name", ""),
)
def test_honest_answers_pass_with_the_narrowest_limits(clients, step, broadcast):
    check = promises.promised(step, broadcast)
    found = list(Simulator(clients).answers(step, broadcast))
    assert len(found) == 3
    for answer in found:
        check(answer.statistic, Limits(samples=12, bound=1.0), 1)
    check(Simulator(clients).total(step, broadcast).statistic, Limits(samples=12, bound=1.0), 3)


def passes(check, values, samples) -> bool:
    try:
        check(Tally(np.array(values)), Limits(samples=samples), 1)
    except WireError:
        return False
    return True


VALUES = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-3, 30).map(float)


@given(st.lists(VALUES, max_size=2 + len(VARIANTS)), st.integers(1, 40))
def test_hits_are_whole_numbers_up_to_what_was_tested(values, most):
    check = promises.promised(steps.personal(), WITH_HEAD)
    if not passes(check, values, most):
        return
    tested, *hits = values
    assert len(hits) == len(VARIANTS)
    assert all(hit == int(hit) and 0 <= hit <= tested <= most for hit in hits)


@given(st.lists(VALUES, min_size=len(TEMPERATURES) - 1, max_size=len(TEMPERATURES) + 1))
def test_losses_are_as_many_as_temperatures_and_none_beyond_the_largest(values):
    check = promises.promised(steps.calibrate(), WITH_HEAD)
    if not passes(check, values, 5):
        return
    assert len(values) == len(TEMPERATURES)
    assert all(0 <= value <= 5 * steps.MOST * np.log(3) + 1e-6 for value in values)


LIES = {
    "calibrate": [Tally(np.zeros(45)), Tally(np.full(46, 1e300)), Tally(np.full(46, -1.0))],
    "personal": [
        Tally(np.array([5.0] + [6.0] * len(VARIANTS))),
        Tally(np.array([5.0] + [0.5] * len(VARIANTS))),
        Tally(np.array([1e12] * (1 + len(VARIANTS)))),
    ],
    "counts": [
        FedNCM().measure(np.ones((3, 1)), [0, 1, 2], exact=True),
        steps.ClassSums.measure(np.zeros((3, 1)), np.array([0, 1, 2]), sums=False),
    ],
    "measure": [
        Fed3R().measure(np.ones((3, 4)), [0, 1, 2], exact=True, bound=2.0),
        Fed3R().measure(np.ones((3, 4)), [0, 1, 2]),
        FedNCM().measure(np.ones((3, 4)), [0, 1, 2], exact=True, bound=1.0),
    ],
}
ASKED = {
    "calibrate": (steps.calibrate(), WITH_HEAD),
    "personal": (steps.personal(), WITH_HEAD),
    "counts": (steps.counts(), {}),
    "measure": (steps.measure(Fed3R(), exact=True, bound=1.0), {}),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_left_out_and_its_client_named(clients, name):
    step, broadcast = ASKED[name]
    for lie in LIES[name]:
        answers = list(Simulator(clients).answers(step, broadcast))
        mixed = [answers[0], Answer(("liar",), lie), *answers[1:]]
        with pytest.warns(SkippedWarning, match=r"liar: left out: .*\[promise\]"):
            kept = list(promises.sound(mixed, step, broadcast))
        assert [answer.clients for answer in kept] == [("a",), ("b",), ("c",)]


def lying(monkeypatch, lie):
    """The client with 13 samples says this, whatever it is asked."""

    def said(step, client, broadcast):
        return lie if len(client.samples) == 13 else perform(step, client, broadcast)

    monkeypatch.setattr(simulator, "perform", said)


def test_a_simulation_goes_on_without_the_liar(clients, monkeypatch):
    step, broadcast = ASKED["calibrate"]
    honest = Simulator({name: clients[name] for name in "ac"}).total(step, broadcast)
    clients["b"] = ClientData(ArraySamples(np.ones((13, 4)), np.zeros(13, np.int64)))
    lying(monkeypatch, Tally(np.full(46, 1e300)))
    with pytest.warns(SkippedWarning, match="b: left out"):
        total = Simulator(clients).total(step, broadcast)
    assert total.clients == ("a", "c")
    assert total.statistic.digest() == honest.statistic.digest()


def test_a_cluster_goes_on_without_the_liar(clients, monkeypatch):
    """No cluster is needed to see that its answers go through the same check."""
    step, broadcast = ASKED["personal"]
    answers = [*Simulator(clients).answers(step, broadcast), Answer(("x",), LIES["personal"][0])]
    monkeypatch.setattr(RayFederation, "_answers", lambda *asked: iter(answers))
    with pytest.warns(SkippedWarning, match="x: left out"):
        found = list(object.__new__(RayFederation).answers(step, broadcast))
    assert [answer.clients for answer in found] == [("a",), ("b",), ("c",)]


class Kept:
    """A store in which somebody has put another message."""

    def __init__(self, step: Step, messages: dict[str, bytes]) -> None:
        self.step, self._messages = step, messages

    def holds(self, step):
        return step == self.step

    def members(self):
        return [(name,) for name in self._messages]

    def messages(self, wanted):
        return (self._messages[name] for (name,) in wanted)

    def keep(self, answer):
        raise AssertionError("all are known")

    def total(self):
        return None


def test_what_was_kept_is_held_to_the_promise_as_well(clients):
    step, _ = ASKED["measure"]
    kept = {answer.clients[0]: answer.payload for answer in Simulator(clients).answers(step)}
    kept["b"] = LIES["measure"][0].to_bytes()
    recorded = Recorded(Simulator(clients), Kept(step, kept))
    with pytest.warns(SkippedWarning, match="b: left out"):
        total = recorded.total(step)
    assert total.clients == ("a", "c")
    honest = Simulator({name: clients[name] for name in "ac"}).total(step)
    assert total.statistic.digest() == honest.statistic.digest()

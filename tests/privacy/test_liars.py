"""Liars in a private release are refused by name, and what cannot be released fails first."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import headstart as hs
from headstart import HeadstartError
from headstart.errors import SkippedWarning
from headstart.federation import simulator as simulators
from headstart.federation import steps
from headstart.federation.protocol import perform
from headstart.privacy.differential import Private
from headstart.privacy.plan import PrivacyPlan
from headstart.statistics.noisy import NoisySums

from .private_runs import FED3R, simulator
from .private_runs import planned as planned_there

LIAR = "c0"  # who answers first


def planned(epsilon=4.0, **how):
    return planned_there(epsilon, dimension=64, **how)


def with_table(answer, part, value):
    table = np.full_like(answer.tables[part], value)
    return replace(answer, tables={**answer.tables, part: table})


def narrow(answer):
    """An answer of one feature less."""
    d = answer.dimension - 1
    tables = {"counts": answer.tables["counts"], "sums": answer.tables["sums"][:, :d]}
    if "gram" in answer.tables:
        tables["gram"] = answer.tables["gram"][: d * (d + 1) // 2]
    return NoisySums(d, answer.classes, tables, answer.variances)


def fewer(answer):
    """An answer without the last class; the sum of all samples has one class, which is renamed."""
    if len(answer.classes) == 1:
        return replace(answer, classes=answer.classes + 1)
    tables = {**answer.tables, **{p: answer.tables[p][:-1] for p in ("counts", "sums")}}
    return replace(answer, classes=answer.classes[:-1], tables=tables)


@dataclass(frozen=True, eq=False)
class Unreadable:
    """What encodes to bytes that nobody reads."""

    statistic: object
    lattice = None

    def to_bytes(self, precision=None):
        return b"nothing"

    @classmethod
    def from_bytes(cls, data, limits=None):
        return NoisySums.from_bytes(data, limits)


LIES = {
    "dimension": narrow,
    "classes": fewer,
    "direction": lambda a: replace(a, direction=np.ones(a.dimension)),
    "projection": lambda a: replace(a, projection=np.ones((3, a.dimension))),
    "correction": lambda a: replace(a, correction=np.ones((len(a.classes), a.dimension))),
    "variance": lambda a: replace(a, variances={p: v * 1e-3 for p, v in a.variances.items()}),
    "large": lambda a: with_table(a, "sums", 2**62),
    "larger than the plan": lambda a: with_table(a, "counts", 2**40),
    "tables": lambda a: replace(
        a,
        tables={p: t for p, t in a.tables.items() if p != "gram"}
        | ({} if "gram" in a.tables else {"gram": np.zeros(64 * 65 // 2, np.int64)}),
        variances=dict.fromkeys(("counts", "sums"), 1e6)
        | ({} if "gram" in a.tables else {"gram": 1e6}),
    ),
    "bytes": Unreadable,
}


@pytest.fixture
def lie(monkeypatch):
    """The first client spoils its answers."""

    def put(spoil):
        def performed(step, client, broadcast):
            found = perform(step, client, broadcast)
            return spoil(found) if client is liars[0] else found

        asked = simulators.Simulator._client
        liars = [None]

        def client_of(self, name):
            client = asked(self, name)
            if name == LIAR:
                liars[0] = client
            return client

        monkeypatch.setattr(simulators, "perform", performed)
        monkeypatch.setattr(simulators.Simulator, "_client", client_of)

    return put


@pytest.mark.parametrize("unit", ["sample", "client"])
@pytest.mark.parametrize("how", LIES)
def test_a_liar_in_a_release_without_trust_is_named_and_left_out(lie, how, unit):
    lie(LIES[how])
    private = Private(simulator(40), planned(40.0, trust="client", unit=unit))
    with pytest.warns(SkippedWarning, match=f"{LIAR}: left out"):
        found = private.total(FED3R)
    assert LIAR not in found.clients
    assert len(found.clients) == 39
    assert found.statistic.dimension == 64
    assert len(found.statistic.classes) == 10
    noise = private.plan.noise("gram", 40)
    for part, variance in noise.variances.items():
        assert found.statistic.variances[part] == pytest.approx(39 * variance)
    assert private.budget.spent == pytest.approx(private.plan.mu)  # of everybody who was asked
    assert hs.Fed3R().solve(found.statistic).weights.shape == (10, 64)


@pytest.mark.parametrize("unit", ["sample", "client"])
def test_who_answers_a_trusted_server_first_decides_no_dimension(lie, unit):
    def other(answer):
        rows = np.eye(answer.dimension + 1)[: answer.samples]
        labels = np.repeat(answer.classes, answer.counts)[: len(rows)]
        return type(answer).measure(rows, labels, exact=True, bound=1.0, secret=b"0")

    lie(other)
    private = Private(simulator(20), planned(40.0, unit=unit))
    with pytest.warns(SkippedWarning, match=f"{LIAR}: left out"):
        found = private.total(FED3R)
    assert LIAR not in found.clients
    assert len(found.clients) == 19
    assert found.statistic.dimension == 64


def test_a_trusted_server_takes_no_samples_longer_than_one(lie):
    def long(answer):
        rows = np.ones((answer.samples, answer.dimension))
        labels = np.repeat(answer.classes, answer.counts)
        return type(answer).measure(rows, labels, exact=True, bound=1.0, secret=b"0")

    lie(long)
    with pytest.warns(SkippedWarning, match=f"{LIAR}: left out.*unit length"):
        found = Private(simulator(20), planned(40.0)).total(FED3R)
    assert LIAR not in found.clients


def test_honest_clients_of_any_number_are_not_taken_for_liars(recwarn):
    for clients in (1, 3, 300):
        for unit in ("sample", "client"):
            for trust in ("client", "server"):
                plan = planned(0.5, trust=trust, unit=unit)
                found = Private(simulator(clients), plan).total(FED3R)
                assert len(found.clients) == clients
    assert not [w for w in recwarn if issubclass(w.category, SkippedWarning)]


def test_if_all_lie_there_is_no_release_and_the_budget_is_spent(lie, monkeypatch):
    lie(lambda answer: answer)
    monkeypatch.setattr(
        simulators, "perform", lambda step, client, arrays: narrow(perform(step, client, arrays))
    )
    private = Private(simulator(3), planned(trust="client"))
    with (
        pytest.warns(SkippedWarning),
        pytest.raises(HeadstartError, match=r"no client.*charged") as told,
    ):
        private.total(FED3R)
    assert "\n" not in str(told.value)
    assert private.budget.spent > 0


# -- what cannot be released -----------------------------------------------------------------------


class Asked(Exception):
    pass


class Silent:
    """A federation that must not be asked."""

    clients = tuple(f"c{k}" for k in range(6))

    def total(self, *asked):
        raise Asked

    answers = total


UNREACHABLE = {
    "too much noise": {"epsilon": 1e-9, "delta": 1e-14},
    "too much noise in the second message": {"epsilon": 2e-7, "delta": 1e-14, "trust": "client"},
}


@pytest.mark.parametrize("how", UNREACHABLE)
def test_what_cannot_be_released_fails_before_anybody_is_asked(how):
    told = {"samples": 1200, "classes": range(10)} | UNREACHABLE[how]
    with pytest.raises(HeadstartError) as error:
        Private(Silent(), PrivacyPlan(**told)).total(FED3R)
    assert "\n" not in str(error.value)
    assert "epsilon" in str(error.value)


def test_the_largest_epsilon_is_released_and_stated():
    found = Private(simulator(), planned(1000.0)).total(steps.measure(hs.FedNCM(), exact=True))
    assert found.statistic.statement["epsilon"] == 1000

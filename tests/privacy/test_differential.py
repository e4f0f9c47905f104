"""Private heads, drawn once and charged first."""

import itertools

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import headstart as hs
from headstart import HeadstartError
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.privacy import budget as budgets
from headstart.privacy.accountant import epsilon_of, mu_of
from headstart.privacy.budget import Budget
from headstart.privacy.differential import Private
from headstart.privacy.plan import PrivacyPlan
from headstart.privacy.refusals import Abort
from headstart.privacy.sensitivity import unit_rows
from headstart.statistics.noisy import NoisySums

from .private_runs import FED3R, NCM, TRUSTS, X, Y, planned, private, simulator


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("head", [hs.Fed3R(), hs.LDA(), hs.FedNCM()], ids=lambda head: head.name)
def test_a_private_head_is_close_to_the_plain_one(head, trust):
    release = private(trust).total(steps.measure(head, exact=True)).statistic
    assert isinstance(release, NoisySums)
    assert head.solve(release).accuracy(X[1200:], Y[1200:]) > 0.7


def test_unit_client_is_private_with_many_clients():
    plan = planned(8.0, unit="client")
    found = Private(simulator(400), plan).total(NCM).statistic
    assert hs.FedNCM().solve(found).accuracy(X[1200:], Y[1200:]) > 0.6


@pytest.mark.parametrize("head", [hs.Fed3R(), hs.FedNCM()], ids=lambda head: head.name)
def test_the_head_takes_features_as_they_are(head):
    """Its predictions are those of W on features at unit length, without the common direction."""
    release = private().total(steps.measure(head, exact=True)).statistic
    model = head.solve(release)
    rows = X[1200:] - np.outer(X[1200:] @ release.direction, release.direction)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    inside = rows @ model.weights.T
    assert np.array_equal(model.predict(X[1200:]), model.classes[np.argmax(inside, axis=1)])
    assert np.array_equal(model.predict(X[1200:]), model.predict(1e-3 * X[1200:]))
    assert np.abs(model.weights @ release.direction).max() < 1e-9
    assert np.allclose(np.linalg.norm(model.weights, axis=1), 1)


def test_a_private_head_has_no_temperature():
    model = hs.FedNCM().solve(private().total(NCM).statistic)
    for ask in (
        lambda: model.calibrate(X, Y),
        lambda: model.probabilities(X),
        lambda: model.with_prior({1: 5, 2: 3}),
    ):
        with pytest.raises(HeadstartError, match="temperature: a private head has none"):
            ask()
    assert set(model.restrict([1, 2]).predict(X)) == {1, 2}


def test_what_is_common_to_all_is_what_the_first_message_finds():
    release = private(epsilon=8.0).total(NCM).statistic
    mean = unit_rows(X[:1200]).sum(axis=0)
    assert release.direction @ mean / np.linalg.norm(mean) > 0.95


def test_a_release_of_moments_serves_every_head_and_the_rest_is_spent():
    one = private()
    full, again = one.total(FED3R).statistic, one.total(NCM).statistic
    assert full.digest() == again.digest()
    assert one.budget.epsilon(1e-5) == pytest.approx(4.0)
    with pytest.raises(Abort, match="which is left") as refused:
        one.total(FED3R, cohort=one.clients[1:])
    assert refused.value.code == "budget"


def test_noisy_counts_are_floored_and_no_class_is_dropped():
    plan = PrivacyPlan(0.05, 1e-5, range(12), 1200)  # two classes that nobody has
    release = Private(simulator(), plan).total(NCM).statistic
    assert len(release.classes) == 12
    assert (release.counts >= 1).all()
    assert release.samples >= 1
    assert np.isfinite(hs.FedNCM().solve(release).weights).all()


def test_the_rule_of_heads():
    assert planned(8.0).better_head(64, 6) == "fed3r"
    assert planned(0.5).better_head(4096, 6) == "fedncm"
    assert planned(unit="client").signal(64, 6) < planned().signal(64, 6)


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_retry_gives_the_same_bytes_and_other_data_other_noise(tmp_path, trust):
    mu = planned(trust=trust).mu
    first = private(trust, budget=Budget(mu, tmp_path / "one")).total(FED3R).statistic
    again = private(trust, budget=Budget(mu, tmp_path / "one")).total(FED3R).statistic
    other = private(trust, budget=Budget(mu, tmp_path / "two")).total(FED3R).statistic
    assert first.to_bytes() == again.to_bytes()
    same = first.tables["gram"] == other.tables["gram"]
    assert same.mean() < 0.01


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("fatal", range(4))
def test_a_charge_without_a_release_is_possible_a_release_without_a_charge_is_not(
    tmp_path, monkeypatch, trust, fatal
):
    """Killed at each write: (charge, release) of the mean, then of the sums."""
    count = itertools.count()
    write = budgets.write_bytes

    def dying(path, data):
        if next(count) == fatal:
            raise KeyboardInterrupt
        write(path, data)

    plan = planned(trust=trust)
    monkeypatch.setattr(budgets, "write_bytes", dying)
    with pytest.raises(KeyboardInterrupt):
        private(trust, budget=Budget(plan.mu, tmp_path)).total(FED3R)
    monkeypatch.setattr(budgets, "write_bytes", write)
    charges = {file.stem for file in tmp_path.glob("*.json")}
    releases = {file.stem for file in tmp_path.glob("*.safetensors")}
    assert releases <= charges
    later = private(trust, budget=Budget(plan.mu, tmp_path))
    if charges == releases:
        assert later.total(FED3R).statistic.samples > 0
        assert later.budget.spent == pytest.approx(plan.mu)
    else:
        with pytest.raises(Abort, match="cut short"):
            later.total(FED3R)
    assert later.budget.spent <= plan.mu * (1 + 1e-9)


class Spending(RuleBasedStateMachine):
    """Budgets against a plain list of μ²."""

    def __init__(self):
        super().__init__()
        self.budget, self.model = Budget(1.0), {}

    @rule(name=st.sampled_from("abcdef"), mu=st.floats(0.01, 0.9))
    def charge(self, name, mu):
        fits = sum(self.model.values()) + mu**2 <= 1 + 1e-9
        if name in self.model:
            with pytest.raises(HeadstartError, match="a new request"):
                self.budget.charge(name, mu)
        elif fits:
            self.budget.charge(name, mu)
            self.model[name] = mu**2
            self.budget.keep(name, name.encode())
        else:
            with pytest.raises(Abort, match="which is left"):
                self.budget.charge(name, mu)

    @rule(name=st.sampled_from("abcdef"))
    def read(self, name):
        assert self.budget.release(name) == (name.encode() if name in self.model else None)

    @invariant()
    def spent(self):
        assert self.budget.spent**2 == pytest.approx(sum(self.model.values()))
        if self.model:
            assert self.budget.epsilon(1e-5) == pytest.approx(epsilon_of(self.budget.spent, 1e-5))


Spending.TestCase.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)


test_budgets = Spending.TestCase


def test_a_damaged_charge_is_no_charge_of_nothing(tmp_path):
    budget = Budget(1.0, tmp_path)
    budget.charge("a", 0.1)
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(HeadstartError, match="damaged"):
        budget.charge("b", 0.1)


@pytest.mark.parametrize("trust", ["server", "client"])
def test_nobody_is_counted_twice_in_a_release(trust):
    with pytest.raises(HeadstartError, match="each client once"):
        private(trust).total(NCM, cohort=["c0"] * 6)


def test_bytes_of_a_release_do_not_say_how_many_samples_a_client_has():
    def sent(fewer):
        data = dict(simulator().data)
        own = data["c0"].samples
        data["c0"] = ClientData(own.first(12 - fewer))
        return Private(Simulator(data), planned(), Budget(planned().mu)).total(FED3R).up

    assert sent(0) == sent(1) == sent(2)


def test_numbers_that_were_drawn_under_one_plan_are_not_those_of_another():
    budget = Budget(mu_of(8.0, 1e-5))
    Private(simulator(), planned(8.0), budget).total(NCM)
    with pytest.raises(HeadstartError, match="budget"):
        Private(simulator(), planned(0.1, unit="client", trust="client"), budget).total(NCM)

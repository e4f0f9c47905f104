"""Private releases: two messages, one draw, heads that are linear, and what is refused."""

import itertools
import math

import numpy as np
import pytest
import scipy
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sklearn.datasets import load_digits

import headstart as hs
from headstart import HeadstartError
from headstart.data.samples import ArraySamples
from headstart.errors import StepRefusedError, WireError
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.privacy import budget as budgets
from headstart.privacy.accountant import epsilon_of, mu_of
from headstart.privacy.budget import Budget
from headstart.privacy.differential import PrivacyPlan, Private
from headstart.privacy.layout import Layout
from headstart.privacy.masked import Masked
from headstart.privacy.refusals import Abort
from headstart.privacy.sensitivity import Noise, unit_rows
from headstart.privacy.statement import NOT_COVERED, Statement
from headstart.statistics.noisy import NoisySums

from .parties import entropy

X, Y = (np.asarray(part) for part in load_digits(return_X_y=True))
TRUSTS, UNITS = ("server", "secure-sum", "client"), ("sample", "client")
FED3R = steps.measure(hs.Fed3R(), exact=True)
NCM = steps.measure(hs.FedNCM(), exact=True)


def simulator(clients=6, samples=1200):
    parts = np.array_split(np.arange(samples), clients)
    return Simulator(
        {f"c{k}": ClientData(ArraySamples(X[own], Y[own])) for k, own in enumerate(parts)}
    )


def planned(epsilon=4.0, **how):
    return PrivacyPlan(epsilon, 1e-5, range(10), 1200, **how)


def private(trust="server", clients=6, seeded=None, budget=None, **how):
    inner = simulator(clients)
    inner = Masked(inner, clients, range(10)) if trust == "secure-sum" else inner
    plan = planned(trust=trust, **how)
    more = {"entropy": entropy(seeded)} if seeded else {}
    return Private(inner, plan, budget or Budget(plan.mu), **more)


# -- heads -----------------------------------------------------------------------------------------


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


# -- one draw, charged first -----------------------------------------------------------------------


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


# -- the statement ---------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("unit", UNITS)
def test_the_statement_says_what_holds_and_what_not(unit, trust):
    more = {"colluding": 1} if trust == "secure-sum" else {}
    release = private(trust, unit=unit, **more).total(FED3R).statistic
    said = Statement.of_plain(release.statement)
    text = str(said)
    assert (said.unit, said.trust, said.delta) == (unit, trust, 1e-5)
    for piece in (
        f"Unit: {unit}",
        f"add or remove one {unit}",
        "ε = 4 at δ = 1e-05 (μ = 0.9249)",
        "Spent so far: ε = 4",
        f"Trust: {trust}. ",
        "1200 planned samples, dimension 64, the list of 10 classes",
        *NOT_COVERED,
    ):
        assert piece in text
    assert ("persons with more than one sample" in text) == (unit == "sample")
    assert ("4 members of a group" in text) == (trust == "secure-sum")  # 5 of 6, less one
    assert ("a client counts for" in text) == (unit == "client")
    assert sum(said.shares.values()) == pytest.approx(1.0)
    assert said.digest == release.digest()
    noise = math.sqrt({"server": 1, "secure-sum": 6 / 4, "client": 6}[trust])
    plain = planned(trust=trust, unit=unit, **more).noise("gram", 6)
    assert said.sigmas["gram"] == pytest.approx(noise * plain.sigma("gram"))
    model = hs.Fed3R().solve(release)
    again = hs.LinearHead.from_bytes(model.to_bytes())
    assert Statement.of_plain(again.provenance["private"]) == said
    assert again.provenance["total"] == release.digest()
    assert not again.provenance["exact"]


def test_a_large_epsilon_is_called_what_it_is():
    said = Statement.of_plain(private(epsilon=21.0).total(NCM).statistic.statement)
    assert "hardly a promise" in str(said)
    assert not Statement.of_plain(private().total(NCM).statistic.statement).warnings


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0}, "epsilon: expected a number above 0"),
        ({"epsilon": math.inf}, "epsilon: expected a number above 0"),
        ({"delta": 0}, "delta: expected a number between"),
        ({"delta": 1e-3}, "delta: expected at most 1/samples"),
        ({"classes": []}, "classes: expected the list agreed beforehand"),
        ({"unit": "person"}, "unit: expected one of sample, client, got 'person'"),
        ({"trust": "nobody"}, "trust: expected one of server, secure-sum, client"),
        ({"samples": 0}, "samples: expected how many are planned"),
        ({"clip": 2.0}, "clip: expected a number above 0 with unit client"),
        ({"clip": -2.0, "unit": "client"}, "clip: expected a number above 0"),
        ({"colluding": 1}, "colluding: expected 0 but for trust secure-sum"),
        ({"colluding": -1, "trust": "secure-sum"}, "colluding: expected 0 or more"),
    ],
)
def test_plans_that_promise_nothing_are_refused(change, said):
    how = {"epsilon": 1.0, "delta": 1e-5, "classes": range(10), "samples": 1200, **change}
    with pytest.raises(HeadstartError, match=said):
        PrivacyPlan(**how)


@pytest.mark.parametrize(
    "step", [steps.calibrate(), steps.personal(), steps.counts()], ids=lambda step: step.name
)
def test_other_questions_are_refused(step):
    with pytest.raises(StepRefusedError, match=f"noise can hide.*got '{step.name}'"):
        private().total(step)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (hs.FedCOF(), "expected a head that is solved from noisy sums"),
        (hs.SharedVariances(), "expected a head that is solved from noisy sums"),
        (hs.Fed3R(ridge="gcv"), "got 'gcv': .* λ follows from the noise"),
    ],
)
def test_heads_that_noise_would_ruin_are_refused(head, said):
    one = private()
    with pytest.raises(HeadstartError, match=said):
        one.total(steps.measure(head, exact=True))
    assert not one.budget.charges


@pytest.mark.parametrize(
    "head", [hs.Fed3R(bias=True), hs.Fed3R(scatter="within"), hs.LDA(covariance="total")]
)
def test_settings_that_mean_nothing_on_noisy_sums_are_refused(head):
    release = private().total(FED3R).statistic
    with pytest.raises(HeadstartError, match="with noisy sums, got"):
        head.solve(release)


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_class_that_is_not_on_the_list_is_refused_and_not_named(trust):
    inner = simulator()
    inner = Masked(inner, 6, range(9)) if trust == "secure-sum" else inner
    plan = PrivacyPlan(4.0, 1e-5, range(9), 1200, trust=trust)
    with pytest.raises(HeadstartError, match="9 classes agreed beforehand, got others") as refused:
        Private(inner, plan).total(NCM)
    assert "9 too" not in str(refused.value)


def test_trust_in_masks_needs_masks_and_trust_in_nobody_needs_none():
    with pytest.raises(StepRefusedError, match="expected a masked group"):
        Private(simulator(), planned(trust="secure-sum")).total(NCM)
    with pytest.raises(StepRefusedError, match="got all of it"):
        Private(Masked(simulator(), 6, range(10)), planned(trust="client")).total(NCM)
    with pytest.raises(HeadstartError, match="answers of single clients to clip"):
        Private(Masked(simulator(), 6, range(10)), planned(unit="client")).total(NCM)


def test_class_means_hold_no_second_moments():
    with pytest.raises(HeadstartError, match="expected second moments"):
        hs.Fed3R().solve(private().total(NCM).statistic)


# -- the statistic ---------------------------------------------------------------------------------


def test_noisy_sums_add_and_do_not_subtract():
    one, two = (private(seeded=name).total(FED3R).statistic for name in ("a", "b"))
    two = NoisySums(two.dimension, two.classes, two.tables, two.variances, one.direction)
    both = one + two
    assert both.sigma("gram") == pytest.approx(math.sqrt(2) * one.sigma("gram"))
    assert np.array_equal(both.tables["sums"], one.tables["sums"] + two.tables["sums"])
    assert not hasattr(one, "__sub__")
    assert not both.statement
    with pytest.raises(HeadstartError, match="those of one release"):
        _ = one + private().total(FED3R).statistic  # another direction
    again = NoisySums.from_bytes(one.to_bytes())
    assert again.digest() == one.digest()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"sums": np.full((10, 64), 2**62 + 1)}, "bound"),
        ({"gram": np.zeros(7, np.int64)}, "shape"),
        ({"variances": np.array([1.0, 1.0])}, "shape"),
        ({"variances": np.array([1.0, 1.0, -1.0])}, "shape"),
        ({"counts": np.zeros(9, np.int64)}, "shape"),
        ({"direction": np.full(64, np.nan)}, "nonfinite"),
        ({"more": np.zeros(1)}, "arrays"),
    ],
)
def test_only_range_and_shape_of_noisy_sums_are_checked(change, code):
    arrays = private().total(FED3R).statistic.to_arrays()
    assert NoisySums.from_arrays(arrays).samples
    with pytest.raises(WireError) as refused:
        NoisySums.from_arrays({**arrays, **change})
    assert refused.value.code == code


# -- audit -----------------------------------------------------------------------------------------


def scores(noise, numbers, layout, difference, releases, seed):
    """Log-likelihood ratios of releases of `numbers` for and against the sample, up to a shift."""
    draw = entropy(seed)
    found = np.empty(releases)
    spread = np.concatenate(
        [np.full(3, noise.variances["counts"]), np.full(6, noise.variances["sums"])]
    )
    for at in range(releases):
        found[at] = (noise.added(layout, numbers, draw) * difference / spread).sum()
    return found


def lower_bound(with_, without, delta):
    """Clopper–Pearson's ε at 99.9% of a threshold chosen on the first half."""
    one, two = len(with_) // 2, len(without) // 2
    cut = np.quantile(without[:two], [0.5, 0.8, 0.9, 0.95, 0.98])
    best = max(cut, key=lambda t: np.mean(with_[:one] > t) / (np.mean(without[:two] > t) + 1e-3))
    hits, alarms = (with_[one:] > best).sum(), (without[two:] > best).sum()
    low = scipy.stats.beta.ppf(0.001, hits, len(with_) - one - hits + 1)
    high = scipy.stats.beta.ppf(0.999, alarms + 1, len(without) - two - alarms)
    return math.log(max(low - delta, 1e-12) / high)


LONG = [pytest.param(e, 20_000, marks=pytest.mark.long) for e in (0.5, 1.0, 2.0, 4.0, 8.0)]


@pytest.mark.parametrize(("epsilon", "releases"), [(1.0, 4000), (4.0, 4000), *LONG])
@pytest.mark.parametrize("mutant", [False, True])
def test_audit(epsilon, releases, mutant):
    """The strongest attack, white box, on a neighbouring pair; half the noise is found out."""
    mu, delta = mu_of(epsilon, 1e-5), 1e-5
    noise = Noise.plan(mu, {"counts": 0.01, "sums": 0.99})
    z, y = unit_rows(np.array([[1.0, 2.0], [3.0, 1.0], [-1.0, 5.0]])), np.arange(3)
    head = hs.FedNCM()
    layout = Layout.of(head.measure(z, y, exact=True, bound=1.0), range(3))
    whole, less = (
        noise.vector(layout, head.measure(z[:n], y[:n], exact=True, bound=1.0)) for n in (3, 2)
    )
    real = Noise({k: v // 4 for k, v in noise.variances.items()}, mu) if mutant else noise
    with_, without = (
        scores(real, numbers, layout, whole - less, releases, f"{epsilon} {n}")
        for n, numbers in enumerate((whole, less))
    )
    pooled = math.sqrt((with_.var() + without.var()) / 2)
    found = (with_.mean() - without.mean()) / pooled
    error = math.sqrt((2 + found**2 / 4) / releases)
    if mutant:
        assert found - mu > 3 * error
    else:
        assert abs(found - mu) <= 3 * error
        assert lower_bound(with_, without, delta) <= epsilon


# -- what strangers tried --------------------------------------------------------------------------


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

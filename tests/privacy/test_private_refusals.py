"""Plans, heads and settings that would promise nothing are refused."""

import math

import pytest

import headstart as hs
from headstart import HeadstartError
from headstart.errors import StepRefusedError
from headstart.federation import steps
from headstart.privacy.differential import Private
from headstart.privacy.masked import Masked
from headstart.privacy.plan import PrivacyPlan
from headstart.privacy.statement import Statement

from .private_runs import FED3R, NCM, TRUSTS, planned, private, simulator


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0}, "epsilon: expected a number above 0"),
        ({"epsilon": math.inf}, "epsilon: expected a number above 0"),
        ({"delta": 0}, "delta: expected a number between"),
        ({"delta": 1e-3}, "delta: expected at most 1/samples"),
        ({"classes": []}, "classes: expected the list agreed beforehand"),
        ({"unit": "person"}, "unit: expected one of sample, image, client, got 'person'"),
        ({"trust": "nobody"}, "trust: expected one of server, secure-sum, client"),
        ({"samples": 0}, "samples: expected how many are planned"),
        ({"samples": 10**400}, "samples: expected how many are planned"),
        ({"samples": 1e3}, "samples: expected how many are planned"),
        ({"clip": 1e300, "unit": "client"}, "clip: expected a number above 0"),
        ({"clip": math.nan, "unit": "client"}, "clip: expected a number above 0"),
        ({"classes": ["a", 1]}, "classes: expected all integers or all strings"),
        ({"dimension": 0}, "dimension: expected 1 or more"),
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


def test_a_delta_that_promises_nothing_is_allowed_to_the_careless_and_said():
    one = private(delta=1e-3, careless=True)
    assert "to publish one sample whole would be as private" in str(
        Statement.of_plain(one.total(NCM).statistic.statement)
    )


@pytest.mark.parametrize(
    ("epsilon", "delta", "said"),
    [
        (1e-13, 1e-300, "epsilon: expected a larger one, or a larger δ"),
        (1e-300, 5e-324, "epsilon: expected a larger one, or a larger δ"),
        (1e4, 1e-5, "epsilon: expected a number above 0 .to 1000"),
        (True, 1e-5, "epsilon: expected a number above 0"),
        (1.0, math.nan, "delta: expected a number between 0 and 1"),
        (1.0, 1 - 1e-17, "delta: expected a number between 0 and 1"),
        ("2", 1e-5, "epsilon: expected a number above 0"),
    ],
)
def test_numbers_at_the_edges_are_one_line(epsilon, delta, said):
    with pytest.raises(HeadstartError, match=said):
        PrivacyPlan(epsilon, delta, range(10), 1)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 1e-12, "delta": 1e-12},
        {"epsilon": 1000.0, "unit": "client", "clip": 1e-300},
        {"unit": "client", "clip": 2.0**32},
    ],
)
def test_noise_that_cannot_be_drawn_is_refused_before_anybody_is_asked(change):
    one = private(clients=6, **{"epsilon": 4.0, **change})

    class Nobody:
        clients = one.clients

        def __getattr__(self, name):
            raise AssertionError(f"{name}: was asked")

    unasked = Private(Nobody(), one.plan, one.budget)
    with pytest.raises(HeadstartError, match="needs noise that cannot be drawn"):
        unasked.total(FED3R)
    assert not one.budget.charges


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
    "head",
    [
        hs.Fed3R(bias=True),
        hs.Fed3R(scatter="within"),
        hs.LDA(covariance="total"),
        hs.LDA(prior=False),
    ],
)
def test_settings_that_mean_nothing_on_noisy_sums_are_refused(head):
    one = private()
    with pytest.raises(HeadstartError, match="with noisy sums, got"):
        one.total(steps.measure(head, exact=True))
    assert not one.budget.charges  # nothing was spent on it
    release = one.total(FED3R).statistic
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

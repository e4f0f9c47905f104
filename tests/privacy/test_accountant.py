"""ε, δ and μ: exact, by integration and by the table of an accountant of privacy losses."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import HeadstartError
from headstart.privacy.accountant import composed, delta_of, epsilon_of, log_delta, mu_of

EPSILONS = st.floats(0.05, 20)
DELTAS = st.floats(-10, -3).map(lambda power: 10.0**power)
# (ε, δ): σ = 1/μ of the PLD accountant of dp-accounting 0.6 (tests/oracles computes it anew)
PLD = {
    (0.5, 1e-5): 7.0318,
    (1, 1e-5): 3.7306,
    (2, 1e-5): 1.9938,
    (4, 1e-5): 1.0812,
    (8, 1e-5): 0.6002,
}


@settings(max_examples=100, deadline=None)
@given(epsilon=EPSILONS, delta=DELTAS)
def test_mu_and_epsilon_are_inverse(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert math.isclose(epsilon_of(mu, delta), epsilon, rel_tol=1e-9)
    assert math.isclose(delta_of(epsilon, mu), delta, rel_tol=1e-9)


@settings(max_examples=40, deadline=None)
@given(epsilon=st.floats(0.05, 8), mu=st.floats(0.05, 3))
def test_delta_is_the_hockey_stick_of_two_gaussians(epsilon, mu):
    """δ(ε) = ∫ (p(x) − e^ε·q(x))₊ dx with p and q one deviation apart."""

    def excess(x):
        p, q = (scipy.stats.norm.pdf(x, mean) for mean in (mu, 0.0))
        return p - math.exp(epsilon) * q

    where = epsilon / mu + mu / 2  # the densities' ratio is e^ε there
    found, error = scipy.integrate.quad(excess, where, where + 40, epsabs=0, limit=400)
    assert delta_of(epsilon, mu) == pytest.approx(found, rel=1e-6, abs=10 * error)


@pytest.mark.parametrize(("known", "sigma"), PLD.items())
def test_it_agrees_with_a_pld_accountant(known, sigma):
    assert 1 / mu_of(*known) == pytest.approx(sigma, rel=1e-3)


@given(mus=st.lists(st.floats(0.01, 1), min_size=1, max_size=50))
def test_releases_compose_by_squares(mus):
    assert composed(mus) == pytest.approx(float(np.linalg.norm(mus)))


def test_more_noise_is_more_private_down_to_nothing():
    values = [epsilon_of(mu, 1e-5) for mu in (2.0, 1.0, 0.1, 1e-3, 1e-6)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0.0  # any ε does
    assert log_delta(500.0, 1.0) < -1e5  # far below what a float of δ could hold


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "2", True, 1e9])
def test_an_epsilon_that_promises_nothing_is_refused(epsilon):
    with pytest.raises(HeadstartError, match="epsilon: expected"):
        mu_of(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, math.nan, 2])
def test_a_delta_outside_its_range_is_refused(delta):
    with pytest.raises(HeadstartError, match="delta: expected a number between 0 and 1"):
        mu_of(1.0, delta)

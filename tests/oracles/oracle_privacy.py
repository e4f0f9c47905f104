"""Ours next to libraries that others have audited: `make test-oracles`."""

import math

import dp_accounting
import numpy as np
import opendp.prelude as dp
import pytest
import scipy
from dp_accounting.pld import PLDAccountant

from headstart.privacy.accountant import composed, epsilon_of, mu_of
from headstart.privacy.noise import discrete_gaussian

dp.enable_features("contrib")


def by_pld(mus, delta):
    """ε of Gaussian releases, by privacy loss distributions."""
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for mu in mus:
        accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8, 1e-10])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1, 2, 4, 8, 20])
def test_epsilon_is_that_of_a_pld_accountant(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert by_pld([mu], delta) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize("releases", [2, 3, 10, 50])
def test_composed_releases_too(releases):
    mus = np.linspace(0.05, 0.3, releases).tolist()
    assert by_pld(mus, 1e-5) == pytest.approx(epsilon_of(composed(mus), 1e-5), rel=1e-3)


@pytest.mark.parametrize("sigma", [64, 5000, 4 * 10**9])
def test_draws_are_distributed_as_opendps(sigma):
    """Kolmogorov–Smirnov on two samples; OpenDP in 64 bits, for in 32 it saturates silently."""
    space = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
    release = dp.m.make_gaussian(*space, scale=float(sigma))
    theirs = [release(0) for _ in range(5000)]
    ours = discrete_gaussian(sigma**2, 50_000)
    assert scipy.stats.ks_2samp(ours, theirs).pvalue > 1e-4
    assert np.std(theirs) == pytest.approx(sigma, rel=0.05)
    assert math.isclose(np.std(ours), sigma, rel_tol=0.02)

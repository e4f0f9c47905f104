"""An audit from outside: the noise keeps the promised ε, and a mutant does not."""

import math

import numpy as np
import pytest
import scipy

import headstart as hs
from headstart.privacy.accountant import mu_of
from headstart.privacy.layout import Layout
from headstart.privacy.sensitivity import Noise, unit_rows

from .parties import entropy


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

"""What Gaussian noise promises: δ of ε, exactly, for one release or many (Balle and Wang 2018).

A Gaussian of deviation σ on a sum that one unit moves by Δ is μ-GDP with μ = Δ/σ (Dong, Roth and
Su 2022): δ(ε) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2), with equality. Releases compose by
μ² = Σ μ_i², exactly, also when later ones depend on earlier ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import scipy

from headstart.errors import HeadstartError

_MOST = 1e3  # of ε and μ: beyond, nothing is promised that anybody could want


def log_delta(epsilon: float, mu: float) -> float:
    """log δ(ε) of a μ-GDP release; −∞ where it underflows."""
    # e^ε·φ(b) = φ(a): both terms share a density, and Mills' ratios are left to subtract.
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    upper, lower = (scipy.special.log_ndtr(-x) for x in (a, b))
    gap = epsilon + lower - upper
    return float(upper + np.log(-np.expm1(gap))) if gap < 0 else -math.inf


def delta_of(epsilon: float, mu: float) -> float:
    """δ of a μ-GDP release at this ε."""
    return math.exp(log_delta(_positive("epsilon", epsilon), _positive("mu", mu)))


def mu_of(epsilon: float, delta: float) -> float:
    """The largest μ of a release that is (ε, δ)-differentially private."""
    target = math.log(_share("delta", delta))
    epsilon = _positive("epsilon", epsilon)
    return _root(lambda mu: log_delta(epsilon, mu) - target, "epsilon", epsilon)


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest ε at which a μ-GDP release has this δ; 0 where any ε does."""
    target = math.log(_share("delta", delta))
    if _positive("mu", mu) and log_delta(1e-12, mu) <= target:
        return 0.0
    # Twice as far as ε may be chosen: the μ of the largest, rounded, is one that can be stated.
    return _root(lambda epsilon: target - log_delta(epsilon, mu), "mu", mu, 2 * _MOST)


def composed(mus: Iterable[float]) -> float:
    """μ of several releases over the same data: the root of Σμ²."""
    return math.sqrt(math.fsum(mu * mu for mu in mus))


def _root(rising: Callable[[float], float], name: str, value: float, most: float = _MOST) -> float:
    """Where a function that rises from below 0 crosses it, on a scale of logarithms."""
    low, high = math.log(1e-12), math.log(most)
    if not rising(math.exp(high)) >= 0:
        raise HeadstartError(f"{name}: expected at most {_MOST:g}, got {value:g}")

    def bounded(x: float) -> float:
        return max(rising(math.exp(x)), -1e300)

    if bounded(low) > 0:
        raise HeadstartError(f"{name}: expected a larger one, or a larger δ, got {value:g}")
    return math.exp(float(scipy.optimize.brentq(bounded, low, high, xtol=1e-13, rtol=1e-14)))


def _positive(name: str, value: float) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= _MOST:
        raise HeadstartError(f"{name}: expected a number above 0 (to {_MOST:g}), got {value!r}")
    return float(value)


def _share(name: str, value: float) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise HeadstartError(f"{name}: expected a number between 0 and 1, got {value!r}")
    return float(value)

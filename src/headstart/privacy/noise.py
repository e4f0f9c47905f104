"""Discrete Gaussian noise from a CSPRNG: N_Z(σ²), P(x) ∝ exp(−x²/2σ²) over the whole numbers.

Floating-point Gaussians leak through their low bits; whole numbers have none. A wide one is a chain
x = Σ_j 16^j·x_j of narrow ones, x_j ~ N_Z(σ²/Σ_j 256^j), of deviation 32 or more each, drawn from
tables of their distribution functions in 128 bits. Given the sum, x_j has a deviation of about two
of its steps of 16^(j+1), so by Poisson summation the chain is N_Z(σ²) up to a factor
1 ± 4e^(−8π²) = 1 ± 2·10⁻³⁴ (Peikert's convolution lemma).

In the same way N_Z(s²) is post-processing of a continuous Gaussian of variance s² − 4 and N_Z(4)
around it: the exact accountant of continuous Gaussians may be used with s² − 4 (`LOST`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headstart.errors import HeadstartError

Entropy = Callable[[int], bytes]
LOST = 4  # of the variance: what N_Z(s²) is less private than a continuous Gaussian by
LEAST = 64**2  # variance below which the lattice would be too coarse for its noise
REACH = 40  # deviations that no draw leaves: e^(−800)
_BASE, _NARROW = 16, 32**2
_BITS = 128
_DIGITS = 60
_CHUNK = 2**18  # draws: their words and places stay in the cache

Whole = NDArray[np.int64]


def discrete_gaussian(
    variance: int, size: int, entropy: Entropy = secrets.token_bytes
) -> NDArray[np.int64]:
    """`size` draws of N_Z(variance); the same bytes of `entropy` give the same draws."""
    if not isinstance(variance, int) or variance < LEAST:
        raise HeadstartError(f"variance: expected a whole number from {LEAST}, got {variance!r}")
    if REACH**2 * variance > 2**122:
        raise HeadstartError(f"variance: expected noise within 61 bits, got {variance!r}")
    levels = _levels(variance)
    table = _table(Fraction(variance, sum(_BASE ** (2 * j) for j in range(levels))))
    total = np.zeros(size, np.int64)
    for start in range(0, size, _CHUNK):
        part = total[start : start + _CHUNK]
        for j in range(levels):
            part += _BASE**j * table.draw(len(part), entropy)
    return total


def _levels(variance: int) -> int:
    """As many as leave each link of the chain a deviation of 32."""
    levels, weight = 1, 1
    while variance >= _NARROW * (weight + _BASE ** (2 * levels)):
        weight += _BASE ** (2 * levels)
        levels += 1
    return levels


class Table(NamedTuple):
    """P(X ≤ x) in units of 2⁻¹²⁸, for x from `first` on: its upper words, and all of it."""

    first: int
    upper: NDArray[np.uint64]
    whole: tuple[int, ...]

    def draw(self, size: int, entropy: Entropy) -> NDArray[np.int64]:
        """The least x with 128 random bits below P(X ≤ x)."""
        words = np.frombuffer(entropy(8 * size), "<u8")
        at = np.searchsorted(self.upper, words, side="right")
        # The upper word decides, unless it is one of the table's own: then the lower one does.
        for i in np.flatnonzero(self.upper[np.maximum(at, 1) - 1] == words):
            exact = (int(words[i]) << 64) | int.from_bytes(entropy(8), "little")
            at[i] = next(k for k, bound in enumerate(self.whole) if exact < bound)
        return at.astype(np.int64) + self.first


@lru_cache(maxsize=16)
def _table(variance: Fraction) -> Table:
    """Of one link; every entry is right to the last of its 128 bits but one."""
    context = Context(prec=_DIGITS)
    whole = sum(masses := _masses(variance, context), Decimal(0))
    bounds, below = [], Decimal(0)
    for mass in masses:
        below = context.add(below, mass)
        bounds.append(int(context.multiply(context.divide(below, whole), Decimal(2**_BITS))))
    bounds[-1] = 2**_BITS
    upper = np.array([min(bound >> 64, 2**64 - 1) for bound in bounds], np.uint64)
    return Table(-(len(masses) // 2), upper, tuple(bounds))


def _masses(variance: Fraction, context: Context) -> list[Decimal]:
    """exp(−x²/2σ²) for all x at which it reaches 2⁻¹²⁸; each from the last by one product."""
    inverse = context.divide(Decimal(variance.denominator), Decimal(variance.numerator))
    ratio = context.exp(-inverse / 2)  # e^(−(2x+1)/2σ²) at x = 0
    shrink = context.exp(-inverse)
    least = context.power(Decimal(2), -_BITS - 1)
    half, mass = [], Decimal(1)
    while mass >= least:
        half.append(mass)
        mass = context.multiply(mass, ratio)
        ratio = context.multiply(ratio, shrink)
    return half[:0:-1] + half


def table_error(draws: int, variance: int) -> float:
    """What tables of 128 bits add to δ in so many draws of this variance, at most."""
    links: Any = _levels(variance) * draws
    return float(links * 2.0**14 * 2.0**-_BITS)

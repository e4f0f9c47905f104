"""Exact integers: features on a public lattice, so that sums are the same bits whatever the split.

z ↦ round(z / step), step = bound / (2^(b−1) − 1). Products of two such integers and their sums over
n samples stay below n·2^(2b−2); float64 BLAS adds them without error below 2^53, int64 below 2^63.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError

BITS = 16
LEVELS = 2 ** (BITS - 1) - 1
CHUNK = 2**20  # rows of one float64 product: 2^20 · 2^30 < 2^53
FACTOR_ROWS = 2**12  # of factors in one product: they are not whole, and rounding grows with sums
MOST_SAMPLES = 2 ** (62 - (2 * BITS - 2))  # n · 2^(2b−2) ≤ 2^62


@dataclass(frozen=True)
class Lattice:
    """The public grid of an exact federation: every client must use the same one."""

    bound: float = 16.0

    def __post_init__(self) -> None:
        is_number = isinstance(self.bound, (int, float, np.number))
        if not (is_number and 1e-100 < float(self.bound) < 1e100):  # its square must stay a number
            raise DataError(f"bound: expected a number above 0 (to 1e100), got {self.bound!r}")
        object.__setattr__(self, "bound", float(self.bound))  # 8 and 8.0 have one digest

    @property
    def step(self) -> float:
        return float(self.bound / LEVELS)

    def quantize(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        """Features as whole numbers (in float64, ready for BLAS); beyond the bound is an error."""
        largest = float(np.max(np.abs(features), initial=0.0))
        if largest > self.bound:
            raise DataError(
                f"features: exact mode expects values within ±bound = ±{self.bound:g}, got "
                f"{largest:g}; scale the features or give all clients a larger bound"
            )
        return np.rint(np.asarray(features, np.float64) / self.step)


def bound_for(features: NDArray[np.floating]) -> float:
    """The least power of two that these features stay in."""
    largest = float(np.abs(features).max(initial=0.0))
    return float(2.0 ** np.ceil(np.log2(largest))) if largest > 0 else 1.0


def check_total(n: int) -> None:
    """Refuse a sum that could leave 62 bits."""
    if n > MOST_SAMPLES:
        raise DataError(f"exact total: expected at most {MOST_SAMPLES} samples, got {n}")

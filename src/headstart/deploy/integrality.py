"""Exact factors give whole numbers in every product, not only where the wire checks.

The wire checks diag(A) and B of a factor R; the rest of A = RᵀR it would see only when it folds,
many clients at once, too late to refuse one. A product a client is too dear (n·d² for each), and
not needed: if some A_ij is ε away from a whole number, then for v of random zeros and ones A·v is
at least ε/2 away in row i with probability 1/2 (of v with v_j = 0 and v with v_j = 1 one shows it;
after Freivalds 1977). With 40 vectors that nobody outside knows, one in 10¹² gets through. A
message that does not pass them is multiplied out: rounding is never a reason to refuse.

Whole numbers may still be nobody's: [A Bᵀ; B diag g] must be positive, and of rank n at most. The
wire checks that in float64, which cannot tell 0 from −1/2⁵³. Where few features make it cheap it
is decided here, in whole numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import WireError
from headstart.statistics.exact import FACTOR_ROWS
from headstart.statistics.moments import Moments
from headstart.statistics.parts import Factor, Gram

_VECTORS = 40
_STRIPE = 64
_LARGEST = 0.2  # a fold of FACTOR_ROWS rows refuses 0.25, rounding included
_DECIDED = 32  # features and classes together


class Integrality:
    """The check of the uploads of one federation."""

    def __init__(self, dimension: int) -> None:
        rng = np.random.default_rng()  # from the system: to guess them is to guess 40 bits per row
        self._probes = rng.integers(0, 2, (dimension, _VECTORS)).astype(np.float64)

    def check(self, upload: Any) -> None:
        """`WireError`: integral, for products that are not whole; impossible, for nobody's."""
        if not isinstance(upload, Moments) or upload.lattice is None:
            return
        for part in upload._parts:
            if isinstance(part, Factor) and len(part):
                self._check(part)
        if upload.dimension + len(upload.classes) <= _DECIDED and not _possible(upload.whole()):
            raise WireError("impossible", "exact statistics: not the moments of any samples")

    def _check(self, factor: Factor) -> None:
        rows, labels = factor.rows(), factor.labels()
        allowed = min(_LARGEST, len(rows) * _LARGEST / FACTOR_ROWS)  # what a fold of many can bear
        if _distance(labels.T @ rows) > _LARGEST:
            raise WireError("integral", "exact factor: its class sums are not whole numbers")
        if _distance((rows @ self._probes).T @ rows) <= allowed / 2:
            return
        for start in range(0, rows.shape[1], _STRIPE):
            if _distance(rows[:, start : start + _STRIPE].T @ rows[:, start:]) > allowed:
                raise WireError("integral", "exact factor: its products are not whole numbers")


def _possible(gram: Gram) -> bool:
    """Whether the joint Gram is positive and of rank n at most, by elimination without fractions.

    (Bareiss 1968: every entry stays a minor, a whole number, and a pivot has the sign of a
    principal one.)
    """
    upper = np.triu(gram.a)
    a = upper + np.triu(upper, 1).T
    left = np.block([[np.diag(gram.counts), gram.b], [gram.b.T, a]]).astype(object)
    n, pivots, last = int(gram.counts.sum()), 0, 1
    while left.size:
        diagonal = np.diagonal(left)
        if (diagonal < 0).any():
            return False
        at = int(np.argmax(diagonal > 0))
        if diagonal[at] == 0:
            return not left.any()
        pivots += 1
        if pivots > n:
            return False
        kept = np.arange(len(left)) != at
        row, pivot = left[at, kept], left[at, at]
        left = (left[np.ix_(kept, kept)] * pivot - np.outer(row, row)) // last
        last = pivot
    return True


def _distance(values: NDArray[np.float64]) -> float:
    """How far the worst is from a whole number."""
    return float(np.abs(values - np.rint(values)).max(initial=0.0))

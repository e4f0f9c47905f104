"""Heads from noisy sums: what is done to a private release before and after it is solved.

The noise on A is a symmetric matrix of spectral edge σ_A√(2d): negative eigenvalues are taken to 0
and λ = σ_A√(2d) is added, so that no direction is trusted in which A could be noise alone. Rows of
W have unit length and no bias, for features are of unit length themselves; what all features had in
common was taken out of them, and is taken out of W.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from headstart.errors import HeadstartError
from headstart.heads.linear import LinearHead
from headstart.heads.provenance import provenance
from headstart.heads.ridge import solve, unit_rows
from headstart.statistics.noisy import NoisySums

Array = NDArray[np.float64]


def edge(total: NoisySums) -> float:
    """The largest eigenvalue that noise alone gives A."""
    return total.sigma("gram") * float(np.sqrt(2 * total.dimension))


def positive(matrix: Array) -> Array:
    """The nearest matrix without negative eigenvalues."""
    values, vectors = scipy.linalg.eigh(matrix, check_finite=False, driver="evd")
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def ridge_head(head: Any, total: NoisySums, matrix: Array, ridge: float = 0.0) -> LinearHead:
    """(M₊ + λI)⁻¹Bᵀ with λ = `ridge` + σ_A√(2d)."""
    shrunk = ridge + edge(total)
    weights = solve(positive(matrix), total.class_sums(), shrunk)
    return unit_head(head, total, weights, ridge=shrunk)


def unit_head(head: Any, total: NoisySums, weights: Array, **solved: float) -> LinearHead:
    """Rows at unit length, which take features of any length.

    What a third message corrects in them is added, and what a projection took away is 0.
    """
    weights = unit_weights(total, weights)
    if total.correction is not None:
        weights = _apart(total, weights + total.correction)
    if total.projection is not None:
        weights = weights @ total.projection.T
    about = provenance(head, total, **solved)
    return LinearHead(weights, np.zeros(len(weights)), total.classes, provenance=about)


def unit_weights(total: NoisySums, weights: Array) -> Array:
    """Rows at unit length, without what all features had in common."""
    weights = _apart(total, weights)
    return np.asarray(weights / unit_rows(weights)[:, None])


def _apart(total: NoisySums, weights: Array) -> Array:
    if total.direction is None:
        return weights
    return weights - np.outer(weights @ total.direction, total.direction)


def refuse_settings(head: Any, *names: str) -> None:
    """Refuse settings of a head that mean nothing on noisy sums."""
    for name in names:
        usual = type(head).__dataclass_fields__[name].default
        if getattr(head, name) != usual:
            value = getattr(head, name)
            raise HeadstartError(f"{name}: expected {usual!r} with noisy sums, got {value!r}")

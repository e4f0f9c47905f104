"""Residual: a third message, what the class means leave unexplained (ours).

Of the released class means W₁ (rows of unit length) the server broadcasts the matrix, and clients
add up one more matrix per sample,

    D = Σ clip₁(y − softmax(16·W₁z)) zᵀ,      W = W₁ + 0.3·(C/n)·D

one gradient step of a softmax head from W₁. ‖clip₁(·)·zᵀ‖ ≤ ‖z‖ ≤ 1, so it is a sum of vectors of
C·d numbers and of unit length at most, like that of the first message: noise, masks, shares and
charges are the same. W₁ is released already, so μ² adds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError
from headstart.labels import Labels
from headstart.privacy.sensitivity import BOUND
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.exact import LEVELS, Lattice
from headstart.statistics.noisy import NoisySums

SHARPNESS, STEP = 16.0, 0.3
_LONGEST = 1 + 1e-6  # of a row of W₁, more than rounding
_BELOW = 1 - 1e-9  # of the length 1: more than the rounding of a product
_BLOCK = 2**22  # numbers of samples' matrices that are in memory at once
Array = NDArray[np.float64]


def unexplained(row: Array, place: int, weights: Array) -> Array:
    """clip₁(y − softmax(16·Wz)) of one sample; `place`: its class's."""
    scores = SHARPNESS * (weights @ row)
    likely = np.exp(scores - scores.max())
    left = -likely / likely.sum()
    left[place] += 1.0
    return np.asarray(left * (_BELOW / max(1.0, float(np.linalg.norm(left)))))


def residual_sums(rows: Array, labels: Labels, classes: Labels, weights: Array) -> ClassSums:
    """D of these samples (`unit_rows`), as the sum of one class, in whole numbers towards zero.

    A sample at a time, in memory of its own: a product of many would round each by the others.
    """
    shape = len(classes), rows.shape[1]
    if weights.shape != shape or not np.isfinite(weights).all():
        raise DataError(f"weights: expected {shape[0]}×{shape[1]} numbers, got {weights.shape}")
    if np.abs(weights).max(initial=0.0) > _LONGEST:  # else scores that overflow would show samples
        raise DataError("weights: expected rows of unit length, got longer ones")
    if not len(rows):  # of no class, as sums of no samples are
        return ClassSums.measure(np.zeros((0, weights.size)), labels, exact=True, bound=BOUND)
    left, row = np.empty((len(rows), len(classes))), np.empty(rows.shape[1])
    for at, place in enumerate(np.searchsorted(classes, labels).tolist()):
        row[:] = rows[at]
        left[at] = unexplained(row, place, weights)
    total, size = np.zeros(shape), max(1, _BLOCK // (shape[0] * shape[1]))
    for start in range(0, len(rows), size):
        own = slice(start, start + size)
        products = left[own, :, None] * rows[own, None, :]
        products *= LEVELS
        total += np.trunc(products, out=products).sum(axis=0)
    return ClassSums(
        total.size,
        classes[:1],
        np.array([len(rows)], np.int64),
        {"sums": total.reshape(1, -1).astype(np.int64)},
        Lattice(BOUND),
    )


def correction(release: NoisySums, classes: int) -> Array:
    """What is added to W₁: 0.3·(C/n)·D."""
    found = release.class_sums().reshape(classes, -1)
    return np.asarray(STEP * classes / release.samples * found)

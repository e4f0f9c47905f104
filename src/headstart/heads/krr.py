"""Exact kernel ridge regression on raw features: what random features approximate.

Centralized only, for comparison: K = exp(−‖z−z′‖²/2σ²), α = (K + λI)⁻¹Y, at most 40 samples per
class as in the thesis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import SolveError
from headstart.heads.base import number
from headstart.heads.ridge import solve
from headstart.labels import Labels
from headstart.statistics.base import check_samples

Array = NDArray[np.float64]


@dataclass(frozen=True)
class KernelRidge:
    """`fit` on pooled samples; there is nothing to federate, so it is no Head."""

    bandwidth: float = 22.4
    ridge: float = 0.01
    per_class: int = 40
    seed: int = 0

    name: ClassVar[str] = "krr"
    title: ClassVar[str] = "KRR (centralized)"

    def __post_init__(self) -> None:
        number("bandwidth", self.bandwidth, strict=True)
        number("ridge", self.ridge)
        number("per_class", self.per_class, 1)

    def fit(self, features: ArrayLike, labels: ArrayLike) -> KernelModel:
        """Return the model of these samples; a `SolveError` if there are none."""
        z, y = check_samples(features, labels)
        if not len(y):
            raise SolveError("features: expected at least one sample, got none")
        kept = _at_most(y, self.per_class, self.seed)
        rows = np.asarray(z[kept], np.float64)
        classes, of = np.unique(y[kept], return_inverse=True)
        kernel = _kernel(rows, rows, self.bandwidth)
        coefficients = solve(kernel, np.eye(len(classes))[of].T, self.ridge)
        return KernelModel(rows, coefficients, classes, self.bandwidth)


@dataclass(frozen=True, eq=False)
class KernelModel:
    """A solved kernel ridge regression: it needs the training samples to predict."""

    samples: Array
    coefficients: Array
    classes: Labels
    bandwidth: float

    def scores(self, features: ArrayLike) -> Array:
        z = np.asarray(features, np.float64)
        return _kernel(z, self.samples, self.bandwidth) @ self.coefficients.T

    def predict(self, features: ArrayLike) -> Labels:
        return self.classes[np.argmax(self.scores(features), axis=1)]


def _kernel(left: Array, right: Array, bandwidth: float) -> Array:
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    return np.asarray(np.exp(np.maximum(squares, 0.0) / (-2 * bandwidth**2)))


def _at_most(y: Labels, per_class: int, seed: int) -> NDArray[np.intp]:
    """Up to `per_class` samples of each class, drawn at random."""
    shuffled = np.random.default_rng(seed).permutation(len(y))
    kept = [shuffled[y[shuffled] == label][:per_class] for label in np.unique(y)]
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.intp)

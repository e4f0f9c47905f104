"""Normal equations (M + λI)W = Bᵀ: one Cholesky, or one eigendecomposition for every λ.

GCV(λ) = (RSS/n)/(1 − df/n)² needs sums only, RSS = Σ_c(g_c − 2W_cᵀB_c + W_cᵀAW_c) and
df = Σ s_i/(s_i + λ) (Golub, Heath and Wahba 1979): λ is chosen without another message.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from headstart.errors import SolveError
from headstart.statistics.moments import Moments

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Normal:
    """M and B; with a bias both are centred, which leaves the intercept without a penalty."""

    matrix: Array
    sums: Array
    counts: Array
    mean: Array | None = None

    def bias(self, weights: Array) -> Array:
        """b_c = g_c/n − W_cᵀμ."""
        if self.mean is None:
            return np.zeros(len(weights))
        return self.counts / self.counts.sum() - weights @ self.mean


def normal(total: Moments, *, bias: bool) -> Normal:
    """The normal equations of plain ridge regression on one-hot labels."""
    if total.samples == 0:
        raise SolveError("total: expected at least one sample, got none")
    a, b, g = total.gram(), total.class_sums(), total.counts.astype(np.float64)
    if not bias:
        return Normal(a, b, g)
    mean = b.sum(axis=0) / g.sum()
    a -= g.sum() * np.outer(mean, mean)
    return Normal(a, b - np.outer(g, mean), g, mean)


def within_scatter(a: Array, b: Array, g: Array) -> Array:
    """Σ_c (N_c − 1)S_c = A − Σ_c B_cB_cᵀ/g_c (A and B centred or not: the same matrix)."""
    scaled = b / np.sqrt(g)[:, None]
    return a - scaled.T @ scaled


def solve(matrix: Array, rhs: Array, ridge: float) -> Array:
    """W = (M + λI)⁻¹Bᵀ, one row per class; a clear error when M + λI is not positive."""
    weights = np.asarray(
        scipy.linalg.cho_solve(_factor(matrix, ridge), rhs.T, check_finite=False)
    ).T
    if not np.isfinite(weights).all():
        raise SolveError(
            f"ridge: λ = {ridge:g} gives weights that are not finite; give a larger one"
        )
    return weights


def inverse(matrix: Array, ridge: float) -> Array:
    """(M + λI)⁻¹."""
    lower, _ = scipy.linalg.lapack.dpotri(_factor(matrix, ridge)[0], lower=1)
    return np.tril(lower) + np.tril(lower, -1).T


def _factor(matrix: Array, ridge: float) -> tuple[Array, bool]:
    shifted = matrix.copy()
    shifted[np.diag_indices_from(shifted)] += ridge
    try:
        return scipy.linalg.cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        raise SolveError(
            f"ridge: with λ = {ridge:g} the matrix of dimension {len(matrix)} is not positive "
            f"definite; give a larger ridge (or ridge='gcv'), or fewer, less repetitive features"
        ) from None


@dataclass(frozen=True)
class RidgePath:
    """Every λ at once: its score, its degrees of freedom, its residual."""

    ridges: Array
    scores: Array
    freedom: Array
    residuals: Array

    @property
    def best(self) -> float:
        return float(self.ridges[int(np.argmin(self.scores))])


def ridge_path(equations: Normal, points: int = 121) -> RidgePath:
    """GCV over a grid of λ spanning the spectrum of A, from one eigendecomposition."""
    values, vectors = scipy.linalg.eigh(equations.matrix, check_finite=False, driver="evd")
    values = np.maximum(values, 0.0)
    # Bounded below: where the dimension reaches n, RSS and 1 − df/n both vanish as λ → 0.
    top = max(float(values[-1]), 1e-100)  # features all zero: any λ does
    ridges = np.logspace(np.log10(top) - 8, np.log10(top) + 1, points)
    powers = ((equations.sums @ vectors) ** 2).sum(axis=0)
    g, n, centred = equations.counts, equations.counts.sum(), equations.mean is not None
    energy = g.sum() - (g @ g / n if centred else 0.0)
    shrunk = 1.0 / (values[None, :] + ridges[:, None])
    residuals = energy - 2 * shrunk @ powers + (shrunk**2) @ (powers * values)
    freedom = shrunk @ values + float(centred)
    scores = (np.maximum(residuals, 0.0) / n) / np.maximum(1 - freedom / n, 1e-12) ** 2
    return RidgePath(ridges, scores, freedom, residuals)


def unit_rows(weights: Array) -> Array:
    """W_c/‖W_c‖, and 1 for a row of zeros: a class without evidence never becomes NaN."""
    norms = np.linalg.norm(weights, axis=1)
    return np.where(norms > 0, norms, 1.0)

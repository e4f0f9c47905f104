"""Fed3R: recursive ridge regression (Fanì et al. 2023, 2025). W = (A + λI)⁻¹Bᵀ from sums alone,
so the head is the pooled data's own, whatever the split; then W_c ← W_c/‖W_c‖.

`scatter="within"` replaces A by Σ_c(N_c−1)S_c + n·μμᵀ (+ γ(n−C)I), FedCOF's oracle, from the same
sums. `rebalance` multiplies column c by Γ_c^α, Γ_c = n/(C·g_c), instead of normalizing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from headstart.errors import HeadstartError
from headstart.heads.base import Measurement, choice, flag, number
from headstart.heads.leverage import Leverage, leverage
from headstart.heads.linear import LinearHead
from headstart.heads.noisy import refuse_settings, ridge_head
from headstart.heads.provenance import provenance
from headstart.heads.ridge import (
    Normal,
    RidgePath,
    inverse,
    normal,
    ridge_path,
    solve,
    unit_rows,
    within_scatter,
)
from headstart.statistics.moments import Moments
from headstart.statistics.noisy import NoisySums


@dataclass(frozen=True)
class Fed3R:
    """Ridge regression on one-hot labels; `ridge` a number or "gcv" (chosen from the sums)."""

    ridge: float | str = 0.01
    normalize: bool = True
    rebalance: float = 0.0
    bias: bool = False
    scatter: str = "total"
    shrinkage: float = 0.0

    name: ClassVar[str] = "fed3r"
    title: ClassVar[str] = "Fed3R"
    statistic: ClassVar[type[Moments]] = Moments

    def __post_init__(self) -> None:
        check_ridge(self.ridge)
        choice("scatter", self.scatter, ("total", "within"))
        number("shrinkage", self.shrinkage)
        number("rebalance", self.rebalance)
        flag("normalize", self.normalize)
        flag("bias", self.bias)
        if self.rebalance and self.normalize:
            raise HeadstartError(
                "rebalance: expected 0 with normalize=True (which cancels any scaling of a "
                f"column), got {self.rebalance}; give normalize=False"
            )

    def measure(
        self, features: ArrayLike, labels: ArrayLike, **how: Unpack[Measurement]
    ) -> Moments:
        return Moments.measure(features, labels, **how)

    def paper_upload_size(self, d: int, held: float, every: int) -> float:
        return d * (d + 1) / 2 + d * held

    def path(self, total: Moments) -> RidgePath:
        """GCV for every λ, from the sums: plain ridge on the total scatter."""
        return ridge_path(normal(total, bias=self.bias))

    def solve(self, total: Moments | NoisySums) -> LinearHead:
        if isinstance(total, NoisySums):
            return self._private(total)
        equations, matrix, ridge, shrunk = self._system(total)
        weights = solve(matrix, equations.sums, shrunk)
        bias = equations.bias(weights)
        scale = self._scales(weights, equations.counts)
        prior = None if self.normalize else _carried(equations.counts, self.rebalance)
        return LinearHead(
            weights * scale[:, None],
            bias * scale,
            total.classes,
            prior=prior,
            provenance=provenance(self, total, ridge=ridge),
        )

    def check_noisy(self) -> None:
        """Refuse settings that mean nothing on noisy sums."""
        refuse_settings(self, "normalize", "rebalance", "bias", "scatter", "shrinkage")
        if self.ridge == "gcv":
            raise HeadstartError(
                "ridge: expected a number with noisy sums, got 'gcv': the residual of noisy sums "
                "is none; λ follows from the noise"
            )

    def _private(self, total: NoisySums) -> LinearHead:
        """λ is `ridge` and what the noise asks for."""
        self.check_noisy()
        return ridge_head(self, total, total.gram(), float(self.ridge))

    def leverage(self, total: Moments) -> Leverage:
        """Of the samples on their own scores. (Of the within-class scatter it is not known.)"""
        if self.scatter == "within":
            return Leverage()
        equations, matrix, _, shrunk = self._system(total)
        inverted = inverse(matrix, shrunk)
        weights = equations.sums @ inverted
        scale = float(np.mean(1.0 / self._scales(weights, equations.counts)))
        return leverage(inverted, shrunk, float(total.samples), scale, self.bias)

    def _system(self, total: Moments) -> tuple[Normal, np.ndarray, float, float]:
        """The equations, M, the ridge λ, and λ with the shrinkage."""
        equations = normal(total, bias=self.bias)
        ridge = ridge_path(equations).best if self.ridge == "gcv" else float(self.ridge)
        g, matrix = equations.counts, equations.matrix
        n, classes = g.sum(), len(g)
        if self.scatter == "within":
            matrix = within_scatter(matrix, equations.sums, g)
            if equations.mean is None:
                mean = equations.sums.sum(axis=0) / n
                matrix += n * np.outer(mean, mean)
        return equations, matrix, ridge, ridge + self.shrinkage * (n - classes)

    def _scales(self, weights: np.ndarray, g: np.ndarray) -> np.ndarray:
        """What each row is multiplied by: 1/‖W_c‖, or Γ_c^α."""
        if self.normalize:
            return np.asarray(1.0 / unit_rows(weights))
        return np.asarray((g.sum() / (len(g) * g)) ** self.rebalance)


def _carried(g: np.ndarray, rebalance: float) -> np.ndarray:
    """The class frequencies the scores still carry: Γ^α takes g^α out of them."""
    mass = g ** (1.0 - rebalance)
    return np.asarray(mass / mass.sum())


def check_ridge(ridge: float | str) -> None:
    """Refuse a λ that is neither a positive number nor "gcv"."""
    if isinstance(ridge, str):
        if ridge != "gcv":
            raise HeadstartError(f"ridge: expected a number or 'gcv', got {ridge!r}")
    else:
        number("ridge", ridge)

"""LDA, federated as in FedCGS (Guan et al. 2025): the Bayes rule of Gaussians with one covariance.

Σ = (A − Σ_c B_cB_cᵀ/g_c)/(n−C), shrunk towards tr(Σ)/d·I; W_c = Σ⁻¹μ_c,
b_c = −½μ_cᵀΣ⁻¹μ_c + log π_c. The default shrinkage is OAS (Chen et al. 2010),
which needs nothing but Σ, n and d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import HeadstartError, SolveError
from headstart.heads.base import Measurement, choice, number
from headstart.heads.linear import LinearHead
from headstart.heads.noisy import refuse_settings, ridge_head
from headstart.heads.provenance import provenance
from headstart.heads.ridge import normal, solve, within_scatter
from headstart.statistics.moments import Moments
from headstart.statistics.noisy import NoisySums

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LDA:
    """`covariance` within the classes, or total as FedCGS's own code has it."""

    shrinkage: float | str = "oas"
    covariance: str = "within"
    prior: bool = True

    name: ClassVar[str] = "lda"
    title: ClassVar[str] = "LDA / FedCGS"
    notation: ClassVar[str] = "LDA"
    statistic: ClassVar[type[Moments]] = Moments

    def __post_init__(self) -> None:
        choice("covariance", self.covariance, ("within", "total"))
        if isinstance(self.shrinkage, str):
            choice("shrinkage", self.shrinkage, ("oas",))
        else:
            number("shrinkage", self.shrinkage)
            if self.shrinkage > 1:
                raise HeadstartError(f"shrinkage: expected at most 1, got {self.shrinkage}")

    def measure(
        self, features: ArrayLike, labels: ArrayLike, **how: Unpack[Measurement]
    ) -> Moments:
        return Moments.measure(features, labels, **how)

    def paper_upload_size(self, d: int, held: float, every: int) -> float:
        return d * (d + 1) / 2 + d * held

    def solve(self, total: Moments | NoisySums) -> LinearHead:
        if isinstance(total, NoisySums):
            return self._private(total)
        equations = normal(total, bias=True)  # centred: A − n·μμᵀ
        g, n = equations.counts, equations.counts.sum()
        matrix, lost = equations.matrix, 1.0
        if self.covariance == "within":
            matrix, lost = within_scatter(matrix, equations.sums, g), float(len(g))
        covariance = matrix / max(n - lost, 1.0)
        spread, size = float(np.trace(matrix)), float(np.trace(total.gram()))
        if not spread > 1e-12 * size:  # rounding alone
            raise SolveError(
                f"LDA: expected samples that differ within a class, got n_samples = {int(n)} alike"
            )
        part = oas(covariance, n) if isinstance(self.shrinkage, str) else float(self.shrinkage)
        level = float(np.trace(covariance)) / len(covariance)
        means = total.class_sums() / g[:, None]
        weights = solve((1 - part) * covariance, means, part * level + 1e-9 * level)
        bias = -0.5 * np.einsum("cd,cd->c", weights, means)
        frequencies = g / n if self.prior else None
        if frequencies is not None:
            bias += np.log(frequencies)
        return LinearHead(
            weights,
            bias,
            total.classes,
            prior=frequencies,
            temperature=1.0,
            provenance=provenance(self, total, shrinkage=part),
        )

    def check_noisy(self) -> None:
        """Refuse settings that mean nothing on noisy sums."""
        refuse_settings(self, "shrinkage", "covariance", "prior")

    def _private(self, total: NoisySums) -> LinearHead:
        """Directions Σ⁻¹μ_c alone: features of unit length leave the bias without a meaning."""
        self.check_noisy()
        return ridge_head(
            self, total, within_scatter(total.gram(), total.class_sums(), total.counts)
        )


def oas(covariance: Array, n: float) -> float:
    """The oracle approximating shrinkage towards tr(Σ)/d·I."""
    d = len(covariance)
    square, trace2 = float((covariance**2).sum()), float(np.trace(covariance)) ** 2
    below = (n + 1) * (square - trace2 / d)
    return 1.0 if below <= 0 else float(min(1.0, (square + trace2) / below))

"""FedCOF's cheaper rivals (its figure 8): clients share variances, a number or d of them per class.

Σ_c(N_c−1)S_c is replaced by its diagonal (from Σz² elementwise) or by the mean of the diagonal
times I (from Σ‖z‖²); the rest is FedCOF's solve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from headstart.heads.base import Measurement, choice, number, require_samples
from headstart.heads.linear import LinearHead
from headstart.heads.provenance import provenance
from headstart.heads.ridge import solve, unit_rows
from headstart.statistics.class_sums import ClassSums


@dataclass(frozen=True)
class SharedVariances:
    """Ridge on a diagonal or spherical within-class scatter."""

    kind: str = "diagonal"
    shrinkage: float = 0.1
    ridge: float = 0.01

    name: ClassVar[str] = "shared-variances"
    title: ClassVar[str] = "Shared variances"
    statistic: ClassVar[type[ClassSums]] = ClassSums

    def __post_init__(self) -> None:
        choice("kind", self.kind, ("diagonal", "spherical"))
        number("shrinkage", self.shrinkage)
        number("ridge", self.ridge)

    def measure(
        self, features: ArrayLike, labels: ArrayLike, **how: Unpack[Measurement]
    ) -> ClassSums:
        return ClassSums.measure(features, labels, squares=self.kind, **how)

    def paper_upload_size(self, d: int, held: float, every: int) -> float:
        return (d + (d if self.kind == "diagonal" else 1)) * held

    def solve(self, total: ClassSums) -> LinearHead:
        require_samples(total)
        sums, g = total.class_sums(), total.counts.astype(np.float64)
        squares = total.squares().sum(axis=0)
        between = (sums**2 / g[:, None]).sum(axis=0)
        if self.kind == "spherical":
            variances = np.full(total.dimension, (squares[0] - between.sum()) / total.dimension)
        else:
            variances = squares - between
        mean = sums.sum(axis=0) / g.sum()
        matrix = np.diag(np.maximum(variances, 0.0)) + g.sum() * np.outer(mean, mean)
        weights = solve(matrix, sums, self.ridge + self.shrinkage * (g.sum() - len(g)))
        weights /= unit_rows(weights)[:, None]
        about = provenance(self, total)
        return LinearHead(weights, np.zeros(len(g)), total.classes, provenance=about)

"""ETF: a simplex equiangular tight frame, V = √(C/(C−1))·U(I − 11ᵀ/C), UᵀU = I (d ≥ C).

No feature is sent: the head depends on the classes, the dimension and a public seed alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from headstart.errors import SolveError
from headstart.heads.base import Measurement
from headstart.heads.linear import LinearHead
from headstart.heads.provenance import provenance
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.rotation import gaussian


@dataclass(frozen=True)
class ETF:
    """A frozen target geometry for fine-tuning; by itself it knows nothing of the features."""

    seed: int = 0

    name: ClassVar[str] = "etf"
    title: ClassVar[str] = "ETF"
    statistic: ClassVar[type[ClassSums]] = ClassSums

    def measure(
        self, features: ArrayLike, labels: ArrayLike, **how: Unpack[Measurement]
    ) -> ClassSums:
        """The counts of the client's classes, nothing of its features."""
        return ClassSums.measure(features, labels, sums=False, **how)

    def numbers(self, d: int, own: int, every: int) -> float:
        return 0

    def solve(self, total: ClassSums) -> LinearHead:
        classes, d = len(total.classes), total.dimension
        if not 2 <= classes <= d:
            raise SolveError(f"ETF: expected 2 to {d} classes (the dimension), got {classes}")
        key = f"headstart etf 1 {self.seed}".encode()
        basis = np.linalg.qr(gaussian(key, (d, classes)))[0]
        centred = np.eye(classes) - 1.0 / classes
        weights = np.sqrt(classes / (classes - 1)) * (basis @ centred).T
        return LinearHead(
            weights, np.zeros(classes), total.classes, provenance=provenance(self, total)
        )

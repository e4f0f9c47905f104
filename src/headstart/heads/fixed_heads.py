"""Heads that know nothing of the features: fixed directions, one per class, for features to
turn to.

No feature is sent: such a head depends on the classes, the dimension and a public seed alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import SolveError
from headstart.heads.base import Measurement
from headstart.heads.linear import LinearHead
from headstart.heads.provenance import provenance
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.rotation import gaussian


@dataclass(frozen=True)
class FixedHead(ABC):
    """A frozen target geometry for fine-tuning, made of an orthonormal U, UᵀU = I (d ≥ C)."""

    seed: int = 0

    title: ClassVar[str]
    statistic: ClassVar[type[ClassSums]] = ClassSums
    data_free: ClassVar[bool] = True  # there is nothing to calibrate

    @abstractmethod
    def rows(self, basis: NDArray[np.float64]) -> NDArray[np.float64]:
        """The head's rows C×d from U, d×C."""

    def measure(
        self, features: ArrayLike, labels: ArrayLike, **how: Unpack[Measurement]
    ) -> ClassSums:
        """The counts of the client's classes, nothing of its features."""
        return ClassSums.measure(features, labels, sums=False, **how)

    def paper_upload_size(self, d: int, held: float, every: int) -> float:
        return 0

    def solve(self, total: ClassSums) -> LinearHead:
        classes, d = len(total.classes), total.dimension
        if not 2 <= classes <= d:
            raise SolveError(
                f"{self.title}: expected 2 to {d} classes (the dimension), got {classes}"
            )
        key = f"headstart etf 1 {self.seed}".encode()
        rows = self.rows(np.linalg.qr(gaussian(key, (d, classes)))[0])
        about = provenance(self, total)
        return LinearHead(rows, np.zeros(classes), total.classes, provenance=about)

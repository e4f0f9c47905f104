"""ETF: a simplex equiangular tight frame, V = √(C/(C−1))·U(I − 11ᵀ/C), UᵀU = I (d ≥ C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from headstart.heads.fixed_heads import FixedHead


@dataclass(frozen=True)
class ETF(FixedHead):
    """A simplex: a frozen target for fine-tuning; by itself it knows nothing of the features."""

    name: ClassVar[str] = "etf"
    title: ClassVar[str] = "ETF"

    def rows(self, basis: NDArray[np.float64]) -> NDArray[np.float64]:
        classes = basis.shape[1]
        centred = np.eye(classes) - 1.0 / classes
        rows: NDArray[np.float64] = np.sqrt(classes / (classes - 1)) * (basis @ centred).T
        return rows

"""Orthonormal: a random head of orthonormal rows, V = U (d ≥ C); SphereFed, Dong et al. 2022."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from headstart.heads.fixed_heads import FixedHead


@dataclass(frozen=True)
class Orthonormal(FixedHead):
    """Right angles: a frozen target for fine-tuning that knows nothing of the features."""

    name: ClassVar[str] = "orthonormal"
    title: ClassVar[str] = "Orthonormal"

    def rows(self, basis: NDArray[np.float64]) -> NDArray[np.float64]:
        return basis.T

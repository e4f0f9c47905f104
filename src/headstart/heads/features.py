"""Random Fourier features (Rahimi and Recht 2007): φ(z) = √(2/D)·cos(ωᵀz + β), ω ~ N(0, I/σ²).

Everybody draws the same ω and β from a public seed. Frequencies are whole multiples of 2⁻²⁰/σ, so
on a lattice ωᵀz is a sum of integers below 2⁵³: the same bits in every batch, thread and split.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError, HeadstartError
from headstart.statistics.exact import Lattice
from headstart.statistics.rotation import gaussian, uniform

_GRID = 2.0**20
_MOST_DIMENSIONS = 2**14  # d · 2^15 · 2^23.1 < 2^53
_CHUNK = 2**22


@dataclass(frozen=True)
class RandomFeatures:
    """The map: D cosines of bandwidth σ from a seed."""

    dimension: int
    bandwidth: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not (isinstance(self.dimension, int) and self.dimension > 0):
            raise HeadstartError(
                f"dimension: expected a whole number above 0, got {self.dimension!r}"
            )
        if not isinstance(self.seed, int):
            raise HeadstartError(f"seed: expected a whole number, got {self.seed!r}")
        if not (np.isfinite(self.bandwidth) and self.bandwidth > 0):
            raise HeadstartError(f"bandwidth: expected a number above 0, got {self.bandwidth!r}")

    def settings(self) -> dict[str, Any]:
        """Return the parameters of the map as plain values."""
        return asdict(self)

    def frequencies(self, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """ω (d×D) and β (D), for who applies the map elsewhere."""
        if d > _MOST_DIMENSIONS:
            raise DataError(f"features: expected at most {_MOST_DIMENSIONS} dimensions, got {d}")
        steps, phases = _frequencies(d, self.dimension, self.seed)
        return steps / (_GRID * self.bandwidth), phases

    @property
    def lattice(self) -> Lattice:
        """|φ| ≤ √(2/D): a bound of its own, so that no bit of the lattice is wasted."""
        return Lattice(float(np.sqrt(2.0 / self.dimension)))

    @property
    def norm(self) -> float:
        """‖φ‖² = 2/D·Σ cos² ≤ 2."""
        return float(np.sqrt(2.0))

    def __call__(
        self, features: NDArray[Any], inputs: Lattice | None = None
    ) -> NDArray[np.float64]:
        """φ of each row; with the lattice of the `inputs`, exactly repeatable."""
        if features.shape[1] > _MOST_DIMENSIONS:
            raise DataError(f"features: expected at most {_MOST_DIMENSIONS} dimensions")
        steps, phases = _frequencies(features.shape[1], self.dimension, self.seed)
        unit = (inputs.step if inputs else 1.0) / (_GRID * self.bandwidth)
        out = np.empty((len(features), self.dimension))
        rows = max(1, _CHUNK // self.dimension)
        for start in range(0, len(features), rows):
            z = features[start : start + rows]
            z = inputs.quantize(z) if inputs else np.asarray(z, np.float64)
            block = out[start : start + rows]
            np.matmul(z, steps, out=block)
            block *= unit
            block += phases
            np.cos(block, out=block)
            block *= np.sqrt(2.0 / self.dimension)
        return out


@lru_cache(maxsize=2)
def _frequencies(d: int, dimension: int, seed: int) -> tuple[NDArray[np.float64], Any]:
    key = f"headstart random features 1 {seed}".encode()
    steps = np.rint(gaussian(key, (d, dimension)) * _GRID)
    phases = 2 * np.pi * uniform(key + b" phases", (dimension,))
    steps.setflags(write=False)
    return steps, phases

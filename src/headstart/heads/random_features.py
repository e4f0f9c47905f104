"""Fed3R-RF (Fanì et al. 2025): Fed3R on random Fourier features, an approximation of kernel ridge.

The papers' "σ = 1000" goes with ω ~ N(0, 2/σ·I): a bandwidth of √(σ/2) = 22.4 here. `bandwidth_of`
takes it from the data instead: the root mean squared distance √(2·tr Cov), a sum like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from headstart.errors import SolveError
from headstart.heads.base import Measurement, number
from headstart.heads.features import RandomFeatures
from headstart.heads.fed3r import Fed3R
from headstart.heads.leverage import Leverage
from headstart.heads.linear import LinearHead
from headstart.heads.provenance import provenance
from headstart.heads.ridge import RidgePath
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.exact import Lattice
from headstart.statistics.moments import Moments


@dataclass(frozen=True)
class Fed3RRandomFeatures:
    """Fed3R in `dimension` random features of a `bandwidth`, drawn from a public `seed`."""

    dimension: int = 5000
    bandwidth: float = 22.4
    ridge: float | str = 0.01
    seed: int = 0
    normalize: bool = True
    scatter: str = "total"
    shrinkage: float = 0.0

    name: ClassVar[str] = "fed3r-rf"
    title: ClassVar[str] = "Fed3R-RF"
    statistic: ClassVar[type[Moments]] = Moments

    def __post_init__(self) -> None:
        _ = self._ridge_head  # which checks what it shares with Fed3R
        number("dimension", self.dimension, 1)
        number("bandwidth", self.bandwidth, strict=True)

    @property
    def feature_map(self) -> RandomFeatures:
        return RandomFeatures(int(self.dimension), float(self.bandwidth), self.seed)

    def measure(
        self, features: ArrayLike, labels: ArrayLike, **how: Unpack[Measurement]
    ) -> Moments:
        """Moments of φ(z); in exact mode φ is taken of lattice points, in float64."""
        exact, bound = how.get("exact", False), how.get("bound", 16.0)
        inputs = Lattice(bound) if exact else None
        return Moments.measure(
            features,
            labels,
            exact=exact,
            bound=self.feature_map.lattice.bound,
            secret=how.get("secret"),
            feature_map=lambda z: self.feature_map(z, inputs),
        )

    def paper_upload_size(self, d: int, held: float, every: int) -> float:
        return self.dimension * (self.dimension + 1) / 2 + self.dimension * held

    @property
    def _ridge_head(self) -> Fed3R:
        shared = {key: getattr(self, key) for key in ("ridge", "normalize", "scatter", "shrinkage")}
        return Fed3R(**shared)

    def path(self, total: Moments) -> RidgePath:
        """Return GCV over λ from the sums of mapped features."""
        return self._ridge_head.path(total)

    def leverage(self, total: Moments) -> Leverage:
        """Return the leverage of mapped features, as Fed3R has it."""
        return self._ridge_head.leverage(total)

    def solve(self, total: Moments) -> LinearHead:
        head = self._ridge_head.solve(total)
        about = provenance(self, total, **head.provenance["solved"])
        return replace(head, feature_map=self.feature_map, provenance=about)


def bandwidth_of(total: Moments | ClassSums, factor: float = 1.0) -> float:
    """factor·√(2·tr Cov): the root mean squared distance of two samples, from sums (no message).

    To six digits: machines differ in the last ones, and the map must be the same on all of them.
    Class sums must carry their squares.
    """
    if total.samples < 2:
        raise SolveError("bandwidth: expected at least two samples")
    squares = (
        float(np.trace(total.gram()))
        if isinstance(total, Moments)
        else float(total.squares().sum())
    )
    mean = total.class_sums().sum(axis=0) / total.samples
    spread = 2 * (float(squares) / total.samples - float(mean @ mean))
    if not spread > 0:
        raise SolveError("bandwidth: expected samples that differ")
    return float(f"{factor * float(np.sqrt(spread)):.6g}")

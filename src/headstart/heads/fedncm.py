"""FedNCM: the nearest class mean (Legate et al. 2023). μ_c = B_c/g_c, W_c = μ_c/‖μ_c‖."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from headstart.heads.base import Measurement, require_samples
from headstart.heads.linear import LinearHead
from headstart.heads.noisy import unit_head
from headstart.heads.provenance import provenance
from headstart.heads.ridge import unit_rows
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.noisy import NoisySums


@dataclass(frozen=True)
class FedNCM:
    """Class means as weights: the cheapest head."""

    name: ClassVar[str] = "fedncm"
    title: ClassVar[str] = "FedNCM"
    statistic: ClassVar[type[ClassSums]] = ClassSums

    def measure(
        self, features: ArrayLike, labels: ArrayLike, **how: Unpack[Measurement]
    ) -> ClassSums:
        return ClassSums.measure(features, labels, **how)

    def paper_upload_size(self, d: int, held: float, every: int) -> float:
        return d * every

    def solve(self, total: ClassSums | NoisySums) -> LinearHead:
        if isinstance(total, NoisySums):
            return unit_head(self, total, total.class_sums())
        require_samples(total)
        means = total.class_sums() / total.counts[:, None]
        weights = means / unit_rows(means)[:, None]
        return LinearHead(
            weights, np.zeros(len(weights)), total.classes, provenance=provenance(self, total)
        )

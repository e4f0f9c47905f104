"""A head of a user's own."""

from dataclasses import dataclass
from typing import ClassVar

import headstart as hs


@hs.register_head
@dataclass(frozen=True)
class CentredMeans:
    """Class means around the global mean."""

    name: ClassVar[str] = "centred-means"
    title: ClassVar[str] = "Centred means"
    statistic: ClassVar[type] = hs.ClassSums

    def measure(self, features, labels, **how):
        return hs.ClassSums.measure(features, labels, **how)

    def numbers(self, d, own, every):
        return d * own

    def solve(self, total):
        if not total.samples:
            raise hs.SolveError("total: expected at least one sample, got none")
        means = total.class_sums() / total.counts[:, None]
        bias = -0.5 * (means**2).sum(axis=1)
        return hs.LinearHead(means, bias, total.classes, provenance=hs.provenance(self, total))

from dataclasses import dataclass
from typing import ClassVar

import headstart as hs


@hs.register_head
@dataclass(frozen=True)
class CentredMeans:
    """Class means around the global mean: W_c = μ_c − μ, b_c = −½(‖μ_c‖² − ‖μ‖²)."""

    name: ClassVar[str] = "centred-means"
    title: ClassVar[str] = "Centred means"
    statistic: ClassVar[type[hs.ClassSums]] = hs.ClassSums

    def measure(self, features, labels, **how):  # on each client
        return hs.ClassSums.measure(features, labels, **how)

    def paper_upload_size(self, d, held, every):
        return d * held

    def solve(self, total):  # on the server, from the sum of all clients
        if not total.samples:
            raise hs.SolveError("total: expected at least one sample, got none")
        means = total.class_sums() / total.counts[:, None]
        mean = total.class_sums().sum(axis=0) / total.samples
        bias = -0.5 * ((means**2).sum(axis=1) - mean @ mean)
        about = hs.provenance(self, total)
        return hs.LinearHead(means - mean, bias, total.classes, provenance=about)

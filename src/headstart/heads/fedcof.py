"""FedCOF: covariances for free, from the spread of the clients' means (anonymous, 2025).

Σ̂_c = 1/(K_c−1)·Σ_k n_kc(μ_kc − μ_c)(μ_kc − μ_c)ᵀ + γI, K_c the means received for class c (a lone
mean gives γI alone); Ĝ = Σ_c(N_c−1)Σ̂_c + N·μμᵀ; W = (Ĝ + λI)⁻¹Bᵀ, normalized. Ĝ is one SYRK of the
centred means scaled by √(n_kc(N_c−1)/(K_c−1)): no tensor of class covariances is ever formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import HeadstartError
from headstart.heads.base import Measurement, choice, number, require_samples
from headstart.heads.linear import LinearHead
from headstart.heads.provenance import provenance
from headstart.heads.ridge import solve, unit_rows
from headstart.statistics.client_means import NOISES, ClientMeans

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FedCOF:
    """Class means only; several `means` per class and client sharpen the estimate.

    `shrinkage` γ: the paper's 0.1 for MobileNetV2, 1 for SqueezeNet and ViT. `noise` = (kind, ε)
    blurs the counts a client sends (uniform, gaussian or laplace): no differential privacy.
    """

    shrinkage: float = 0.1
    ridge: float = 0.01
    means: int = 1
    noise: tuple[str, float] | None = None

    name: ClassVar[str] = "fedcof"
    title: ClassVar[str] = "FedCOF"
    statistic: ClassVar[type[ClientMeans]] = ClientMeans

    def __post_init__(self) -> None:
        number("shrinkage", self.shrinkage)
        number("ridge", self.ridge)
        number("means", self.means, 1)
        if self.noise is not None:
            _check_noise(self.noise)

    def measure(
        self, features: ArrayLike, labels: ArrayLike, **how: Unpack[Measurement]
    ) -> ClientMeans:
        noise = (self.noise[0], float(self.noise[1])) if self.noise else None
        return ClientMeans.measure(features, labels, means=self.means, noise=noise, **how)

    def check_upload(self, found: ClientMeans, clients: int) -> None:
        """Refuse rows that its settings do not allow; rows of several clients are theirs alone."""
        found.check_rows(self.means, clients, noisy=self.noise is not None)

    def paper_upload_size(self, d: int, held: float, every: int) -> float:
        return d * held * self.means

    def solve(self, total: ClientMeans) -> LinearHead:
        require_samples(total)
        classes, of = np.unique(total.labels, return_inverse=True)
        n = total.counts
        mass, rows = np.bincount(of, n).astype(np.float64), np.bincount(of)
        sums = np.zeros((len(classes), total.dimension))
        np.add.at(sums, of, total.means * n[:, None])
        matrix = estimated_scatter(total.means, n, of, sums, mass, rows)
        mean = sums.sum(axis=0) / mass.sum()
        matrix += mass.sum() * np.outer(mean, mean)
        spread = self.shrinkage * np.maximum(mass - 1, 0).sum()
        weights = solve(matrix, sums, self.ridge + spread)
        weights /= unit_rows(weights)[:, None]
        about = provenance(self, total)
        return LinearHead(weights, np.zeros(len(classes)), classes, provenance=about)


def _check_noise(noise: object) -> None:
    if not isinstance(noise, (tuple, list)) or len(noise) != 2:
        raise HeadstartError(f"noise: expected a kind and a number, got {noise!r}")
    choice("noise", noise[0], NOISES)
    number("noise", noise[1], strict=True)


def estimated_scatter(
    means: Array, n: Array, of: NDArray[np.intp], sums: Array, mass: Array, rows: NDArray[np.intp]
) -> Array:
    """Σ_c (N_c−1)/(K_c−1)·Σ_k n_kc(μ_kc−μ_c)(μ_kc−μ_c)ᵀ, a block of rows at a time."""
    d = means.shape[1]
    weight = np.maximum(mass - 1, 0) / np.maximum(rows - 1, 1) * (rows > 1)
    centres = sums / mass[:, None]
    matrix = np.zeros((d, d))
    step = max(1, 2**22 // d)
    for start in range(0, len(means), step):
        part = slice(start, start + step)
        block = means[part] - centres[of[part]]
        block *= np.sqrt(n[part] * weight[of[part]])[:, None]
        matrix += block.T @ block
    return matrix

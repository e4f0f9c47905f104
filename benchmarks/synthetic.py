"""A synthetic federation with the client sizes of iNaturalist-Users: 9,275 clients, 1,203 classes.

Sizes come from `$HEADSTART_DATA/client_sizes/inaturalist_user_120k.csv` when it is there, and
otherwise from a log-normal of the same count and mean. Features look like those of a ReLU network:
non-negative, many zeros, some features always zero. Classes are Zipf-distributed; a client has
about POOL of its own and draws its samples from these: 5.9 shown on average, as in the original.
How many classes the large clients show is not published, and the smallest messages depend on it:
with C_k ≈ n^0.81, of the same mean, int8 would be about 168 times smaller (by arithmetic), not 185.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIMENSION, CLASSES, CLIENTS, SAMPLES = 1280, 1203, 9275, 120_293
ALWAYS_ZERO = 20
POOL = 57

Features = NDArray[np.float32]
Labels = NDArray[np.int64]
DATA = Path(
    os.environ.get("HEADSTART_DATA", Path(__file__).resolve().parents[1] / "../shared/data")
)


def client_sizes() -> tuple[NDArray[np.int64], str]:
    """Samples of each client, and a line saying where they are from."""
    path = DATA / "client_sizes" / "inaturalist_user_120k.csv"
    if path.exists():
        sizes = np.loadtxt(path, dtype=np.int64, skiprows=1)
        return sizes, f"client sizes: {path.name}, {len(sizes):,} clients, {sizes.sum():,} samples"
    raw = np.random.default_rng(0).lognormal(0.0, 2.0, CLIENTS)
    sizes = np.maximum(1, np.rint(raw * (SAMPLES / raw.sum()))).astype(np.int64)
    return (
        sizes,
        f"client sizes: synthetic log-normal, {CLIENTS:,} clients, {sizes.sum():,} samples",
    )


@dataclass(frozen=True)
class Federation:
    """Clients as slices of one table, so that pooled data cost no copy."""

    features: Features
    labels: Labels
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)

    def client(self, k: int) -> tuple[Features, Labels]:
        rows = slice(self.ends[k - 1] if k else 0, self.ends[k])
        return self.features[rows], self.labels[rows]

    def classes(self) -> NDArray[np.int64]:
        """C_k, the classes each client shows."""
        return np.array([len(np.unique(self.client(k)[1])) for k in range(len(self))])


def federation(sizes: NDArray[np.int64], dimension: int = DIMENSION, seed: int = 0) -> Federation:
    """The same clients on every machine."""
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, CLASSES + 1) ** 0.8
    frequency /= frequency.sum()
    labels = np.concatenate([_labels(rng, int(n), frequency) for n in sizes])
    centres = 0.7 * rng.standard_normal((CLASSES, dimension), np.float32) - np.float32(0.3)
    features = np.empty((len(labels), dimension), np.float32)
    for start in range(0, len(labels), 4096):
        block = features[start : start + 4096]
        rng.standard_normal(dtype=np.float32, out=block)
        block += centres[labels[start : start + 4096]]
    np.maximum(features, 0, out=features)
    features[:, :: max(1, dimension // ALWAYS_ZERO)] = 0
    return Federation(features, labels, np.cumsum(sizes))


def _labels(rng: np.random.Generator, n: int, frequency: NDArray[Any]) -> Labels:
    """n labels out of a client's own classes."""
    own = rng.choice(CLASSES, 1 + rng.poisson(POOL - 1), replace=False, p=frequency)
    return rng.choice(own, n).astype(np.int64)

"""Client means: a row (class, count, mean) for each mean a client sends.

Rows stack and do not add: the server sees each client, so privacy code refuses them, by type.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError, WireError
from headstart.labels import Labels
from headstart.statistics import wire
from headstart.statistics.base import (
    LARGEST,
    ROWS,
    check_alike,
    check_norms,
    check_precision,
    check_samples,
    fingerprint,
    pack_rows,
    rounding,
    unpack_rows,
)
from headstart.statistics.exact import Lattice
from headstart.statistics.rotation import gaussian, seed_of, uniform
from headstart.statistics.wire import CLASSES, OWN, Arrays, Field, Limits, Schema, lattice_of

Array = NDArray[Any]

_MEANS_SCHEMA: dict[str, Schema] = {
    "client-means": {
        "dimension": Field(("I64",), ()),
        "classes": CLASSES,
        "counts": Field(("F64",), ("m",)),
        "means": Field(ROWS[:-1], ("m", "d")),
        "means_scale": Field(("F32",), ("m",), optional=True),
        "bound": Field(("F64",), (), optional=True),
    }
}
NOISES = ("uniform", "gaussian", "laplace")


@dataclass(frozen=True, eq=False)
class ClientMeans:
    """Rows (class, count, mean), in one canonical order, one or several a class and client."""

    dimension: int
    labels: Labels  # the class of each row; repeats are meant
    counts: NDArray[np.float64]  # whole, unless a client has put noise on them
    means: NDArray[np.float64]
    lattice: Lattice | None = None

    is_sum: ClassVar[bool] = False

    @classmethod
    def measure(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        *,
        exact: bool = False,
        bound: float = 16.0,
        secret: bytes | None = None,
        means: int = 1,
        noise: tuple[str, float] | None = None,
    ) -> ClientMeans:
        """One client's rows: each class cut at random into `means` parts (fewer if it is small).

        `exact`: means of lattice points, so the order of samples cannot move a bit. `noise` (kind,
        ε) hides the counts a little (FedCOF, appendix N); it is no differential privacy.
        """
        if means < 1:
            raise DataError(f"means: expected at least 1 a class, got {means}")
        z, y = check_samples(features, labels)
        lattice = Lattice(bound) if exact else None
        rows = lattice.quantize(z) if lattice else z.astype(np.float64)
        rows += 0.0  # −0 and 0 are one value
        order = sorted(range(len(y)), key=lambda i: (y[i], rows[i].tobytes()))
        rows, y = rows[order], y[order]
        key = seed_of(secrets.token_bytes(32) if secret is None else secret, (rows,))
        parts = _parts(y, means, key)
        centres = np.array([rows[part].mean(axis=0) for part in parts]).reshape(-1, z.shape[1])
        if lattice:
            centres = centres * lattice.step
        counts = np.array([float(len(part)) for part in parts])
        shown = np.array([part[0] for part in parts], dtype=np.intp)
        counts = _noisy(counts, noise, key) if noise else counts
        return _canonical(cls(z.shape[1], y[shown], counts, centres, lattice))

    @property
    def classes(self) -> Labels:
        return np.unique(self.labels)

    @property
    def samples(self) -> int:
        return round(float(self.counts.sum()))

    @property
    def exact(self) -> bool:
        return self.lattice is not None

    def __repr__(self) -> str:
        return f"ClientMeans({len(self.labels)} means of {len(self.classes)} classes)"

    def __add__(self, other: ClientMeans) -> ClientMeans:
        if not isinstance(other, ClientMeans):
            return NotImplemented
        return ClientMeans.total([self, other])

    def __radd__(self, other: object) -> ClientMeans:
        return self if other == 0 else NotImplemented  # the start of sum()

    @classmethod
    def total(cls, statistics: Iterable[ClientMeans]) -> ClientMeans:
        items: list[ClientMeans] = []
        for item in statistics:
            if items:
                check_alike(items[0], item)
            items.append(item)
        if not items:
            raise DataError("total: expected at least one statistic, got none")
        shown = [item.labels for item in items if len(item.labels)]
        if len({labels.dtype.kind for labels in shown}) > 1:
            raise DataError("labels: expected all integers or all strings, got both")
        stacked = ClientMeans(
            items[0].dimension,
            np.concatenate(shown) if shown else items[0].labels,
            np.concatenate([item.counts for item in items]),
            np.concatenate([item.means for item in items]),
            items[0].lattice,
        )
        return _canonical(stacked)

    def digest(self) -> str:
        """SHA-256 of the rows in canonical order: the same for every order of clients."""
        labels = wire.pack_labels(self.labels)
        head = (self.dimension, self.lattice, labels, self.counts, self.means)
        return fingerprint("client-means", head)

    def to_arrays(self, precision: str | None = None) -> dict[str, Array]:
        precision = check_precision(precision or "float64", self.exact)
        return {
            "dimension": np.array(self.dimension, np.int64),
            "classes": wire.pack_labels(self.labels),
            "counts": self.counts,
            **pack_rows("means", self.means, precision),
            **({"bound": np.array(self.lattice.bound)} if self.lattice else {}),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, limits: Limits | None = None) -> ClientMeans:
        limits = limits or OWN
        wire.checked("client-means", arrays, _MEANS_SCHEMA["client-means"])
        labels = wire.labels_of(arrays, limits, unique=False)
        counts, means = arrays["counts"].astype(np.float64), unpack_rows("means", arrays)
        dimension, lattice = wire.dimension_of(arrays, limits), lattice_of(arrays, limits)
        if means.shape != (len(labels), dimension):
            raise WireError("shape", f"means: expected {dimension} a row, got {means.shape}")
        if (counts <= 0).any() or counts.sum() > limits.samples:
            raise WireError("counts", f"counts: expected above 0 and {limits.samples} in all")
        bound = lattice.bound if lattice else limits.bound or LARGEST
        if (np.abs(means) > bound * (1 + 1e-6)).any():
            raise WireError("bound", f"means: expected values within ±{bound:g}")
        if limits.norm is not None:
            most = limits.norm + (np.sqrt(dimension) * lattice.step / 2 if lattice else 0.0)
            moved = rounding(arrays["means"], arrays.get("means_scale"))
            check_norms("means", means, np.ones(len(means)), most * (1 + 1e-6), moved)
        return _canonical(cls(dimension, labels, counts, means, lattice))

    def check_rows(self, means: int, clients: int, *, noisy: bool) -> None:
        """Refuse what so many clients, of so many means a class each, cannot have sent."""
        if not noisy and (self.counts != np.rint(self.counts)).any():
            raise WireError("counts", "counts: expected whole numbers of samples")
        _, rows = np.unique(self.labels, return_counts=True)
        if (rows > means * clients).any():
            most = f"{means} rows a class and client"
            raise WireError("shape", f"means: expected at most {most}, got {rows.max()}")

    def to_bytes(self, precision: str | None = None) -> bytes:
        """The message: float32 unless said otherwise; exact statistics are always sent whole."""
        return wire.encode(
            "client-means", self.to_arrays(precision or (None if self.exact else "float32"))
        )

    @classmethod
    def from_bytes(cls, data: bytes, limits: Limits | None = None) -> ClientMeans:
        """Decode and check a message; `WireError`, with a stable code, when it is refused.

        `limits`: as of `Moments.from_bytes`.
        """
        _, arrays = wire.decode(data, _MEANS_SCHEMA, limits or OWN)
        return cls.from_arrays(arrays, limits)


def _parts(y: Labels, means: int, key: bytes) -> list[NDArray[np.intp]]:
    """The samples of each class, shuffled and cut into at most `means` near-equal parts."""
    shuffled = np.argsort(uniform(key, (len(y),)), kind="stable")
    result = []
    for label in np.unique(y):
        rows = shuffled[y[shuffled] == label]
        result += np.array_split(rows, min(means, len(rows)))
    return result


def _noisy(counts: NDArray[np.float64], noise: tuple[str, float], key: bytes) -> Array:
    """Counts with U(±(1−ε)n), N(0, 1/ε) or Laplace(0, 1/ε) added; at or below zero means: drop."""
    kind, epsilon = noise
    if kind not in NOISES or not epsilon > 0:
        raise DataError(f"noise: expected one of {', '.join(NOISES)} and ε > 0, got {noise!r}")
    u = uniform(key + b"noise", counts.shape)
    if kind == "uniform":
        added = (2 * u - 1) * (1 - epsilon) * counts
    elif kind == "gaussian":
        added = gaussian(key + b"noise", counts.shape) / np.sqrt(epsilon)
    else:
        added = -np.sign(u - 0.5) * np.log(1 - 2 * np.abs(u - 0.5)) / epsilon
    return np.maximum(counts + added, 0.0)


def _canonical(stat: ClientMeans) -> ClientMeans:
    """Rows sorted by class, count and content, those without samples left out."""
    kept = np.flatnonzero(stat.counts > 0)
    marks = {i: hashlib.blake2b(stat.means[i].tobytes(), digest_size=16).digest() for i in kept}
    order = sorted(kept, key=lambda i: (stat.labels[i], stat.counts[i], marks[i]))
    return ClientMeans(
        stat.dimension, stat.labels[order], stat.counts[order], stat.means[order], stat.lattice
    )

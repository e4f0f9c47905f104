"""Second moments A = ZᵀZ, B = YᵀZ and the class counts g: all that a ridge head needs to know.

A client with n ≤ d samples is kept as its triangular factor R = [R_z R_y] (A = R_zᵀR_z,
B = R_yᵀR_z), r(d+C_k) − r(r−1)/2 numbers instead of d(d+1)/2 + dC_k; a larger one as its Gram
matrix. Sums fold lazily: factors stack and one SYRK adds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError
from headstart.labels import Labels
from headstart.statistics import exact as lattices
from headstart.statistics import wire
from headstart.statistics.base import (
    Slots,
    check_alike,
    check_precision,
    check_samples,
    fingerprint,
    frozen,
    grown,
)
from headstart.statistics.checks import (
    SCHEMAS,
    check_factor,
    check_gram,
    read_factor,
    read_gram,
)
from headstart.statistics.exact import Lattice
from headstart.statistics.parts import (
    BUFFER_BYTES,
    Factor,
    Gram,
    difference,
    factor_arrays,
    factor_of,
    gram_arrays,
    gram_of,
    joined,
    root,
    whole,
)
from headstart.statistics.wire import OWN, Arrays, Limits

Array = NDArray[Any]
_WAITING = 2**22  # numbers in factors that `+` lets wait before it folds them


class Moments:
    """Second moments of one client or of many; add, subtract, send. See the module's text."""

    is_sum: ClassVar[bool] = True

    def __init__(
        self, dimension: int, parts: tuple[Factor | Gram, ...], lattice: Lattice | None = None
    ) -> None:
        self.dimension = dimension
        self.lattice = lattice
        self._parts = parts

    # -- on a client ---------------------------------------------------------------------------

    @classmethod
    def measure(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        *,
        exact: bool = False,
        bound: float = 16.0,
        secret: bytes | None = None,
        feature_map: Callable[[Array], Array] | None = None,
    ) -> Self:
        """The moments of one client's samples.

        `secret` (kept by the client) makes a retry give the same bytes; without one a fresh one is
        drawn. `exact` puts features on the public lattice of `bound`: totals become bit-identical.
        `feature_map` is applied to the features first, a block of rows at a time.
        """
        z, y = check_samples(features, labels)
        lattice = Lattice(bound) if exact else None
        change = feature_map or _same
        dimension = change(z[:1]).shape[1] if len(z) else change(np.zeros((1, z.shape[1]))).shape[1]
        if len(z) <= dimension:
            part: Factor | Gram = factor_of(change(z), y, lattice, secret)
        else:
            part = gram_of(z, y, lattice, change)
        return cls(dimension, (part,), lattice)

    # -- what it holds -------------------------------------------------------------------------

    @cached_property
    def _gram(self) -> Gram:
        if isinstance(self._only, Gram):
            return self._only
        fold = Fold(self.dimension, self.lattice)
        for part in self._parts:
            fold.add(part)
        gram = fold.result()
        if len(self._parts) > 1:  # a lone factor stays what is sent
            self._parts = (gram,)
        return gram

    @property
    def exact(self) -> bool:
        return self.lattice is not None

    @property
    def classes(self) -> Labels:
        """The classes somebody has shown, sorted."""
        return frozen((self._only or self._gram).classes)

    @property
    def counts(self) -> NDArray[np.int64]:
        """g: samples of each class."""
        return frozen((self._only or self._gram).counts)

    @property
    def _only(self) -> Factor | Gram | None:
        return self._parts[0] if len(self._parts) == 1 else None

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    def whole(self) -> Gram:
        """A, B and g as they are added: whole numbers in exact mode."""
        return self._gram

    def gram(self) -> NDArray[np.float64]:
        """A = ZᵀZ, symmetric, in the features' own units."""
        a = self._gram.a.astype(np.float64)
        for i in range(self.dimension):  # the lower half from the upper, without index arrays
            a[i + 1 :, i] = a[i, i + 1 :]
        if self.lattice:
            a *= self.lattice.step**2
        return a

    def trace(self) -> float:
        """tr(A) = Σ‖z‖², in the features' own units; factors are not multiplied out for it."""
        squares = sum(
            float(np.vdot(rows := part.rows(), rows))
            if isinstance(part, Factor)
            else float(np.trace(part.a, dtype=np.float64))
            for part in self._parts
        )
        return squares * self.lattice.step**2 if self.lattice else squares

    def class_sums(self) -> NDArray[np.float64]:
        """B = YᵀZ, one row per class, in the features' own units."""
        sums = self._gram.b.astype(np.float64)
        return sums * self.lattice.step if self.lattice else sums

    def __repr__(self) -> str:
        mode = f", exact within ±{self.lattice.bound:g}" if self.lattice else ""
        return (
            f"Moments({self.samples} samples, {len(self.classes)} classes, "
            f"dimension {self.dimension}{mode})"
        )

    # -- sums ----------------------------------------------------------------------------------

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        check_alike(self, other)
        result = Moments(self.dimension, self._parts + other._parts, self.lattice)
        waiting = sum(p.y.size + p.z.size for p in result._parts if isinstance(p, Factor))
        grams = sum(isinstance(p, Gram) for p in result._parts)
        if waiting > _WAITING or grams > 1:
            _ = result._gram
        return result

    def __radd__(self, other: object) -> Moments:
        return self if other == 0 else NotImplemented  # the start of sum()

    def __sub__(self, other: Moments) -> Moments:
        """What is left when `other` had never joined: to the bit in exact mode."""
        if not isinstance(other, Moments):
            return NotImplemented
        check_alike(self, other)
        return Moments(self.dimension, (difference(self._gram, other._gram),), self.lattice)

    @classmethod
    def total(cls, statistics: Iterable[Moments]) -> Moments:
        fold: Fold | None = None
        first: Moments | None = None
        for item in statistics:
            if fold is None or first is None:
                first, fold = item, Fold(item.dimension, item.lattice)
            check_alike(first, item)
            for part in item._parts:
                fold.add(part)
        if fold is None or first is None:
            raise DataError("total: expected at least one statistic, got none")
        return cls(first.dimension, (fold.result(),), first.lattice)

    def digest(self) -> str:
        """SHA-256 of the canonical total; in exact mode the same for every split and order."""
        gram = self._gram
        packed = gram_arrays(gram)
        head = (self.dimension, self.lattice)
        return fingerprint("moments", (*head, *(packed[name] for name in sorted(packed))))

    # -- arrays and bytes ----------------------------------------------------------------------

    def to_arrays(self, precision: str | None = None) -> dict[str, Array]:
        """Named arrays; `precision` float64 (default here), float32, float16 or int8."""
        precision = check_precision(precision or "float64", self.exact)
        only = self._only
        if precision == "float64" and (len(self._parts) != 1 or isinstance(only, Gram)):
            arrays = gram_arrays(self._gram)
        else:
            arrays = factor_arrays(self._factor(), precision)
        if self.lattice:
            arrays["bound"] = np.array(self.lattice.bound)
        arrays["dimension"] = np.array(self.dimension, np.int64)
        return {name: frozen(array) for name, array in arrays.items()}

    def _factor(self) -> Factor:
        if isinstance(self._only, Factor):
            return self._only
        factors = [p for p in self._parts if isinstance(p, Factor)]
        if len(factors) == len(self._parts) and sum(map(len, factors)) <= self.dimension:
            return joined(self.dimension, factors)
        return root(self._gram)

    @classmethod
    def from_arrays(cls, arrays: Arrays, limits: Limits | None = None) -> Self:
        """The inverse of `to_arrays`, with every check of a message (`WireError` when refused)."""
        kind = "gram" if "a" in arrays else "factor"
        return cls._checked(kind, wire.checked(kind, arrays, SCHEMAS[kind]), limits or OWN)

    def to_bytes(self, precision: str | None = None) -> bytes:
        """The message: float32 unless said otherwise; exact statistics are always sent whole."""
        arrays = self.to_arrays(precision or (None if self.lattice else "float32"))
        return wire.encode("gram" if "a" in arrays else "factor", arrays)

    @classmethod
    def from_bytes(cls, data: bytes, limits: Limits | None = None) -> Self:
        """Decode and check a message; `WireError`, with a stable code, when it is refused.

        With `limits` it is held to what one client can send; without, to what this program writes
        (sums, and messages at any precision sent on).
        """
        kind, arrays = wire.decode(data, SCHEMAS, limits or OWN)
        return cls._checked(kind, arrays, limits or OWN)

    @classmethod
    def _checked(cls, kind: str, arrays: Arrays, limits: Limits) -> Self:
        classes = wire.labels_of(arrays, limits)
        counts = wire.check_counts(arrays, limits, len(classes))
        dimension = wire.dimension_of(arrays, limits)
        lattice = wire.lattice_of(arrays, limits)
        if kind == "factor":
            factor = read_factor(dimension, classes, counts, arrays)
            check_factor(factor, lattice, limits)
            return cls(dimension, (factor,), lattice)
        gram = read_gram(dimension, classes, counts, arrays, lattice)
        check_gram(gram, lattice, limits)
        return cls(dimension, (gram,), lattice)


def _same(z: Array) -> Array:
    return z


class Fold:
    """A sum in place: rows of factors wait in a buffer, and one SYRK at a time empties it."""

    def __init__(self, dimension: int, lattice: Lattice | None) -> None:
        d = self._d = dimension
        self._lattice = lattice
        self._a: Array = np.zeros((d, d), np.int64 if lattice else np.float64)
        self._b = np.zeros((0, d))
        self._counts = np.zeros(0, np.int64)
        self._slots = Slots()
        rows = max(64, BUFFER_BYTES // (8 * d))
        self._buffer = np.empty((min(rows, lattices.FACTOR_ROWS) if lattice else rows, d))
        self._used = 0

    def add(self, part: Factor | Gram) -> None:
        slots = self._slots.places(part.classes)
        self._b = grown(self._b, len(self._slots))
        self._counts = grown(self._counts, len(self._slots))
        self._counts[slots] += part.counts
        if isinstance(part, Gram):
            self._b[slots] += part.b
            self._a += part.a
        else:
            b = self._stack(part)
            self._b[slots] += whole(b) if self._lattice else b

    def _stack(self, factor: Factor) -> NDArray[np.float64]:
        """Copy a factor into the buffer, never split: on a lattice only RᵀR of a whole R is whole.

        Returns its B = R_yᵀR_z.
        """
        n = len(factor)
        if self._used + n > len(self._buffer):
            self._flush()
        if n > len(self._buffer):
            self._buffer = np.empty((n, self._d))
        rows = self._buffer[self._used : self._used + n]
        self._used += n
        factor.unpack(rows)
        return factor.labels().T @ rows

    def _flush(self) -> None:
        """A += RᵀR over the waiting rows; on a lattice their sum is whole, and checked to be."""
        rows, self._used = self._buffer[: self._used], 0
        if len(rows):
            a = rows.T @ rows  # NumPy's SYRK: another BLAS than that of B would fight for its cores
            self._a += whole(a).astype(np.int64) if self._lattice else a

    def result(self) -> Gram:
        self._flush()
        classes, order = self._slots.sorted()
        counts, b = self._counts[order], self._b[order]
        shown = counts > 0
        if self._lattice:
            lattices.check_total(int(counts.sum()))
        b = b.astype(np.int64) if self._lattice else b
        return Gram(classes[shown], counts[shown], self._a, b[shown])

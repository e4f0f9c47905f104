"""Sums with noise: what a differentially private release holds, read as `Moments` are.

Whole numbers in steps of the lattice of bound 1, counts among them. Noise breaks parity, positivity
and bounds, so only ranges and shapes are checked; and nothing is subtracted, for the difference of
two releases is noise and a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError, WireError
from headstart.labels import Labels
from headstart.statistics import wire
from headstart.statistics.base import fingerprint
from headstart.statistics.exact import LEVELS
from headstart.statistics.wire import CLASSES, Arrays, Field, Limits, Schema

Array = NDArray[Any]
_MOST = 2**62
_PARTS = ("counts", "sums", "gram")
_GIVEN = ("direction", "projection", "correction")
_SCHEMA: dict[str, Schema] = {
    "noisy-sums": {
        "dimension": Field(("I64",), ()),
        "classes": CLASSES,
        "counts": Field(("I64",), ("C",)),
        "sums": Field(("I64",), ("C", "d")),
        "gram": Field(("I64",), ("t",), optional=True),
        "variances": Field(("F64",), ("p",)),
        "direction": Field(("F64",), ("d",), optional=True),
        "projection": Field(("F64",), ("D", "d"), optional=True),
        "correction": Field(("F64",), ("C", "d"), optional=True),
    }
}


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Counts, class sums and perhaps A (its upper triangle), each with noise of a known variance.

    `direction`: what was taken out of every feature first. `projection`: the columns (D×d) along
    which features were taken before that. `correction`: what a later message adds to the class
    means at unit length. `statement`: what is promised, as plain values; it does not travel.
    """

    dimension: int
    classes: Labels
    tables: Mapping[str, Array]
    variances: Mapping[str, float]  # of each table, in steps; of A that of the diagonal
    direction: NDArray[np.float64] | None = None
    projection: NDArray[np.float64] | None = None
    correction: NDArray[np.float64] | None = None
    statement: Mapping[str, Any] = field(default_factory=dict)

    is_sum: ClassVar[bool] = True
    lattice: ClassVar[None] = None  # exact numbers no longer

    @property
    def counts(self) -> NDArray[np.float64]:
        """Samples of each class, at least one: a class that was left out would be revealed."""
        return np.maximum(self.tables["counts"] / LEVELS, 1.0)

    @property
    def samples(self) -> int:
        return max(1, round(float(self.tables["counts"].sum()) / LEVELS))

    def class_sums(self) -> NDArray[np.float64]:
        """B, one row per class."""
        return self.tables["sums"] / LEVELS

    def gram(self) -> NDArray[np.float64]:
        """A, symmetric; it may have negative eigenvalues."""
        if "gram" not in self.tables:
            raise DataError("noisy sums: expected second moments, got a release of class sums")
        a = np.zeros((self.dimension, self.dimension))
        a[np.triu_indices(self.dimension)] = self.tables["gram"] / LEVELS**2
        return a + np.triu(a, 1).T

    def sigma(self, part: str) -> float:
        """The deviation of the noise on `counts`, `sums` or `gram`, in the features' own units."""
        return float(np.sqrt(self.variances[part])) / LEVELS ** (2 if part == "gram" else 1)

    def __repr__(self) -> str:
        parts = ", ".join(self.tables)
        return f"NoisySums({parts} of {len(self.classes)} classes, dimension {self.dimension})"

    def __add__(self, other: NoisySums) -> NoisySums:
        return NoisySums.total([self, other]) if isinstance(other, NoisySums) else NotImplemented

    def __radd__(self, other: object) -> NoisySums:
        return self if other == 0 else NotImplemented  # the start of sum()

    @classmethod
    def total(cls, statistics: Iterable[NoisySums]) -> NoisySums:
        """Numbers and variances add; what is promised of each is that of its own release."""
        so_far: NoisySums | None = None
        for item in statistics:
            so_far = item if so_far is None else _sum(so_far, item)
        if so_far is None:
            raise DataError("total: expected at least one statistic, got none")
        return so_far

    def digest(self) -> str:
        """SHA-256 of the noisy numbers."""
        arrays = self.to_arrays()
        return fingerprint("noisy-sums", (arrays[name] for name in sorted(arrays)))

    def to_arrays(self, precision: str | None = None) -> dict[str, Array]:
        arrays: dict[str, Array] = {
            "dimension": np.array(self.dimension, np.int64),
            "classes": wire.pack_labels(self.classes),
            "variances": np.array([self.variances[p] for p in _PARTS if p in self.variances]),
            **self.tables,
        }
        given = {name: getattr(self, name) for name in _GIVEN}
        return arrays | {name: array for name, array in given.items() if array is not None}

    @classmethod
    def from_arrays(cls, arrays: Arrays, limits: Limits | None = None) -> Self:
        limits = limits or Limits()
        wire.checked("noisy-sums", arrays, _SCHEMA["noisy-sums"])
        classes = wire.unpack_labels(arrays["classes"])
        tables = {part: arrays[part] for part in _PARTS if part in arrays}
        dimension = wire.dimension_of(arrays, limits)
        _check_tables(tables, dimension, len(classes))
        variances = arrays["variances"]
        if len(variances) != len(tables) or not (variances > 0).all():
            raise WireError("shape", f"variances: expected {len(tables)} above 0")
        by_table = dict(zip(tables, variances.tolist(), strict=True))
        direction, projection, corrected = (arrays.get(name) for name in _GIVEN)
        return cls(dimension, classes, tables, by_table, direction, projection, corrected)

    def to_bytes(self, precision: str | None = None) -> bytes:
        """The message: whole numbers, whatever the precision of other statistics."""
        return wire.encode("noisy-sums", self.to_arrays())

    @classmethod
    def from_bytes(cls, data: bytes, limits: Limits | None = None) -> Self:
        """Decode and check one message; `WireError`, with a stable code, when it is refused."""
        _, arrays = wire.decode(data, _SCHEMA, limits or Limits())
        return cls.from_arrays(arrays, limits)


def _check_tables(tables: Mapping[str, Array], dimension: int, classes: int) -> None:
    shapes = {
        "counts": (classes,),
        "sums": (classes, dimension),
        "gram": (dimension * (dimension + 1) // 2,),
    }
    for part, table in tables.items():
        if table.shape != shapes[part]:
            raise WireError("shape", f"{part}: expected {shapes[part]}, got {table.shape}")
        if table.size and max(int(table.max()), -int(table.min())) > _MOST:
            raise WireError("bound", f"{part}: expected numbers within 62 bits")


def _sum(left: NoisySums, right: NoisySums) -> NoisySums:
    same = (
        left.dimension == right.dimension
        and np.array_equal(left.classes, right.classes)
        and set(left.tables) == set(right.tables)
        and all(_alike(getattr(left, name), getattr(right, name)) for name in _GIVEN)
    )
    if not same:
        raise DataError("noisy sums: expected those of one release: the same parts and classes")
    tables = {part: left.tables[part] + right.tables[part] for part in left.tables}
    _check_tables(tables, left.dimension, len(left.classes))
    variances = {part: left.variances[part] + right.variances[part] for part in left.variances}
    return replace(left, tables=tables, variances=variances, statement={})


def _alike(left: Array | None, right: Array | None) -> bool:
    if left is None or right is None:
        return left is right
    return np.array_equal(left, right)

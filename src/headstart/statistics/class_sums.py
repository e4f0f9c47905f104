"""First moments: the counts of each class, its sum of features, its sum of squares. They add.

Tables hold what a head needs: sums B_c (C×d), squares elementwise (C×d) or in all (C×1); with no
table at all only the counts travel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError, WireError
from headstart.labels import Labels
from headstart.statistics import wire
from headstart.statistics.base import (
    LARGEST,
    ROWS,
    Slots,
    check_alike,
    check_norms,
    check_precision,
    check_samples,
    fingerprint,
    grown,
    lattice_norm,
    pack_rows,
    remaining,
    rounding,
    unpack_rows,
)
from headstart.statistics.exact import LEVELS, MOST_SAMPLES, Lattice, check_total
from headstart.statistics.wire import CLASSES, OWN, Arrays, Field, Limits, Schema, lattice_of

Array = NDArray[Any]
SQUARES = ("none", "diagonal", "spherical")

_SUMS_SCHEMA: dict[str, Schema] = {
    "class-sums": {
        "dimension": Field(("I64",), ()),
        "classes": CLASSES,
        "counts": Field(("I64",), ("C",)),
        "sums": Field(ROWS, ("C", "d"), optional=True),
        "sums_scale": Field(("F32",), ("C",), optional=True),
        "squares": Field(("F64", "F32", "I64"), ("C", "q"), optional=True),
        "bound": Field(("F64",), (), optional=True),
    }
}


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Counts of each class, with its sum of features and of their squares where asked for."""

    dimension: int
    classes: Labels
    counts: NDArray[np.int64]
    tables: dict[str, Array] = field(default_factory=dict)  # "sums" C×d, "squares" C×d or C×1
    lattice: Lattice | None = None

    is_sum: ClassVar[bool] = True

    @classmethod
    def measure(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        *,
        exact: bool = False,
        bound: float = 16.0,
        secret: bytes | None = None,
        sums: bool = True,
        squares: str = "none",
    ) -> Self:
        """One client's class sums; `squares` is none, diagonal or spherical.

        `secret` is there for likeness: nothing in these sums is drawn at random.
        """
        if squares not in SQUARES:
            raise DataError(f"squares: expected one of {', '.join(SQUARES)}, got {squares!r}")
        z, y = check_samples(features, labels)
        lattice = Lattice(bound) if exact else None
        rows = lattice.quantize(z) if lattice else z.astype(np.float64)
        classes, inverse, counts = np.unique(y, return_inverse=True, return_counts=True)
        tables = {}
        if sums:
            tables["sums"] = _grouped(rows, inverse, len(classes), lattice)
        if squares != "none":
            table = _grouped(rows**2, inverse, len(classes), lattice)
            tables["squares"] = table if squares == "diagonal" else table.sum(1, keepdims=True)
        if lattice:
            check_total(len(y) * (z.shape[1] if squares == "spherical" else 1))
        return cls(z.shape[1], classes, counts.astype(np.int64), tables, lattice)

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    @property
    def exact(self) -> bool:
        return self.lattice is not None

    def class_sums(self) -> NDArray[np.float64]:
        """B: one row per class, in the features' own units."""
        return self._table("sums") * (self.lattice.step if self.lattice else 1.0)

    def squares(self) -> NDArray[np.float64]:
        """Σ z² of each class, elementwise (C×d) or in all (C×1), in the features' own units."""
        return self._table("squares") * (self.lattice.step**2 if self.lattice else 1.0)

    def _table(self, name: str) -> NDArray[np.float64]:
        if name not in self.tables:
            raise DataError(f"class sums: expected {name}, which these clients did not send")
        return self.tables[name].astype(np.float64)

    def __repr__(self) -> str:
        holds = ", ".join(["counts", *self.tables])
        return f"ClassSums({holds} of {len(self.classes)} classes, {self.samples} samples)"

    def __add__(self, other: ClassSums) -> ClassSums:
        return ClassSums.total([self, other]) if isinstance(other, ClassSums) else NotImplemented

    def __radd__(self, other: object) -> ClassSums:
        return self if other == 0 else NotImplemented  # the start of sum()

    def __sub__(self, other: ClassSums) -> ClassSums:
        """What is left when `other` had never joined; a class back at zero leaves."""
        if not isinstance(other, ClassSums):
            return NotImplemented
        check_alike(self, other)
        _check_tables(self.tables, other.tables)
        at, counts = remaining(self.classes, self.counts, other.classes, other.counts)
        left, tables = counts > 0, {}
        for name, table in self.tables.items():
            rest = table.copy()
            rest[at] -= other.tables[name]
            if self.lattice and rest[~left].any():
                raise DataError("subtract: expected a part of this sum, got other samples")
            tables[name] = rest[left]
        return replace(self, classes=self.classes[left], counts=counts[left], tables=tables)

    @classmethod
    def total(cls, statistics: Iterable[ClassSums]) -> ClassSums:
        slots, counts, first = Slots(), np.zeros(0, np.int64), None
        tables: dict[str, Array] = {}
        for item in statistics:
            if first is None:
                first = item
                tables = {name: table[:0].copy() for name, table in item.tables.items()}
            check_alike(first, item)
            _check_tables(tables, item.tables)
            at = slots.places(item.classes)
            counts = grown(counts, len(slots))
            counts[at] += item.counts
            for name, table in item.tables.items():
                tables[name] = grown(tables[name], len(slots))
                tables[name][at] += table
        if first is None:
            raise DataError("total: expected at least one statistic, got none")
        return _sorted_total(first, slots, counts, tables)

    def digest(self) -> str:
        """SHA-256 of the canonical total; in exact mode the same for every split and order."""
        tables = [item for name in sorted(self.tables) for item in (name, self.tables[name])]
        labels = wire.pack_labels(self.classes)
        head = (self.dimension, self.lattice, labels, self.counts)
        return fingerprint("class-sums", (*head, *tables))

    def to_arrays(self, precision: str | None = None) -> dict[str, Array]:
        precision = check_precision(precision or "float64", self.exact)
        arrays: dict[str, Array] = {
            "dimension": np.array(self.dimension, np.int64),
            "classes": wire.pack_labels(self.classes),
            "counts": self.counts,
        }
        if "sums" in self.tables:
            arrays |= pack_rows("sums", self.tables["sums"], precision)
        if "squares" in self.tables:  # differences are taken of them: never below float32
            low = precision if precision == "float64" or self.exact else "float32"
            arrays |= pack_rows("squares", self.tables["squares"], low)
        return arrays | ({"bound": np.array(self.lattice.bound)} if self.lattice else {})

    @classmethod
    def from_arrays(cls, arrays: Arrays, limits: Limits | None = None) -> Self:
        limits = limits or OWN
        wire.checked("class-sums", arrays, _SUMS_SCHEMA["class-sums"])
        classes = wire.labels_of(arrays, limits)
        counts = wire.check_counts(arrays, limits, len(classes))
        lattice = lattice_of(arrays, limits)
        tables = {n: unpack_rows(n, arrays) for n in ("sums", "squares") if n in arrays}
        dimension = wire.dimension_of(arrays, limits)
        result = cls(dimension, classes, counts, tables, lattice)
        moved = rounding(arrays["sums"], arrays.get("sums_scale")) if "sums" in arrays else 0.0
        _check_sums(result, limits, moved)
        _check_squares(result, Rounding.of(arrays, limits.total))
        return result

    def to_bytes(self, precision: str | None = None) -> bytes:
        """The message: float32 unless said otherwise; exact statistics are always sent whole."""
        return wire.encode(
            "class-sums", self.to_arrays(precision or (None if self.exact else "float32"))
        )

    @classmethod
    def from_bytes(cls, data: bytes, limits: Limits | None = None) -> Self:
        """Decode and check a message; `WireError`, with a stable code, when it is refused.

        `limits`: as of `Moments.from_bytes`.
        """
        _, arrays = wire.decode(data, _SUMS_SCHEMA, limits or OWN)
        return cls.from_arrays(arrays, limits)


def _check_tables(left: dict[str, Array], right: dict[str, Array]) -> None:
    widths = [{name: table.shape[1] for name, table in side.items()} for side in (left, right)]
    if widths[0] != widths[1]:
        raise DataError(f"class sums: expected tables of widths {widths[0]}, got {widths[1]}")


def _grouped(
    rows: NDArray[np.float64], inverse: Array, classes: int, lattice: Lattice | None
) -> Array:
    """The sum of each class; in int64 on a lattice, where squares soon leave 53 bits."""
    dtype = np.int64 if lattice else np.float64
    table: Array = np.zeros((classes, rows.shape[1]), dtype)
    np.add.at(table, inverse.reshape(-1), rows.astype(dtype, copy=False))
    return table


def _sorted_total(
    first: ClassSums, slots: Slots, counts: NDArray[np.int64], tables: dict[str, Array]
) -> ClassSums:
    classes, order = slots.sorted()
    order = order[counts[order] > 0]
    classes = classes[counts[slots.places(classes)] > 0] if len(classes) else classes
    if first.lattice:
        check_total(int(counts.sum()) * _summed(first.dimension, tables))
    tables = {name: table[order] for name, table in tables.items()}
    return ClassSums(first.dimension, classes, counts[order], tables, first.lattice)


def _summed(dimension: int, tables: dict[str, Array]) -> int:
    """How many squares of a sample meet in one number."""
    spherical = "squares" in tables and tables["squares"].shape[1] == 1
    return dimension if spherical else 1


def _check_sums(stat: ClassSums, limits: Limits, moved: NDArray[np.float64] | float) -> None:
    """Shapes and types; and what samples within the bounds can sum to, without `abs` (−2⁶³).

    `moved`: how far the precision of the message may have moved a number of each row.
    """
    d, classes = stat.dimension, len(stat.classes)
    widths = {"sums": (d,), "squares": (1, d)}
    for name, table in stat.tables.items():
        if table.shape[1] not in widths[name] or len(table) != classes:
            raise WireError("shape", f"{name}: expected {classes} rows of {d}, got {table.shape}")
        if (table.dtype.kind == "i") != stat.exact:
            raise WireError("dtype", f"{name}: expected whole numbers in exact mode only")
    if stat.samples * _summed(d, stat.tables) > MOST_SAMPLES and stat.exact:
        raise WireError("counts", f"counts: {stat.samples} samples could leave 62 bits")
    bound = LEVELS if stat.exact else (limits.bound or LARGEST) * (1 + 1e-6)
    sums, squares, counts = stat.tables.get("sums"), stat.tables.get("squares"), stat.counts
    if squares is not None and (squares < 0).any():
        raise WireError("impossible", "squares: expected none below 0")
    _check_within("sums", sums, counts[:, None] * bound, bound)
    most = counts[:, None] * (_summed(d, stat.tables) * bound**2)
    _check_within("squares", squares, most, bound)
    norm = lattice_norm(stat.lattice, d, limits) if stat.lattice else limits.norm
    if norm is not None:
        norm *= 1 + 1e-6
        if sums is not None:
            check_norms("sums", sums, counts, norm, moved)
        if squares is not None and (squares.sum(1, dtype=np.float64) > counts * norm**2).any():
            raise WireError("bound", f"squares: beyond their samples of norm {norm:g}")


def _check_within(name: str, table: Array | None, most: Array, bound: float) -> None:
    if table is not None and ((table > most).any() or (table < -most).any()):
        raise WireError("bound", f"{name}: beyond their samples within ±{bound:g}")


@dataclass(frozen=True)
class Rounding:
    """How far a message's precision can have moved its tables.

    `sums`: of each row, in its own units; `relative`: of sums and squares, for their size;
    `least`: of a square, where float32 ends.
    """

    sums: NDArray[np.float64]
    relative: float
    least: float

    @classmethod
    def of(cls, arrays: Arrays, total: bool) -> Rounding:
        sums, squares = arrays.get("sums"), arrays.get("squares")
        if sums is None or squares is None or sums.dtype.kind == "i" == squares.dtype.kind:
            return cls(np.zeros(len(arrays["counts"])), 0.0, 0.0)
        if total:  # of float16 or int8 messages, whatever it is kept in itself
            reach = np.sqrt(arrays["counts"] * squares.sum(axis=1, dtype=np.float64))
            return cls(reach / 254, 1e-2, 1e-12)
        n = int(arrays["counts"].sum())
        unit = 2.0**-24 if 4 in (sums.dtype.itemsize, squares.dtype.itemsize) else 2.0**-53
        least = 1e-37 if squares.dtype.itemsize == 4 else 1e-290
        return cls(rounding(sums, arrays.get("sums_scale")), 8 * unit + 8 * n * 2.0**-53, least)


def _check_squares(stat: ClassSums, error: Rounding) -> None:
    """Schwarz: (Σz)² ≤ g·Σz² in each class, with equality for a single sample."""
    sums, squares = stat.tables.get("sums"), stat.tables.get("squares")
    if sums is None or squares is None:
        return
    if stat.exact:
        _check_whole_squares(stat.counts[:, None], sums, squares)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(sums)
        least = np.maximum(size - error.sums[:, None], 0.0) ** 2
        most = (size + error.sums[:, None]) ** 2
        if squares.shape[1] < sums.shape[1]:
            least, most = least.sum(1, keepdims=True), most.sum(1, keepdims=True)
        limit = stat.counts[:, None] * (squares * (1 + error.relative) + error.least)
        sound = (least <= limit) & np.isfinite(limit)
        lone = stat.counts == 1
        sound[lone] &= (squares <= most * (1 + error.relative) + error.least)[lone]
    if not sound.all():
        raise WireError("impossible", "squares: not those that the sums allow")


def _check_whole_squares(
    counts: NDArray[np.int64], sums: NDArray[np.int64], squares: NDArray[np.int64]
) -> None:
    """g whole numbers with the sum s = gm + t have Σz² ≥ gm² + 2mt + t, and the parity of s."""
    mean, left = np.divmod(sums, counts)
    least = counts * mean**2 + 2 * mean * left + left
    if squares.shape[1] < sums.shape[1]:
        least, sums = least.sum(1, keepdims=True), sums.sum(1, keepdims=True)
    if ((squares - sums) & 1).any():
        raise WireError("parity", "exact statistics: squares and sums differ modulo 2")
    lone = counts[:, 0] == 1
    if (squares < least).any() or (squares != least)[lone].any():
        raise WireError("impossible", "squares: not those that the sums allow")

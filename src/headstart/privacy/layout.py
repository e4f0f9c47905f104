"""The vector that is masked: exact integers at places known beforehand, whatever a client holds.

[g | A (upper triangle) | B | squares] over a class list that all agree on: a masked message cannot
have a shape that depends on the data. Integers are taken modulo 2^64; a round
whose sums could leave ±2^62 is refused, so the sign survives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import WireError
from headstart.labels import Labels, as_labels
from headstart.privacy.refusals import Abort
from headstart.statistics import wire
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.exact import MOST_SAMPLES, Lattice
from headstart.statistics.fixed import FixedSums
from headstart.statistics.moments import Moments
from headstart.statistics.wire import Arrays, Field, Limits, Schema

Array = NDArray[Any]
MOST_NUMBERS = 2**27  # of a masked vector: a gigabyte

SCHEMA: Schema = {
    "dimension": Field(("I64",), ()),
    "classes": wire.CLASSES,
    "bound": Field(("F64",), ()),
    "tables": Field(("I64",), ("four",)),
}


@dataclass(frozen=True, eq=False)
class Layout:
    """What stands where; `squares` is the width of that table (0: none).

    `fixed`: `dimension` numbers in fixed point, and no classes.
    """

    dimension: int
    classes: Labels
    bound: float
    gram: bool = True
    sums: bool = True
    squares: int = 0
    fixed: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= MOST_NUMBERS or self.size > MOST_NUMBERS:
            raise Abort("layout", f"layout: expected at most {MOST_NUMBERS} numbers a message")
        tables = self.gram or self.sums or self.squares
        if self.fixed and (tables or len(self.classes)):
            raise Abort("layout", "layout: expected no tables of classes beside fixed numbers")
        if self.squares not in (0, 1, self.dimension) or (self.gram and not self.sums):
            raise Abort("layout", "layout: expected the tables of Moments or of ClassSums")
        Lattice(self.bound)

    @classmethod
    def of(cls, statistic: Any, classes: ArrayLike) -> Layout:
        """For statistics like this one (an empty client's will do) over these classes."""
        _check_kind(statistic)
        if isinstance(statistic, FixedSums):
            bound = statistic.lattice.bound
            return cls(statistic.dimension, statistic.classes, bound, False, False, 0, True)
        widths = _widths(statistic)
        return cls(
            statistic.dimension,
            np.unique(as_labels(classes, "classes")),
            statistic.lattice.bound,
            isinstance(statistic, Moments),
            "sums" in widths,
            widths.get("squares", 0),
        )

    @property
    def parts(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each part, in the order of the vector."""
        d, c = self.dimension, len(self.classes)
        if self.fixed:
            return {"values": (d,)}
        shapes: dict[str, tuple[int, ...]] = {"counts": (c,)}
        if self.gram:
            shapes["a"] = (d * (d + 1) // 2,)
        if self.sums:
            shapes["b" if self.gram else "sums"] = (c, d)
        if self.squares:
            shapes["squares"] = (c, self.squares)
        return shapes

    @property
    def size(self) -> int:
        """Numbers in the vector."""
        c, d = len(self.classes), self.dimension
        if self.fixed:
            return d
        triangle = d * (d + 1) // 2 if self.gram else 0
        return c + triangle + c * (d * self.sums + self.squares)

    @property
    def most_samples(self) -> int:
        """Of all clients together: n·2^(2b−2) ≤ 2^62, d times that where all squares meet."""
        return MOST_SAMPLES // (self.dimension if self.squares == 1 else 1)

    def empty(self) -> Any:
        """The statistic of no samples, of this form."""
        return self.restore(np.zeros(self.size, np.uint64), 0)

    def flatten(self, statistic: Any) -> NDArray[np.uint64]:
        """A client's statistic as the vector; whatever does not fit is refused, by name."""
        self.check(statistic)
        if self.fixed:
            values: NDArray[np.int64] = statistic.values
            return values.copy().view(np.uint64)
        # A total of one: second moments become their Gram matrix, however few the samples.
        arrays = type(statistic).total([statistic]).to_arrays()
        own = statistic.classes
        at = np.searchsorted(self.classes, own) if len(own) else np.zeros(0, np.intp)
        pieces = []
        for name, shape in self.parts.items():
            piece = arrays[name]
            if name != "a":  # one row a class: to its agreed place
                piece = np.zeros(shape, np.int64)
                piece[at] = arrays[name]
            pieces.append(piece.reshape(-1))
        return np.concatenate(pieces).astype(np.int64, copy=False).view(np.uint64)

    def restore(self, vector: NDArray[np.uint64], samples: int) -> Any:
        """The statistic of a summed vector, with every check of an upload.

        Agreed classes of which nobody has samples are left out; sums for them are refused.
        """
        if self.fixed:
            return FixedSums.from_arrays({"values": vector.view(np.int64)})
        arrays: dict[str, Array] = {
            "dimension": np.array(self.dimension, np.int64),
            "classes": wire.pack_labels(self.classes),
            "bound": np.array(self.bound),
        }
        numbers, end = vector.view(np.int64), 0
        for name, shape in self.parts.items():
            start, end = end, end + int(np.prod(shape))
            arrays[name] = numbers[start:end].reshape(shape)
        limits = Limits(
            samples=samples,
            bound=self.bound,
            dimension=self.dimension,
            classes=len(self.classes),
            total=True,
        )
        arrays |= self._shown(arrays)
        return (Moments if self.gram else ClassSums).from_arrays(arrays, limits)

    def _shown(self, arrays: Arrays) -> dict[str, Array]:
        """What stands by class, without the classes whose count is 0."""
        absent = arrays["counts"] == 0
        rows = [name for name in self.parts if name != "a"]
        if any(arrays[name][absent].any() for name in rows):
            raise WireError("impossible", "secure sum: sums for a class without samples")
        shown: dict[str, Array] = {name: arrays[name][~absent] for name in rows}
        return shown | {"classes": wire.pack_labels(self.classes[~absent])}

    def check(self, statistic: Any) -> None:
        """Refuse a statistic that does not fit, before anything of it is sent."""
        _check_kind(statistic)
        theirs = Layout.of(statistic, self.classes)
        for name in ("gram", "dimension", "bound", "sums", "squares", "fixed"):
            if getattr(theirs, name) != getattr(self, name):
                raise Abort(
                    "layout",
                    f"{name}: expected {getattr(self, name)} as agreed, "
                    f"got {getattr(theirs, name)}",
                )
        unknown = sorted(set(statistic.classes.tolist()) - set(self.classes.tolist()), key=str)
        if unknown:
            raise Abort(
                "layout", f"classes: expected those agreed beforehand, got {unknown[0]!r} too"
            )

    def to_arrays(self) -> dict[str, Array]:
        return {
            "dimension": np.array(self.dimension, np.int64),
            "classes": wire.pack_labels(self.classes),
            "bound": np.array(self.bound),
            "tables": np.array([self.gram, self.sums, self.squares, self.fixed], np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Layout:
        tables = arrays["tables"].tolist()
        if len(tables) != 4 or not {tables[0], tables[1], tables[3]} <= {0, 1}:
            raise WireError("shape", f"tables: expected four numbers, got {tables[:5]}")
        wire.lattice_of(arrays, Limits())
        classes = wire.unpack_labels(arrays["classes"])
        gram, sums, squares, fixed = bool(tables[0]), bool(tables[1]), tables[2], bool(tables[3])
        dimension, bound = int(arrays["dimension"]), float(arrays["bound"])
        return cls(dimension, classes, bound, gram, sums, squares, fixed)


def _check_kind(statistic: Any) -> None:
    """Rows are refused by type; so is everything that is no sum of exact integers."""
    kind = statistic if isinstance(statistic, type) else type(statistic)
    if not getattr(kind, "is_sum", True):
        raise Abort("rows", f"secure sum: {kind.__name__} are rows, not sums; no mask hides them")
    if (
        not issubclass(kind, (Moments, ClassSums, FixedSums))
        or getattr(statistic, "lattice", None) is None
    ):
        raise Abort(
            "inexact",
            f"secure sum: expected exact Moments or ClassSums, got {kind.__name__} "
            f"of floating-point numbers; measure with exact=True",
        )


def _widths(statistic: Moments | ClassSums) -> dict[str, int]:
    if isinstance(statistic, Moments):
        return {"sums": statistic.dimension}
    return {name: table.shape[1] for name, table in statistic.tables.items()}

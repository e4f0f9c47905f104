"""What leaves a client: named arrays, nothing else; and how a server adds them as they come."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError, WireError
from headstart.labels import Labels, as_labels, same_kind
from headstart.statistics.exact import Lattice
from headstart.statistics.wire import LABEL_LIMIT, Arrays, Limits

PRECISIONS = {
    "float64": "8 bytes per number: nothing is lost",
    "float32": "4 bytes per number, the default",
    "float16": "2 bytes per number and a scale per row",
    "int8": "1 byte per number and a scale per row: the smallest message",
}
LARGEST = 1e140  # of a feature: sums of squares must stay numbers
ROWS = ("F64", "F32", "F16", "I8", "I64")  # types of rows on the wire; I64 on a lattice


class Summable(Protocol):
    """Adds, and goes to arrays and bytes and back. Sums also subtract; rows only stack."""

    is_sum: ClassVar[bool]

    def __add__(self, other: Self) -> Self: ...
    def to_arrays(self, precision: str | None = None) -> dict[str, NDArray[Any]]:
        """Return the arrays of its message, at this precision."""
        ...

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self: ...
    def to_bytes(self, precision: str | None = None) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: bytes, limits: Limits | None = None) -> Self: ...
    def digest(self) -> str:
        """Return a SHA-256 of its contents, the same for equal statistics."""
        ...

    @classmethod
    def total(cls, statistics: Iterable[Self]) -> Self: ...


class Statistic(Summable, Protocol):
    """What a head is solved from: a summary of labelled features."""

    @property
    def dimension(self) -> int: ...
    @property
    def lattice(self) -> Lattice | None: ...
    @property
    def classes(self) -> Labels: ...
    @property
    def samples(self) -> int: ...


S = TypeVar("S", bound=Summable)


def total(statistics: Iterable[S]) -> S:
    """The sum of a stream of statistics of one type, in memory that does not grow with it."""
    stream = iter(statistics)
    first = next(stream, None)
    if first is None:
        raise DataError("total: expected at least one statistic, got none")
    if not hasattr(first, "is_sum"):
        raise DataError(f"total: expected statistics, got {type(first).__name__}")
    return type(first).total(_alike(first, stream))


def _alike(first: S, rest: Iterable[S]) -> Iterable[S]:
    yield first
    for item in rest:
        if type(item) is not type(first):
            raise DataError(
                f"total: expected {type(first).__name__} throughout, got {type(item).__name__}"
            )
        yield item


def check_samples(features: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.floating], Labels]:
    """Features (n×d, finite) and their labels, as every measurement expects them."""
    try:
        z = np.asarray(features)
    except ValueError:
        raise DataError("features: expected rows of one length") from None
    if z.ndim != 2 or z.shape[1] == 0:
        raise DataError(f"features: expected a matrix (samples × dimension), got shape {z.shape}")
    if z.dtype.kind not in "fiub":
        raise DataError(f"features: expected numbers, got dtype {z.dtype}")
    y = as_labels(labels)
    if len(y) != len(z):
        raise DataError(f"labels: expected one per sample ({len(z)}), got {len(y)}")
    if y.dtype.kind == "U" and max(map(len, y.tolist()), default=0) > LABEL_LIMIT:
        raise DataError(f"labels: expected at most {LABEL_LIMIT} characters each")
    floats = z if z.dtype.kind == "f" else z.astype(np.float64)
    if not np.isfinite(floats).all():
        row = int(np.flatnonzero(~np.isfinite(floats).all(axis=1))[0])
        raise DataError(f"features: expected finite numbers, got NaN or infinity in row {row}")
    largest = max(float(floats.max(initial=0.0)), -float(floats.min(initial=0.0)))
    if largest > LARGEST:
        raise DataError(f"features: expected numbers up to {LARGEST:g}, got {largest:g}")
    return floats, y


def check_alike(left: Statistic, right: Statistic) -> None:
    """Whether two statistics of a type may meet in one total."""
    if left.dimension != right.dimension:
        raise DataError(
            f"dimension: expected {left.dimension} as in the other statistics, "
            f"got {right.dimension}"
        )
    if left.lattice != right.lattice:
        raise DataError(
            f"{type(left).__name__}: exact statistics of one bound add to their like only, "
            f"got {left.lattice} and {right.lattice}"
        )


def remaining(
    classes: Labels, counts: NDArray[np.int64], part: Labels, taken: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Where the classes of a part stand in a sum, and the counts left without it."""
    at = np.searchsorted(classes, part) if same_kind(classes, part) else np.array([len(classes)])
    if (at >= len(classes)).any() or (classes[at] != part).any():
        raise DataError("subtract: expected a part of this sum, got classes it does not have")
    left = counts.copy()
    left[at] -= taken
    if (left < 0).any():
        raise DataError("subtract: expected a part of this sum, got more samples than it has")
    return at, left


def fingerprint(kind: str, parts: Iterable[object]) -> str:
    """SHA-256 over arrays (with their shapes and types) and plain values, in this order."""
    state = hashlib.sha256(f"headstart {kind} 1".encode())
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(repr((part.shape, part.dtype.str)).encode())
            state.update(np.ascontiguousarray(part).tobytes())
        else:
            state.update(repr(part).encode())
    return state.hexdigest()


def check_precision(precision: str, exact: bool) -> str:
    """Return the precision; refuse an unknown one, and any but float64 for exact sums."""
    if precision not in PRECISIONS:
        raise DataError(f"precision: expected one of {', '.join(PRECISIONS)}, got {precision!r}")
    if exact and precision != "float64":
        raise DataError(f"precision: exact statistics travel whole, not as {precision}")
    return precision


def row_scale(rows: NDArray[np.float64], precision: str) -> NDArray[np.float32]:
    """A scale per row that fits its largest number to float16 (1) or int8 (127)."""
    scale = np.abs(rows).max(axis=1, initial=0.0) / (127 if precision == "int8" else 1)
    narrow = cast("scale", scale, "float32")
    return np.where(narrow > 0, narrow, np.float32(1.0))


def cast(name: str, values: NDArray[Any], precision: str) -> NDArray[Any]:
    """Numbers at a precision; an error where they are too large for it."""
    with np.errstate(over="ignore"):
        result = values.astype(precision)
    if result.dtype.kind == "f" and not np.isfinite(result).all():
        raise DataError(f"precision: {name} has numbers too large for {precision}; give float64")
    return result


def pack_rows(name: str, rows: NDArray[Any], precision: str) -> dict[str, NDArray[Any]]:
    """Rows at a precision; the coarse ones come with a float32 scale each."""
    if rows.dtype.kind == "i" or precision in ("float64", "float32"):
        return {name: rows if rows.dtype.kind == "i" else cast(name, rows, precision)}
    scale = row_scale(rows, precision)
    scaled = rows / scale[:, None]
    if precision == "int8":
        scaled = np.rint(scaled).clip(-127, 127)
    return {name: scaled.astype(precision), f"{name}_scale": scale}


def unpack_rows(name: str, arrays: Arrays) -> NDArray[Any]:
    """The inverse: float64 (or int64, on a lattice)."""
    rows, scale = arrays[name], arrays.get(f"{name}_scale")
    coarse = rows.dtype in (np.dtype(np.float16), np.dtype(np.int8))
    if coarse != (scale is not None) or (scale is not None and not (scale > 0).all()):
        raise WireError("arrays", f"{name}: coarse rows, and only they, come with positive scales")
    if scale is not None:
        largest = np.abs(rows.astype(np.float32)).max(axis=1, initial=0.0)
        check_scales(f"{name}_scale", largest, rows.dtype, scale)
        return rows * scale[:, None].astype(np.float64)
    return rows.astype(np.int64 if rows.dtype.kind == "i" else np.float64)


def rounding(rows: NDArray[Any], scale: NDArray[np.float32] | None) -> NDArray[np.float64]:
    """How far a coarse precision can have moved a number, for each row that is not all zeros."""
    if scale is None:
        return np.zeros(len(rows))
    moved = scale.astype(np.float64) * (0.5 if rows.dtype.kind == "i" else 2.0**-11)
    return moved * rows.any(axis=1) if rows.ndim == 2 else moved


def check_scales(
    name: str, largest: NDArray[Any], dtype: np.dtype[Any], scale: NDArray[np.float32]
) -> None:
    """A row's scale fits its `largest` number: a larger one would only widen its rounding.

    (Below 1e-37 float32 has few digits left, and a scale may fit badly.)
    """
    full = 127.0 if dtype.kind == "i" else 1.0
    fits = (largest >= full * (1 - 2.0**-9)) & (largest <= full * (1 + 2.0**-9))
    if not (fits | ((largest == 0) & (scale == 1)) | (scale < 1e-37)).all():
        raise WireError("impossible", f"{name}: expected one that fits the row's largest number")


def lattice_norm(lattice: Lattice, dimension: int, limits: Limits) -> float | None:
    """The largest norm of a sample in lattice units, where each feature was rounded."""
    if limits.norm is None:
        return None
    return limits.norm / lattice.step * (1 + 1e-6) + np.sqrt(dimension) / 2


def check_norms(
    name: str,
    sums: NDArray[Any],
    counts: NDArray[Any],
    norm: float,
    moved: NDArray[np.float64] | float = 0.0,
) -> None:
    """‖Σz‖ ≤ g·ρ₂ in every row, of which rounding may have `moved` each number."""
    size = np.sqrt(np.einsum("ij,ij->i", sums, sums, dtype=np.float64))
    if (size > counts * norm + np.sqrt(sums.shape[1]) * moved).any():
        raise WireError("bound", f"{name}: a sum is beyond its samples of norm {norm:g}")


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, for reading only."""
    view = array.view()
    view.setflags(write=False)
    return view


class Slots:
    """A place for each class in order of arrival, so that new classes never move old rows."""

    def __init__(self) -> None:
        self._place: dict[int | str, int] = {}
        self._kind = ""

    def __len__(self) -> int:
        return len(self._place)

    def places(self, classes: Labels) -> NDArray[np.intp]:
        if classes.size and classes.dtype.kind != self._kind:
            if self._kind:
                raise DataError("labels: expected all integers or all strings, got both")
            self._kind = classes.dtype.kind
        place = self._place
        positions = [place.setdefault(label, len(place)) for label in classes.tolist()]
        return np.array(positions, dtype=np.intp)

    def sorted(self) -> tuple[Labels, NDArray[np.intp]]:
        """The classes in order, and the place of each."""
        kind = np.str_ if self._kind == "U" else np.int64
        labels: Labels = np.array(list(self._place), dtype=kind)
        order = np.argsort(labels, kind="stable")
        return labels[order], order


def grown(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """`array` with at least `rows` rows (doubling, zeros in the new ones)."""
    if rows <= len(array):
        return array
    larger = np.zeros((max(rows, 2 * len(array), 16), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger

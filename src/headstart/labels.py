"""Class labels: all integers (int64) or all strings, nothing else, and always sorted in a total."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError

Labels = NDArray[Any]  # int64 or text, as `as_labels` makes them


def as_labels(labels: ArrayLike, name: str = "labels") -> Labels:
    """`labels` as a 1-D array of int64 or of strings; anything else is an error."""
    array = np.asarray(labels)
    if array.ndim != 1:
        raise DataError(f"{name}: expected one label a sample (1-D), got shape {array.shape}")
    if array.dtype.kind == "O":
        kinds = {type(item) for item in array}
        if not kinds or kinds <= {str, np.str_}:
            array = array.astype(np.str_)
        elif all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
            array = array.astype(np.int64)
        else:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise DataError(f"{name}: expected all integers or all strings, got {names}")
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)  # np.asarray([]) is float64
    if array.dtype.kind == "U":
        return array.astype(np.str_)
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise DataError(f"{name}: {int(array.max())} does not fit in 64 bits with a sign")
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    raise DataError(f"{name}: expected all integers or all strings, got dtype {array.dtype}")


def same_kind(left: Labels, right: Labels) -> bool:
    """Whether two label arrays may meet in one total (an empty one meets everything)."""
    return left.size == 0 or right.size == 0 or left.dtype.kind == right.dtype.kind


def union(left: Labels, right: Labels) -> Labels:
    """The sorted classes of both sides; integers and strings do not mix."""
    if not same_kind(left, right):
        raise DataError(
            f"labels: expected all integers or all strings, got {left[:1].tolist()[0]!r} on one "
            f"side and {right[:1].tolist()[0]!r} on the other"
        )
    if left.size == 0:
        return right
    if right.size == 0:
        return left
    return np.union1d(left, right)

"""Class labels: all integers (int64) or all strings, nothing else, and always sorted in a total."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError

_LARGEST = int(np.iinfo(np.int64).max)
Labels = NDArray[Any]  # int64 or text, as `as_labels` makes them


def as_labels(labels: ArrayLike, name: str = "labels") -> Labels:
    """`labels` as a 1-D array of int64 or of strings; anything else is an error."""
    try:
        array = labels if isinstance(labels, np.ndarray) else np.array(labels, dtype=object)
    except ValueError:
        raise DataError(f"{name}: expected one label a sample, got a ragged list") from None
    if array.ndim != 1:
        raise DataError(f"{name}: expected one label a sample (1-D), got shape {array.shape}")
    if array.dtype.kind == "O":
        return _from_objects(array, name)
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(np.int64)  # np.array([]) is float64
    if array.dtype.kind == "U":
        return array.astype(np.str_)
    if array.dtype.kind == "u" and array.size and int(array.max()) > _LARGEST:
        raise DataError(f"{name}: {int(array.max())} does not fit in 64 bits with a sign")
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    raise DataError(f"{name}: expected all integers or all strings, got dtype {array.dtype}")


def _from_objects(array: NDArray[np.object_], name: str) -> Labels:
    """Of Python's own values, where NumPy would make one kind of two."""
    kinds = {type(item) for item in array}
    if not kinds:
        return np.zeros(0, np.int64)
    if kinds <= {str, np.str_}:
        if any(item.endswith("\0") for item in array):  # an array of text would drop it
            raise DataError(f"{name}: expected labels that do not end in NUL")
        return array.astype(np.str_)
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        if not all(-_LARGEST - 1 <= int(item) <= _LARGEST for item in array):
            raise DataError(f"{name}: expected integers of 64 bits with a sign, got larger ones")
        return array.astype(np.int64)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise DataError(f"{name}: expected all integers or all strings, got {names}")


def same_kind(left: Labels, right: Labels) -> bool:
    """Whether two label arrays may meet in one total (an empty one meets everything)."""
    return left.size == 0 or right.size == 0 or left.dtype.kind == right.dtype.kind

"""Whether a file of arrays holds what its header claims, before any of it is read into memory.

A header of a hundred bytes can claim 2⁴⁰ rows, and a compressed archive of two megabytes can unfold
to two gigabytes; both would be allocated first and found wanting later.
"""

from __future__ import annotations

import math
import zipfile
from typing import IO

import numpy as np

from headstart.errors import DataError

UNFOLDED, RATIO = 2**28, 100  # bytes that may unfold from anything; beyond, from a hundredth of it
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def check_array(file: IO[bytes], size: int, where: str) -> None:
    """Refuse an array (.npy) of `size` bytes, header included, whose header claims another size."""
    try:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError("a table of named fields")
        shape, _, dtype = _HEADERS[version](file)
    except (ValueError, EOFError, OSError, SyntaxError, RecursionError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{where}: expected an array of numbers or strings: {reason:.200}"
        ) from None
    if dtype.hasobject:
        raise DataError(
            f"{where}: expected an array of numbers or strings; objects are never unpickled"
        )
    claimed, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or claimed != there:
        raise DataError(
            f"{where}: expected {there} bytes of an array, as many as the file has, got a header "
            f"that claims shape {shape!s:.80} of {dtype.str}"
        )


def check_member(archive: zipfile.ZipFile, name: str, where: str) -> None:
    """The same of a member of an archive (.npz); also refuse one that unfolds to far too much."""
    info = archive.getinfo(name)
    if info.file_size > UNFOLDED and info.file_size > RATIO * info.compress_size:
        raise DataError(
            f"{where}: expected an array, got one that unfolds to {info.file_size:,} bytes from "
            f"{info.compress_size:,}; save it without compression"
        )
    try:
        with archive.open(info) as file:
            check_array(file, info.file_size, where)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{where}: expected an array in an NPZ file: {error}") from None

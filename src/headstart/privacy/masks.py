"""Masks: the ChaCha20 key stream of a 256-bit key as integers modulo 2^64, added where they lie.

Every key is derived for one use (one pair, one round), so the nonce is zero.
"""

from __future__ import annotations

import headstart.privacy.secure  # noqa: F401  # names the extra that is missing

# isort: split
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

_CHUNK = 2**15  # numbers: stays in the cache
_ZEROS = bytes(8 * _CHUNK)


def add_mask(vector: NDArray[np.uint64], key: bytes, sign: int = 1) -> None:
    """vector ± stream (mod 2^64), in place."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    out = np.empty(min(_CHUNK, len(vector)), "<u8")
    change = np.add if sign > 0 else np.subtract
    for start in range(0, len(vector), _CHUNK):
        part = vector[start : start + _CHUNK]
        mask = out[: len(part)]
        stream.update_into(_ZEROS[: mask.nbytes], mask.view(np.uint8).data)
        change(part, mask, out=part)  # unsigned integers wrap: modulo 2^64

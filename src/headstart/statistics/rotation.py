"""The private rotation: a factor that reveals the Gram matrix of a client and nothing else.

X = [Z Y] has many square roots; the one LAPACK returns can contain a raw sample (its first row does
as soon as a feature is always zero). QX with Q Haar-distributed has a distribution that depends on
XᵀX alone. Q comes from a secret the client keeps and from the data itself: a retry sends the same
bytes, other data get an independent rotation.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray


def seed_of(secret: bytes, arrays: Sequence[NDArray[np.generic]]) -> bytes:
    """A key only the holder of the secret and of these very data can derive."""
    state = hashlib.sha256(b"headstart rotation 1")
    state.update(len(secret).to_bytes(8, "little") + secret)
    for array in arrays:
        state.update(np.ascontiguousarray(array).data)
    return state.digest()


def uniform(key: bytes, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Numbers in (0, 1) from SHAKE-256: a cryptographic stream, equal on every machine."""
    bits = np.frombuffer(hashlib.shake_256(key).digest(8 * math.prod(shape)), "<u8")
    return (((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53).reshape(shape)


def gaussian(key: bytes, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normals, by inversion."""
    return np.asarray(scipy.special.ndtri(uniform(key, shape)))


def haar(key: bytes, n: int) -> NDArray[np.float64]:
    """An n×n orthogonal matrix, uniformly distributed (Mezzadri 2007: QR with a positive R)."""
    q, r = np.linalg.qr(gaussian(key, (n, n)))
    return np.asarray(q * np.where(np.diagonal(r) < 0, -1.0, 1.0))


def triangular(
    rows: NDArray[np.float64], labels: NDArray[np.float64], key: bytes
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The trapezoid R_z and its R_y: R = TX, T orthogonal, from QX for a Haar Q (n ≤ d).

    Householder QR of QX is decided by its first n columns, so one small QR and one product do.
    """
    n = len(rows)
    q = haar(key, n)
    u, r = np.linalg.qr(q @ rows[:, :n])
    sign = np.where(np.diagonal(r) < 0, -1.0, 1.0)
    t = (u * sign).T @ q
    return np.hstack([r * sign[:, None], t @ rows[:, n:]]), t @ labels

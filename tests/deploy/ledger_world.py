"""What the tests of admission and the ledger share: contracts, uploads, and their sums."""

from __future__ import annotations

import hashlib
import re

import numpy as np

import headstart as hs
from headstart.deploy.admission import Contract
from headstart.federation import steps

DIMENSION, ROUND = 6, "spring"


def contract_of(head=None, *, exact=True, dimension=DIMENSION, **told) -> Contract:
    step = steps.measure(hs.Fed3R() if head is None else head, exact=exact, bound=8.0)
    return Contract(ROUND, step.params, dimension, **{"attempts": None, **told})


def upload_of(
    seed, head=None, *, exact=True, n=None, labels=None, d=DIMENSION, precision=None
) -> bytes:
    """One client's message; large and small clients take turns."""
    rng = np.random.default_rng(seed)
    n = (3, 11, 20, 5)[seed % 4] if n is None else n
    y = rng.integers(0, 4, n) if labels is None else np.asarray(labels)
    z = np.clip(rng.normal(size=(len(y), d)), -7, 7)
    head = hs.Fed3R() if head is None else head
    one = head.measure(z, y, exact=exact, bound=8.0, secret=bytes([seed % 256]))
    return one.to_bytes(precision)


def total_of(uploads, head=None):
    """The sum of messages by client, in the order of the clients' names."""
    kind = (hs.Fed3R() if head is None else head).statistic
    return hs.total(kind.from_bytes(uploads[name]) for name in sorted(uploads))


def signed(data: bytes) -> bytes:
    """A changed message with the digest that fits it."""
    start, end = re.search(rb'"sha256":"([^"]{64})"', data).span(1)
    zeroed = data[:start] + b"0" * 64 + data[end:]
    return data[:start] + hashlib.sha256(zeroed).hexdigest().encode() + data[end:]


def trap(shift=0.5, d=DIMENSION) -> bytes:
    """An exact factor that is whole where the wire looks (diag A and B), and nowhere else.

    Its rows are a root of [[4 s], [s 4]], its three samples of one class sum to nothing.
    """
    from headstart.statistics import wire

    root = np.linalg.cholesky(np.array([[4.0, shift], [shift, 4.0]])).T
    rows = np.zeros((3, d))
    rows[:2, :2] = root
    arrays = {
        "dimension": np.array(d, np.int64),
        "classes": np.zeros(1, np.int64),
        "counts": np.array([3], np.int64),
        "z": np.concatenate([row[i:] for i, row in enumerate(rows)]),
        "y": np.array([[0.0], [0.0], [3**0.5]]),
        "bound": np.array(8.0),
    }
    return wire.encode("factor", arrays)

"""What the tests of admission and the ledger share: contracts, uploads, and their sums."""

from __future__ import annotations

import hashlib
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import headstart as hs
from headstart.deploy.admission import (
    CODES,
    Contract,
    UploadRejected,
)
from headstart.deploy.ledger import Ledger
from headstart.federation import steps
from headstart.statistics import wire

DIMENSION, ROUND = 6, "spring"

MODES = [
    pytest.param(hs.Fed3R(), True, id="moments-exact"),
    pytest.param(hs.Fed3R(), False, id="moments-float32"),
    pytest.param(hs.SharedVariances(), True, id="sums-exact"),
    pytest.param(hs.SharedVariances(), False, id="sums-float32"),
    pytest.param(hs.FedCOF(), True, id="means-exact"),
    pytest.param(hs.FedCOF(), False, id="means-float32"),
]

ANT, BEE, CAT, DOG, EMU = NAMES = ["ant 1", "bee 2", "cat 3", "dog 4", "emu 5"]

HEADS = [hs.Fed3R(), hs.FedNCM(), hs.FedCOF(), hs.SharedVariances(), hs.LDA(), hs.ETF()]


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


def code_of(call, *args):
    """Of the refusal that this call is answered with."""
    with pytest.raises(UploadRejected) as caught:
        call(*args)
    assert caught.value.code in CODES
    assert str(caught.value).endswith(f"[{caught.value.code}]")
    return caught.value.code


def fill(ledger, names="abcde", head=None, exact=True):
    uploads = {name: upload_of(ord(name), head, exact=exact) for name in names}
    for name, payload in uploads.items():
        ledger.accept(name, ROUND, "key", payload)
    return uploads


def admit_together(ledger):
    """Two uploads pass the checks before either of them is written."""
    meet = threading.Barrier(2, timeout=60)
    check = ledger.validator.check

    def together(*args):
        upload = check(*args)
        meet.wait()
        return upload

    ledger.validator.check = together


def log_files(path):
    return sorted((Path(path) / "log").glob("*.log"))


def abandon(ledger):
    """What a kill leaves: nothing is written any more, and the lock is free."""
    ledger._log.close()
    ledger._unlock()


def filled(path, names, head=None, exact=True):
    """A ledger with the uploads of these clients, in this order."""
    ledger = Ledger.create(path, contract_of(head, exact=exact))
    uploads = {name: upload_of(NAMES.index(name), head, exact=exact) for name in names}
    for name in names:
        ledger.accept(name, ROUND, f"key of {name}", uploads[name])
    return ledger, uploads


def traces(folder, name, payload):
    """Files under a folder that still hold a client's name, key, or a part of its message."""
    pieces = [name.encode(), payload[-64:], payload[len(payload) // 2 :][:64]]
    return [
        (file, piece[:16])
        for file in folder.rglob("*")
        if file.is_file()
        for piece in pieces
        if piece in file.read_bytes()
    ]

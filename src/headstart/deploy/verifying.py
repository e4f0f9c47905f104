"""Verifying a ledger: every byte against its checksum, every upload admitted anew, the total
against its parts, the models against what was written. Nothing is changed; a server may be writing
meanwhile.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headstart.deploy.admission import UploadRejected
from headstart.deploy.ledger import Ledger
from headstart.errors import HeadstartError


@dataclass(frozen=True)
class Verified:
    """What a sound ledger holds."""

    clients: int
    uploads: int
    payload_bytes: int
    total: str
    torn: int
    models: int


def verify(path: str | Path) -> Verified:
    """Read everything again; `HeadstartError` for the first thing that does not fit."""
    with suppress(HeadstartError):  # a forgetting meanwhile looks like damage, but once
        return _verify(path)
    return _verify(path)


def _verify(path: str | Path) -> Verified:
    with Ledger(Path(path), write=False) as ledger:  # which checks every record of the log
        entries = ledger.entries()
        for entry in entries:
            try:
                ledger.validator.check(entry.who, ledger.contract.round, ledger.payload(entry))
            except UploadRejected as refused:
                raise HeadstartError(f"ledger: upload {entry.number}: {refused}") from None
        total = ledger.sum_of(entries).digest()
        if total != ledger.total().digest():
            raise HeadstartError("ledger: the folded total is not the sum of the uploads")
        size = sum(entry.size for entry in entries)
        models = _check_models(ledger)
        return Verified(len(ledger.members()), len(entries), size, total, ledger.torn, models)


def _check_models(ledger: Ledger) -> int:
    """How many of the heads that the ledger wrote are there; all must be as it wrote them."""
    found = 0
    for name, written in ledger.index.written().items():
        try:
            data = (ledger.path / name).read_bytes()
        except FileNotFoundError:
            continue  # who took it away knows
        except OSError as error:
            raise HeadstartError(f"ledger: cannot read {name}: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() not in written:
            raise HeadstartError(f"ledger: {name} is not a head that this ledger has written")
        found += 1
    return found

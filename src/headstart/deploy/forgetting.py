"""Forgetting: a client leaves the total, the head and every file, as if it had never joined.

First a tombstone, durable: from then on the client is out, whatever happens, and stays out (R23).
Then its bytes go: the snapshot, the log, the list of refusals, the exports; heads that the ledger
wrote are solved again (never an inverse downdated), and the old ones listed as superseded (R24).
Every step can be done twice, and after a crash is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.deploy import exports
from headstart.deploy.book import Model
from headstart.deploy.failpoints import reached
from headstart.errors import HeadstartError, WireError
from headstart.heads.linear import LinearHead

if TYPE_CHECKING:
    from headstart.deploy.ledger import Ledger


@dataclass(frozen=True)
class Forgotten:
    """What forgetting a client did."""

    client: str
    total: str  # digest of the total now
    members: int  # how many are left
    superseded: tuple[Model, ...]  # heads that were made with a forgotten client
    renewed: tuple[str, ...]  # files of heads that were solved again
    exports: tuple[str, ...]  # folders of exports that are without it
    unreachable: tuple[str, ...]  # what was not there, or not as it was left: look yourself
    model: LinearHead | None  # the head that was solved again, if one was


def forget(path: str | Path, client: str) -> Forgotten:
    """Take a client out of the ledger at `path`, for good."""
    from headstart.deploy.ledger import Ledger

    with Ledger.open(path) as ledger:
        return ledger.forget(client)


def take_out(ledger: Ledger, client: str) -> Forgotten:
    """The same, of a ledger whose turn to write is held."""
    book = ledger.book
    if client in book.of:
        ledger.bury(client)
    elif not book.is_forgotten(client):
        known = ", ".join(list(ledger.members())[:5]) or "nobody"
        raise HeadstartError(f"client: expected one of this ledger ({known} …), got {client!r}")
    done = finish(ledger)
    total = ledger.total().digest()
    superseded = tuple(m for m in book.models(total) if m.state == "superseded")
    told = (done.renewed, done.exports, done.unreachable, done.model)
    return Forgotten(client, total, len(book.of), superseded, *told)


@dataclass
class _Done:
    renewed: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    model: LinearHead | None = None


def finish(ledger: Ledger) -> _Done:
    """Take what has a tombstone out of every file."""
    unfinished, done = dict(ledger.book.unfinished), _Done()
    if unfinished:
        ledger.purge_files(frozenset(unfinished.values()))
    _purge_exports(ledger, done)
    reached("exports purged")
    if unfinished:
        _renew_heads(ledger, done)
        reached("heads solved")
    for tombstone in unfinished:
        ledger.note({"kind": "done", "tombstone": tombstone})
    return done


def _purge_exports(ledger: Ledger, done: _Done) -> None:
    entries = {entry.number: entry for entry in ledger.entries()}

    def total(numbers: list[int]) -> object:
        return ledger.sum_of([entry for number, entry in entries.items() if number in numbers])

    for path in ledger.book.exports:
        if exports.purge(Path(path), ledger.id, frozenset(entries), total):
            done.exports += (path,)
        else:
            done.unreachable += (path,)


def _renew_heads(ledger: Ledger, done: _Done) -> None:
    """Every head that the ledger wrote and that is still there as it was: of the total of now."""
    total = ledger.total()
    digest = total.digest()
    for made in ledger.book.to_renew(digest):
        path = ledger.path / made.path
        if not path.exists():
            continue
        try:
            data = path.read_bytes()
            about = LinearHead.from_bytes(data).provenance
        except (OSError, WireError):
            done.unreachable += (made.path,)
            continue
        if hashlib.sha256(data).hexdigest() != made.sha256 and about.get("total") != digest:
            done.unreachable += (made.path,)  # somebody put another head there
            continue
        if total.samples:
            done.model = done.model or ledger.solve()
            ledger.save_model(_from(done.model, about.get("extractor")), path)
        else:
            path.unlink()
        done.renewed += (made.path,)


def _from(model: LinearHead, extractor: object) -> LinearHead:
    """As the old head was, but for its temperature: the forgotten client's samples were in it."""
    return replace(model, provenance={**model.provenance, "extractor": extractor})

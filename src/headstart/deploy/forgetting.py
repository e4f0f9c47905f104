"""Forgetting: a client leaves the total, the head and every file, as if it had never joined.

First a tombstone, durable: from then on the client is out, whatever happens, and stays out.
Then its bytes and its name go: the snapshot, the log, the lists of refusals and of nodes, the
exports; heads that the ledger wrote are solved again (never an inverse downdated), or deleted where
they cannot be, and the old ones listed as superseded. What cannot be reached is named, and
stops nothing. Every step can be done twice, and after a crash is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.deploy import exports
from headstart.deploy.failpoints import reached
from headstart.deploy.ledger_index import Model
from headstart.deploy.log import sync_folder
from headstart.deploy.nodes import GROUPS, NODES, Registry
from headstart.errors import HeadstartError, WireError
from headstart.heads.linear import LinearHead
from headstart.privacy.groups import OpenedSums

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
    removed: tuple[str, ...]  # files of heads that nothing can be solved for any more
    exports: tuple[str, ...]  # folders of exports that are without it
    unreachable: tuple[str, ...]  # what was not there, or not as it was left: look yourself
    model: LinearHead | None  # the head that was solved again, if one was


def forget(path: str | Path, client: str) -> Forgotten:
    """Take a client out of the ledger at `path`, for good."""
    from headstart.deploy.ledger import Ledger

    with Ledger.open(path) as ledger:
        return ledger.forget(client)


class UnfinishedError(HeadstartError):
    """The client is out, and stays out, but not all of its bytes could be removed yet."""


def take_out(ledger: Ledger, client: str) -> Forgotten:
    """The same, of a ledger whose turn to write is held."""
    index = ledger.index
    if client in index.of:
        ledger.bury(client)
    elif index.is_forgotten(client):
        pass  # once more over what could not be reached
    elif ledger.knows(client) or client in _node_names(ledger):
        ledger.keep_out(client)
    else:
        known = ", ".join(list(ledger.members())[:5]) or "nobody"
        raise HeadstartError(f"client: expected one of this ledger ({known} …), got {client!r}")
    done = finish(ledger)
    total = ledger.total().digest()
    superseded = tuple(m for m in index.models(total) if m.state == "superseded")
    reached = (done.renewed, done.removed, done.exports, done.unreachable, done.model)
    return Forgotten(client, total, len(index.of), superseded, *reached)


@dataclass
class _Done:
    renewed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    model: LinearHead | None = None


def finish(ledger: Ledger) -> _Done:
    """Take what has a tombstone out of every file; it is done once all of that is on the disk.

    Raise `UnfinishedError` where the disk does not let it: the next start, or the same call, goes
    on.
    """
    try:
        return _finish(ledger)
    except (OSError, HeadstartError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnfinishedError(
            "forgetting: the client is out, but its bytes are not all removed from "
            f"{ledger.path} ({reason}); make space on the disk, open the ledger and forget it again"
        ) from error


def _finish(ledger: Ledger) -> _Done:
    unfinished, done = dict(ledger.index.unfinished), _Done()
    uploads = frozenset(unfinished.values()) - {0}
    if uploads:
        ledger.purge_uploads(uploads)
    ledger.purge_refusals()
    _purge_nodes(ledger, done)
    _purge_groups(ledger, done)
    reached("nodes purged")
    sync_folder(ledger.path)
    _purge_exports(ledger, done)
    reached("exports purged")
    _renew_heads(ledger, done)
    reached("heads solved")
    for tombstone in unfinished:
        ledger.note({"kind": "done", "tombstone": tombstone})
    return done


def _nodes(ledger: Ledger) -> Registry:
    """The names and keys that a deployed server has seen."""
    return Registry.open(ledger.path / NODES, ledger.index.mark)


def _node_names(ledger: Ledger) -> Collection[str]:
    try:
        return _nodes(ledger).keys
    except HeadstartError:
        return ()


def _purge_nodes(ledger: Ledger, done: _Done) -> None:
    try:
        _nodes(ledger).leave(ledger.index.is_forgotten)
    except (OSError, HeadstartError):
        done.unreachable += (NODES,)


def _purge_groups(ledger: Ledger, done: _Done) -> None:
    try:
        if (ledger.path / GROUPS).exists():
            OpenedSums(ledger.path / GROUPS).leave(ledger.index.is_forgotten)
    except (OSError, HeadstartError):
        done.unreachable += (GROUPS,)


def _purge_exports(ledger: Ledger, done: _Done) -> None:
    entries = {entry.number: entry for entry in ledger.entries()}

    def total(numbers: list[int]) -> object:
        return ledger.sum_of([entry for number, entry in entries.items() if number in numbers])

    for path in ledger.index.exports:
        if exports.purge(Path(path), ledger.id, frozenset(entries), total):
            done.exports += (path,)
        else:
            done.unreachable += (path,)


def _renew_heads(ledger: Ledger, done: _Done) -> None:
    """Every head that the ledger wrote and that is still there as it was: of the total of now."""
    old = _old_heads(ledger, done)
    if old:
        done.model = _solved(ledger)
    for name, extractor in old.items():
        path = ledger.path / name
        try:
            if done.model is None:
                path.unlink()
            else:
                ledger.save_model(_from(done.model, extractor), path)
            sync_folder(path.parent)
        except (OSError, HeadstartError):
            done.unreachable += (name,)
        else:
            done.removed += (name,) if done.model is None else ()
            done.renewed += () if done.model is None else (name,)


def _old_heads(ledger: Ledger, done: _Done) -> dict[str, object]:
    """Superseded heads that are where and as the ledger wrote them, and their extractors."""
    found, digest = {}, ledger.total().digest()
    for made in ledger.index.to_renew(digest):
        try:
            data = (ledger.path / made.path).read_bytes()
            about = LinearHead.from_bytes(data).provenance
        except FileNotFoundError:
            continue
        except (OSError, WireError):
            done.unreachable += (made.path,)
            continue
        if hashlib.sha256(data).hexdigest() == made.sha256 or about.get("total") == digest:
            found[made.path] = about.get("extractor")
        else:
            done.unreachable += (made.path,)  # somebody put another head there
    return found


def _solved(ledger: Ledger) -> LinearHead | None:
    """The head of the total; None where too little is left for one."""
    try:
        return ledger.solve()
    except HeadstartError:
        return None


def _from(model: LinearHead, extractor: object) -> LinearHead:
    """As the old head was, but for its temperature: the forgotten client's samples were in it."""
    return replace(model, provenance={**model.provenance, "extractor": extractor})

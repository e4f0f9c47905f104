"""The ledger: every accepted upload is on the disk before it is acknowledged, and counts once.

contract.json       what uploads must fit, and the key of the log's checksums
log/                the uploads, the forgotten, the models and exports, in the order they came
total.*             the folded total and who is in it: a shortcut, made again whenever it is missing
model.safetensors   the head, once `save_model` was called
refusals.jsonl      what was refused, and why
nodes.json          a deployed server's: which name has which key
lock                held by the one process that writes

All of it follows from the log; `index` says how. Concurrent uploads share one flush to the disk.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headstart.deploy import exports, forgetting, ledger_dir
from headstart.deploy.admission import (
    Contract,
    Rate,
    UploadRejected,
    UploadValidator,
    Who,
    carries_features,
    clients_of,
)
from headstart.deploy.byte_budget import ByteBudget
from headstart.deploy.failpoints import reached
from headstart.deploy.forgetting import Forgotten
from headstart.deploy.ledger_dir import is_ledger
from headstart.deploy.ledger_index import Entry, LedgerIndex, Model, Receipt, repeats
from headstart.deploy.log import Log, Record
from headstart.deploy.names import is_name, normalized, read_alike
from headstart.deploy.refusals import Refusal, Refusals
from headstart.deploy.running_total import RunningTotal
from headstart.deploy.snapshot import Snapshot
from headstart.errors import HeadstartError
from headstart.files import write_bytes
from headstart.heads.linear import LinearHead

__all__ = ["Entry", "Forgotten", "Ledger", "Model", "Receipt", "Refusal", "is_ledger"]
AT_ONCE = 8  # uploads that are decoded and checked at the same time
BUDGET_BYTES = 2**28  # of messages that `admit` lets in at the same time
SNAPSHOT_EVERY = 4096


@dataclass(eq=False)
class _Waiting:
    """An upload that was admitted, and what becomes of it."""

    clients: tuple[str, ...]
    key: str
    digest: str
    payload: bytes
    statistic: Any
    receipt: Receipt | None = None
    error: BaseException | None = None

    def meta(self) -> dict[str, Any]:
        samples = int(self.statistic.samples)
        about = {"clients": list(self.clients), "key": self.key, "sha256": self.digest}
        return {"kind": "upload", "samples": samples, **about}


class Ledger:
    """One folder, one writing process. `with Ledger.open(path) as ledger: …`"""

    def __init__(self, path: Path, *, write: bool) -> None:
        self.path = path
        self._turn = threading.RLock()  # to write the log
        self._state = threading.RLock()  # to read or change the index and the sum
        self._queue: list[_Waiting] = []
        self._queued = threading.Lock()
        self._budget, self._slots = ByteBudget(BUDGET_BYTES), threading.BoundedSemaphore(AT_ONCE)
        self._since = 0  # uploads since the last snapshot
        self._canonical: Any = None  # the total, where its bits depend on the order
        self.unfinished = ""  # why a forgetting could not be finished when this was opened
        with ExitStack() as undo:
            self._lock_file = ledger_dir.lock(path) if write else -1
            undo.callback(self._unlock)
            self.contract, self.id, key = ledger_dir.read(path)
            self.validator, self._rate = (
                UploadValidator(self.contract),
                Rate(self.contract.attempts),
            )
            self.index = LedgerIndex(self.contract.round, key)
            self._refusals = Refusals(path, self.index.shown)
            self._snapshot = Snapshot(path, self.contract)
            held = self._snapshot.load()  # before the log, which a server may be adding to
            self._log = Log(path / "log", key, self._replay, write=write)
            undo.callback(self._log.close)
            self._running_total = self._refold(*held)
            if write and self.index.unfinished:
                self._finish()
            undo.pop_all()

    @classmethod
    def create(cls, path: str | Path, contract: Contract) -> Ledger:
        """A new ledger in a new or empty folder, open for writing."""
        ledger_dir.make(Path(path), contract)
        return cls(Path(path), write=True)

    @classmethod
    def open(cls, path: str | Path, *, write: bool = True) -> Ledger:
        """The ledger as it was: a torn end is cut off, damage is refused, the total folded again.

        `write=False`: only to look; no lock, nothing is changed.
        """
        if not is_ledger(path):
            raise HeadstartError(f"ledger: {path} is none (no contract.json in it)")
        if not write:
            with suppress(HeadstartError):  # a forgetting meanwhile looks like damage, but once
                return cls(Path(path), write=False)
        return cls(Path(path), write=write)

    # -- uploads -------------------------------------------------------------------------------

    @contextmanager
    def admit(self, client: Who, round: str, size: int) -> Iterator[None]:
        """For a transport that knows the size before it reads: refuse, or wait for free bytes.

        `with ledger.admit(client, round, size): ledger.accept(client, round, key, read(size))`
        """
        try:
            self.validator.admit(client, round, size)
        except UploadRejected as refused:
            self._refusals.add(client, refused)
            raise
        with self._budget.of(size):
            yield

    def accept(self, client: Who, round: str, key: str, payload: bytes) -> Receipt:
        """Check, make durable, count; return the receipt, or raise `UploadRejected` with its code.

        The same upload under the same key gives the same receipt. `client` may be the names of a
        masked group. Any number of threads may call.
        """
        self._writable()
        try:
            return self._accept(client, round, key, payload)
        except UploadRejected as refused:
            self._refusals.add(client, refused)
            raise

    def _accept(self, client: Who, round: str, key: str, payload: bytes) -> Receipt:
        self.validator.admit(client, round, len(payload))
        if not is_name(key):
            raise UploadRejected("key", f"key: expected printable text, got {key!r:.80}")
        clients = clients_of(client)
        with self._state:
            self._rate.spend(clients[0])
        reached("received")
        digest = hashlib.sha256(payload).hexdigest()
        with self._state:
            entry = self.index.known(clients, key, digest)
            if entry is not None:
                return self.index.receipt(entry, repeated=True)
        with self._slots:
            statistic = self.validator.check(client, round, payload)
            reached("checked")
            receipt = self._commit(_Waiting(clients, key, digest, payload, statistic))
        reached("counted")
        return receipt

    def _commit(self, one: _Waiting) -> Receipt:
        """Whoever gets the turn writes for all who wait: one flush for many uploads."""
        with self._queued:
            self._queue.append(one)
        with self._turn:
            if one.receipt is None and one.error is None:
                with self._queued:
                    batch, self._queue = self._queue, []
                self._write_batch(batch)
        if one.error is not None:
            raise one.error
        if one.receipt is None:
            raise HeadstartError("ledger: the write before this one failed; open it again")
        return one.receipt

    def _write_batch(self, batch: list[_Waiting]) -> None:
        fresh: list[_Waiting] = []
        twins: list[tuple[_Waiting, _Waiting]] = []
        for one in batch:
            try:
                twin = self._place(one, fresh)
            except UploadRejected as refused:
                one.error = refused
                continue
            if twin is one:
                fresh.append(one)
            elif twin is not None:
                twins.append((one, twin))
        if not fresh:
            return
        try:
            records = self._append([(one.meta(), one.payload) for one in fresh])
        except HeadstartError as error:
            for one in batch:
                if one.receipt is None and one.error is None:
                    one.error = HeadstartError(str(error))
            return
        with self._state:
            for one, record in zip(fresh, records, strict=True):
                one.receipt = self._count(one, record)
        for one, twin in twins:
            one.receipt = twin.receipt and replace(twin.receipt, repeated=True)
        self._since += len(fresh)
        if self._since >= SNAPSHOT_EVERY and self.free_of_order:
            with suppress(HeadstartError):  # a full disk: the uploads are safe without it
                self._save_snapshot()
            self._since = 0

    def _place(self, one: _Waiting, fresh: list[_Waiting]) -> _Waiting | None:
        """`one` if it is new, its twin in this batch, or None if it is on the disk already."""
        with self._state:
            entry = self.index.known(one.clients, one.key, one.digest)
            if entry is not None:
                one.receipt = self.index.receipt(entry, repeated=True)
                return None
            for twin in fresh:
                if set(twin.clients) & set(one.clients):
                    same = Entry(0, twin.clients, twin.key, twin.digest, 0, 0)
                    repeats(same, one.clients, one.key, one.digest)
                    return twin
            if alike := read_alike([c for other in (*fresh, one) for c in other.clients]):
                raise UploadRejected("client", f"client: {alike[1]!r} reads like {alike[0]!r}")
            self.index.check_content(one.statistic)
            self._running_total.check([*(other.statistic for other in fresh), one.statistic])
        return one

    def _count(self, one: _Waiting, record: Record) -> Receipt:
        self.index.apply(record.number, record.meta, record.size)
        self._running_total.add(one.statistic, record.size)
        self._canonical = None
        return self.index.receipt(self.index.uploads[record.number], repeated=False)

    # -- questions -----------------------------------------------------------------------------

    @property
    def torn(self) -> int:
        """Bytes at the end that were never acknowledged and were cut off when it was opened."""
        return self._log.torn

    def members(self) -> dict[str, str]:
        """Who is in the total, sorted, and the SHA-256 of each one's payload (or its group's)."""
        with self._state:
            return {c: self.index.uploads[n].digest for c, n in sorted(self.index.of.items())}

    def missing(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """Those of `wanted` that are not in and were not forgotten, in their order."""
        with self._state:
            return self.index.missing(wanted)

    def entries(self) -> tuple[Entry, ...]:
        """The uploads in the order of their clients: that of the total's sum."""
        with self._state:
            return tuple(sorted(self.index.uploads.values(), key=lambda entry: entry.clients))

    def payload(self, entry: Entry) -> bytes:
        """The bytes of an upload, checked again."""
        with self._turn:
            return self._log.payload(entry.number)

    def refusals(self) -> tuple[Refusal, ...]:
        return self._refusals.all()

    @property
    def unreadable(self) -> int:
        """Lines of the list of refusals that make no sense."""
        return self._refusals.unreadable

    def forgotten(self, client: str) -> bool:
        with self._state:
            return self.index.is_forgotten(client)

    def models(self) -> tuple[Model, ...]:
        """Heads made from this ledger: current, older, or superseded by a forgetting."""
        digest = self.total().digest()
        with self._state:
            return self.index.models(digest)

    # -- the sum -------------------------------------------------------------------------------

    @property
    def free_of_order(self) -> bool:
        """Whether a sum's bits do not depend on the order: on a lattice, and for rows."""
        return self.contract.empty.lattice is not None or not self.contract.empty.is_sum

    def total(self) -> Any:
        """The sum of all members: its bits depend on who is in it, not on who came first.

        Where not exact, uploads are folded again in the order of their clients.
        """
        with self._turn:
            if self.free_of_order:
                return self.so_far()
            if self._canonical is None:
                self._canonical = self.sum_of(self.entries())
            return self._canonical

    def so_far(self) -> Any:
        """The same sum, at hand after every upload; where not exact, up to rounding."""
        with self._state:
            return self._running_total.value()

    def sum_of(self, entries: Iterable[Entry]) -> Any:
        """The sum of these uploads, read again."""
        stream = map(self._statistic, entries)
        first = next(stream, None)
        if first is None:
            return self.contract.empty
        return type(first).total(itertools.chain([first], stream))

    def _statistic(self, entry: Entry) -> Any:
        payload = self._log.payload(entry.number)
        return self.contract.head.statistic.from_bytes(payload, self.contract.limits(entry.who))

    def _refold(self, held: dict[str, str], value: Any) -> RunningTotal:
        """From the snapshot, if nobody in it has left (and, where order counts, nobody came)."""
        members, entries = self.members(), self.entries()
        lost = [client for client in held if client not in members and not self.index.left(client)]
        if lost:
            raise HeadstartError(
                f"ledger: {self.path / 'log'} is without the upload of {lost[0]!r}, which was "
                "counted; nothing was changed. Restore the log from a backup"
            )
        if not self.index.whole:
            raise HeadstartError(
                f"ledger: {self.path / 'log'} is damaged: a tombstone is missing; nothing was "
                "changed. Restore the log from a backup"
            )
        usable = held.items() <= members.items() if self.free_of_order else held == members
        if value is None or not usable:
            held, value = {}, None
        if not self.free_of_order:
            self._canonical = self.sum_of(entries) if value is None else value
            return RunningTotal(self.contract, self._canonical)
        total = RunningTotal(self.contract, value)
        for entry in entries:
            if entry.clients[0] not in held:
                total.add(self._statistic(entry), entry.size)
        return total

    def _save_snapshot(self) -> None:
        self._snapshot.save(self.members(), self.total())

    # -- heads and exports ---------------------------------------------------------------------

    def solve(self) -> LinearHead:
        """The head of the total."""
        return self.contract.head.solve(self.total())

    def save_model(self, model: LinearHead | None = None, path: str | Path | None = None) -> Path:
        """Write a head (default: solve it; to model.safetensors in this folder) and record it."""
        target = self.path / "model.safetensors" if path is None else Path(path)
        with self._turn:
            model = self.solve() if model is None else model
            data = model.to_bytes()
            digest = hashlib.sha256(data).hexdigest()
            # Before the file, so that whatever a crash leaves there is known.
            self.note({"kind": "writing", "path": self._named(target), "sha256": digest})
            write_bytes(target, data)
            self._record(target, digest, str(model.provenance.get("total", "")), ours=True)
        return target

    def record_model(self, path: str | Path, digest: str, total: str) -> None:
        """Remember a head made from a total of this ledger: SHA-256 of its file, total's digest."""
        self._record(Path(path), digest, total, ours=False)

    def _record(self, path: Path, digest: str, total: str, *, ours: bool) -> None:
        known = total == self.total().digest()
        about = {"path": self._named(path), "sha256": digest, "total": total}
        self.note({"kind": "model", "known": known, "ours": ours, **about})

    def export(self, folder: str | Path) -> Path:
        """Uploads, total and contract as plain files in a new folder, which forgetting purges."""
        folder = Path(folder)
        exports.check_new(folder)
        with self._turn:
            self.note({"kind": "export", "path": str(folder.resolve())})
            about = {"ledger": self.id, "contract": self.contract.to_plain()}
            exports.write(folder, about, self.entries(), self.payload)
            exports.write_total(folder, self.total())
        return folder

    def _named(self, path: Path) -> str:
        """A path as the log keeps it: those in this folder move with it."""
        whole, here = path.resolve(), self.path.resolve()
        return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)

    def note(self, meta: dict[str, Any]) -> None:
        """A record without a payload, durable."""
        self._writable()
        with self._turn:
            (record,) = self._append([(meta, b"")])
            with self._state:
                self.index.apply(record.number, record.meta)

    # -- forgetting ----------------------------------------------------------------------------

    def forget(self, client: str) -> Forgotten:
        """Take a client out of the total, the head, the log and the exports, for good.

        A masked group leaves as a whole: the part of one client in it is not known.
        """
        self._writable()
        with self._turn:
            return forgetting.take_out(self, normalized(client))

    def bury(self, client: str) -> None:
        """The tombstone, durable, and the sum without the upload: subtracted where it is exact."""
        entry = self.index.uploads[self.index.of[client]]
        exact = self.contract.empty.is_sum and self.contract.empty.lattice is not None
        left = self._running_total.without(self._statistic(entry)) if exact else None
        group = [self.index.mark(other) for other in entry.clients if other != client]
        self._entomb(client, entry.number, group, self._own_marks(entry))
        with self._state:
            self._running_total = left or RunningTotal(self.contract, self.sum_of(self.entries()))
            self._canonical = None if self.free_of_order else self._running_total.value()

    def keep_out(self, client: str) -> None:
        """The tombstone of a client that is not in."""
        self._entomb(client, 0, [], [])

    def _entomb(self, client: str, upload: int, group: list[str], contents: list[str]) -> None:
        about = {"mark": self.index.mark(client), "upload": upload, "group": group}
        self.note({"kind": "forgotten", **about, "contents": contents})
        reached("tombstone")

    def _own_marks(self, entry: Entry) -> list[str]:
        """The marks of what it says, where no other client would honestly say the same.

        No samples, or class counts alone, are alike for many, and could be guessed from the mark.
        """
        own = entry.samples > 0 and carries_features(self.contract.head)
        return self.index.marks(self._statistic(entry)) if own else []

    def knows(self, client: str) -> bool:
        """Whether a client that is not in has left a trace: of a group, registered, or refused."""
        registered = client in self.contract.clients or client in self.contract.caps
        return registered or self.index.left(client) or self._refusals.names(client)

    def purge_uploads(self, uploads: frozenset[int]) -> None:
        """Take the bytes of these uploads out of this folder."""
        self._check_lock()
        self._snapshot.remove()
        reached("snapshot purged")
        self._log.purge(uploads)

    def purge_refusals(self) -> None:
        self._refusals.purge()
        reached("refusals purged")

    # -- opening and closing -------------------------------------------------------------------

    def _replay(self, record: Record) -> None:
        self.index.apply(record.number, record.meta, record.size)

    def _finish(self) -> None:
        """Go on with a forgetting that was cut short; a full disk keeps no ledger closed."""
        try:
            forgetting.finish(self)
        except forgetting.UnfinishedError as error:
            self.unfinished = str(error)

    def _append(self, items: Sequence[tuple[Mapping[str, Any], bytes]]) -> list[Record]:
        """Records, durable; nobody else can have written while the lock was ours throughout."""
        self._check_lock()
        records = self._log.append(items)
        self._check_lock()
        return records

    def _check_lock(self) -> None:
        """Stop if the lock file was taken away: another process may be writing this ledger."""
        if not ledger_dir.holds(self.path, self._lock_file):
            self._log.give_up()
            raise HeadstartError(
                f"ledger: {self.path / 'lock'} is not the file that this process holds; another "
                "one may be writing. Nothing more is written; close it and open it again"
            )

    def _writable(self) -> None:
        if self._lock_file < 0:
            raise HeadstartError("ledger: expected one that is open for writing")

    def close(self) -> None:
        """A snapshot, a last record that says that all is well, and the lock is free."""
        if self._lock_file < 0:
            return
        with self._turn:
            try:
                if not self._log.broken and not self.index.closed:
                    with suppress(HeadstartError):  # a full disk: the uploads are safe without it
                        self._check_lock()
                        if self.free_of_order or self._canonical is not None:
                            self._save_snapshot()
                        self.note({"kind": "closed"})
            finally:
                self._log.close()
                self._unlock()

    def _unlock(self) -> None:
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

"""What a ledger knows, as a function of its log: who is in, who was forgotten, what was made of it.

The same lines read a record that has just been written and one that is found after a crash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headstart.deploy.admission import UploadRejected, Who
from headstart.deploy.contents import contents, counted
from headstart.deploy.names import normalized, skeleton


@dataclass(frozen=True)
class Receipt:
    """The acknowledgement of a durable upload; sent again, it is the same but for `repeated`."""

    client: Who
    round: str
    digest: str  # SHA-256 of the payload
    number: int  # of its record in the log
    repeated: bool = field(default=False, compare=False)

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Receipt:
        client = plain["client"]
        return cls(**{**plain, "client": client if isinstance(client, str) else tuple(client)})


@dataclass(frozen=True)
class Entry:
    """One durable upload, of a client or of a masked group."""

    number: int
    clients: tuple[str, ...]
    key: str
    digest: str
    samples: int
    size: int

    @property
    def who(self) -> Who:
        return self.clients[0] if len(self.clients) == 1 else self.clients


@dataclass(frozen=True)
class Model:
    """A head that was solved from this ledger. `state`: current, older, or superseded."""

    path: str
    digest: str  # SHA-256 of its file
    total: str  # digest of the total it was solved from
    number: int
    state: str


@dataclass(frozen=True)
class Product:
    """A model or an export, as the log has it."""

    number: int
    path: str
    sha256: str = ""
    total: str = ""
    known: bool = True  # whether its total was the ledger's when it was recorded
    ours: bool = False  # whether the ledger wrote it


@dataclass(frozen=True)
class _Tombstone:
    """Of a forgotten client: the numbers of the tombstone and of its upload (0: it had none)."""

    number: int
    upload: int


class LedgerIndex:
    """Built record by record. `key`: what was forgotten is kept as keyed hashes only."""

    def __init__(self, round: str, key: bytes) -> None:
        self._round, self._key = round, key
        self.uploads: dict[int, Entry] = {}
        self.of: dict[str, int] = {}  # client: number of its upload
        self._reads: dict[str, str] = {}  # how a member's name reads: the name
        self._tombstones: dict[str, _Tombstone] = {}
        self._grouped: set[str] = set()  # marks of clients whose group is out
        self._contents: set[str] = set()  # marks of what the forgotten sent
        self._purged: set[int] = set()  # uploads whose bytes are out of the log
        self._models: list[Product] = []
        self._written: dict[str, set[str]] = {}  # path of a model: SHA-256 of what may be there
        self.exports: dict[str, int] = {}
        self.unfinished: dict[int, int] = {}  # tombstone: upload that may still be somewhere
        self.closed = True  # whether the last record says that nothing is under way

    def mark(self, client: str) -> str:
        """Of a name, as it reads: a forgotten client does not come back in capitals."""
        return self._keyed(skeleton(client), b"")

    def marks(self, statistic: Any) -> list[str]:
        """Of what a statistic says: of its class counts, and of all of it."""
        said = [self._keyed(text, b"content") for text in contents(statistic, self._key)]
        return [self._keyed(counted(statistic), b"counted"), *said]

    def _keyed(self, text: str, what: bytes) -> str:
        data = text.encode(errors="surrogatepass")
        return hashlib.blake2b(data, digest_size=16, key=self._key, person=what).hexdigest()

    # -- records -------------------------------------------------------------------------------

    def apply(self, number: int, meta: Mapping[str, Any], size: int = 0) -> None:
        self.closed = meta["kind"] == "closed"
        read = {"upload": self._upload, "forgotten": self._forgotten, "done": self._done}
        if meta["kind"] in read:
            read[meta["kind"]](number, meta, size)
        elif meta["kind"] == "writing":
            self._written.setdefault(meta["path"], set()).add(meta["sha256"])
        elif meta["kind"] == "model":
            self._written.setdefault(meta["path"], set()).add(meta["sha256"])
            about = {name: meta[name] for name in ("path", "sha256", "total", "known", "ours")}
            self._models.append(Product(number, **about))
        elif meta["kind"] == "export":
            self.exports[meta["path"]] = number
        elif meta["kind"] == "purged":
            self._purged.add(number)

    def _upload(self, number: int, meta: Mapping[str, Any], size: int) -> None:
        clients = tuple(meta["clients"])
        digest, samples = meta["sha256"], meta["samples"]
        self.uploads[number] = Entry(number, clients, meta["key"], digest, samples, size)
        self.of.update(dict.fromkeys(clients, number))
        self._reads.update({skeleton(client): client for client in clients})

    def _forgotten(self, number: int, meta: Mapping[str, Any], size: int) -> None:
        self._tombstones[meta["mark"]] = _Tombstone(number, meta["upload"])
        self._grouped.update(meta["group"])
        self._contents.update(meta["contents"])
        self.unfinished[number] = meta["upload"]
        entry = self.uploads.pop(meta["upload"], None)
        for client in entry.clients if entry else ():
            del self.of[client], self._reads[skeleton(client)]

    def _done(self, number: int, meta: Mapping[str, Any], size: int) -> None:
        self.unfinished.pop(meta["tombstone"], None)

    # -- questions -----------------------------------------------------------------------------

    def is_forgotten(self, client: str) -> bool:
        return self.mark(client) in self._tombstones

    def left(self, client: str) -> bool:
        """Whether it was in once: forgotten, or of a group that was taken out."""
        return self.is_forgotten(client) or self.mark(client) in self._grouped

    def shown(self, client: str) -> str:
        """The name as a list may keep it: of a forgotten client, the mark alone."""
        return self.mark(client) if self.is_forgotten(client) else client

    @property
    def forgotten(self) -> int:
        return len(self._tombstones)

    @property
    def whole(self) -> bool:
        """Whether the log has the tombstone of every upload that was taken out of it."""
        return self._purged <= {tombstone.upload for tombstone in self._tombstones.values()}

    def known(self, clients: tuple[str, ...], key: str, digest: str) -> Entry | None:
        """Return the upload that this one repeats, or None if it is new.

        Raise `UploadRejected` if it may not come in.
        """
        for client in clients:
            if self.is_forgotten(client):
                raise UploadRejected("forgotten", f"client: {client!r} was forgotten and stays out")
            if self.mark(client) in self._grouped:
                raise UploadRejected(
                    "overlap", f"client: {client!r} was in a group that was taken out"
                )
            if (other := self._reads.get(skeleton(client), client)) != client:
                raise UploadRejected(
                    "client", f"client: {client!r} reads like {other!r}, who is in"
                )
        entry = next((self.uploads[self.of[c]] for c in clients if c in self.of), None)
        if entry is not None:
            return repeats(entry, clients, key, digest)
        return None

    def check_content(self, statistic: Any) -> None:
        """Refuse what a forgotten client has sent, whoever sends it and however it is encoded."""
        if not self._contents:
            return
        if self._keyed(counted(statistic), b"counted") in self._contents and any(
            mark in self._contents for mark in self.marks(statistic)[1:]
        ):
            raise UploadRejected("forgotten", "message: what it says was forgotten and stays out")

    def written(self) -> dict[str, frozenset[str]]:
        """Of every path at which the ledger wrote a model: the SHA-256 of what may be there."""
        ours = {made.path for made in self._models if made.ours}
        return {path: frozenset(self._written[path]) for path in sorted(ours)}

    def models(self, total: str) -> tuple[Model, ...]:
        """Every recorded model, and how it stands to the total of now."""
        return tuple(
            Model(made.path, made.sha256, made.total, made.number, self._state(made, total))
            for made in self._models
        )

    def to_renew(self, total: str) -> tuple[Product, ...]:
        """Of the heads that the ledger wrote, the last at each path, those that are superseded."""
        last = {made.path: made for made in self._models if made.ours}.values()
        return tuple(made for made in last if self._state(made, total) == "superseded")

    def _state(self, made: Product, total: str) -> str:
        if made.total == total:
            return "current"
        gone = [tombstone for tombstone in self._tombstones.values() if tombstone.upload]
        with_it = any(t.upload < made.number < t.number or not made.known for t in gone)
        return "superseded" if with_it else "older"

    def missing(self, wanted: Iterable[str]) -> tuple[str, ...]:
        return tuple(c for c in wanted if normalized(c) not in self.of and not self.left(c))

    def receipt(self, entry: Entry, *, repeated: bool) -> Receipt:
        return Receipt(entry.who, self._round, entry.digest, entry.number, repeated)


def repeats(entry: Entry, clients: tuple[str, ...], key: str, digest: str) -> Entry:
    """Return `entry` if this is the same upload again; else raise `UploadRejected`."""
    if set(entry.clients) != set(clients):
        shared = sorted(set(entry.clients) & set(clients))[0]
        raise UploadRejected(
            "overlap",
            f"client: {shared!r} is in another upload; the difference of the two would show it",
        )
    if entry.key != key:
        raise UploadRejected("member", f"client: {clients[0]!r} is in already, under another key")
    if entry.digest != digest:
        raise UploadRejected("key", f"key: {key!r} came before with other bytes")
    return entry

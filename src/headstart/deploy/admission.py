"""Admission: what an upload must be before it is made durable, and what a client refuses to send
unless its owner insists. Every refusal has a stable code and a reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from headstart import heads
from headstart.deploy.integrality import Integrality
from headstart.deploy.names import is_name, normalized, read_alike
from headstart.errors import DataError, HeadstartError, WireError
from headstart.federation.disclosure import Disclosure, disclosures, few_images
from headstart.heads.base import check_upload
from headstart.labels import Labels, as_labels
from headstart.registry import require_plugins
from headstart.statistics import wire
from headstart.statistics.base import Statistic, check_alike
from headstart.statistics.wire import Limits

CODES = {
    "client": "no name of 1 to 256 printable characters, or one that reads like another's",
    "unregistered": "not one of the clients of this federation",
    "round": "another round than the one that is open",
    "rate": "too many tries in a minute",
    "exact": "exact where it should not be, or the other way around",
    "labels": "integers where text was agreed, or the other way around",
    "unagreed": "a class that is not on the agreed list",
    "quota": "more classes that nobody else has than one client may bring",
    "extractor": "features of another extractor than the agreed one",
    "many": "more classes or samples than one total may have",
    "key": "the same key with other bytes",
    "member": "this client is in the total already",
    "forgotten": "this client was forgotten; it stays out",
    "overlap": "a client of this group is in another one: their difference would show it",
    "small": "a client's own refusal: so few samples would show them",
    "plugin": "a client's own refusal: it has not the server's plugin files",
    "unreadable": "something went wrong while it was read, such as memory that ran out",
    "budget": "a client's own refusal: so many questions about its samples are enough",
    "train": "a client's own refusal: nobody agreed that this part trains",
    "agreement": "a client's own refusal: not what it agreed to when it joined",
    "promise": "an answer that its step did not promise",
    **wire.CODES,
}
KINDS = {"integer": "integers", "text": "text"}  # of labels
_OVERHEAD = 2**20  # of a message beyond its numbers: header, counts, names of classes
Who = str | tuple[str, ...]  # a client, or the clients of a masked group


class UploadRejected(WireError):
    """An upload that is not admitted: `code` is one of `CODES`, `str()` says why."""


# -- what is agreed ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Contract:
    """What every upload of one federation must fit.

    round          id of this collection of uploads; any other is stale
    step           what clients are asked: `federation.steps.measure(head, …).params`
    dimension      of the features
    clients        who may come; none: any client
    caps           the most samples of some clients
    samples        the most samples of a client that has no cap of its own
    labels         what labels are: "integer" or "text"
    class_list     the classes there may be; none: any of that kind, up to
    new_classes    the most that one client may bring which no other has
    classes        the most classes of the total
    message_bytes  the largest message; None: what `dimension` and `classes` can need
    largest        the largest magnitude of a feature, where not exact (None: any)
    norm           the largest Euclidean norm of a sample's features (None: any)
    attempts       tries of one client a minute (None: any)
    plugins        files of code that server and clients must both have: name → SHA-256
    extractor      what makes everybody's features (by its identity); None: they are as they are
    """

    round: str
    step: Mapping[str, Any]
    dimension: int
    caps: Mapping[str, int] = field(default_factory=dict)
    samples: int = 100_000
    classes: int = 10_000
    message_bytes: int | None = None
    largest: float | None = None
    attempts: int | None = 60
    clients: Sequence[str] = ()
    norm: float | None = None
    plugins: Mapping[str, str] = field(default_factory=dict)
    labels: str = "integer"
    class_list: Sequence[int | str] = ()
    new_classes: int = 1000
    extractor: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not is_name(self.round):
            raise HeadstartError(f"round: expected a name of printable text, got {self.round!r}")
        missing = {"head", "settings", "exact", "bound"} - set(self.step)
        if missing:
            raise HeadstartError(f"step: expected those of a measurement, missing {missing}")
        for name in ("dimension", "samples", "classes", "new_classes"):
            _natural(name, getattr(self, name))
        for name in ("message_bytes", "attempts"):
            if getattr(self, name) is not None:
                _natural(name, getattr(self, name))
        if isinstance(self.clients, str) or not all(is_name(client) for client in self.clients):
            raise HeadstartError(f"clients: expected names of clients, got {self.clients!r:.80}")
        object.__setattr__(self, "clients", clients_of(tuple(self.clients)))
        if alike := read_alike(self.clients):
            raise HeadstartError(f"clients: {alike[0]!r} and {alike[1]!r} read alike")
        for client, cap in self.caps.items():
            if not is_name(client):
                raise HeadstartError(f"caps: expected names of clients, got {client!r}")
            _natural(f"caps of {client}", cap)
        object.__setattr__(self, "caps", {normalized(name): n for name, n in self.caps.items()})
        for name in ("largest", "norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e100:
                raise HeadstartError(f"{name}: expected a number above 0, got {value!r}")
        if self.labels not in KINDS:
            raise HeadstartError(f"labels: expected {' or '.join(KINDS)}, got {self.labels!r}")
        if self.class_list and kind_of(self._listed) != self.labels:
            raise HeadstartError(f"class_list: expected {KINDS[self.labels]}, got the other kind")
        object.__setattr__(self, "class_list", tuple(self.class_list))
        require_plugins(self.plugins)
        _ = self.head

    @cached_property
    def head(self) -> Any:
        return heads.make(self.step["head"], dict(self.step["settings"]))

    @cached_property
    def empty(self) -> Any:
        """The statistic of no samples: what every upload must be able to join."""
        nothing = np.zeros((0, self.dimension)), np.zeros(0, np.int64)
        how = {"exact": bool(self.step["exact"]), "bound": float(self.step["bound"])}
        return self.head.measure(*nothing, **how, secret=b"")

    @cached_property
    def _listed(self) -> Labels:
        return as_labels(list(self.class_list))

    @property
    def exact(self) -> bool:
        return bool(self.step["exact"])

    @property
    def size_limit(self) -> int:
        """Bytes of a Gram matrix in float64, or of a factor of full rank, with all the classes."""
        d = int(self.empty.dimension)
        return self.message_bytes or 8 * (d * (d + 1) // 2 + d * self.classes) + _OVERHEAD

    def check_classes(self, classes: Labels) -> None:
        """Refuse labels of another kind than the agreed one, or a class that is not on the list."""
        check_classes(classes, self.labels, self._listed)

    def same_features(self, extractor: Mapping[str, Any] | None) -> bool:
        """Whether this is the agreed extractor: the same network on the same weights, whatever its
        file is called."""
        return identity(extractor) == identity(self.extractor)

    def cap(self, who: Who) -> int:
        """The most samples of a client, or of a group together."""
        return sum(self.caps.get(client, self.samples) for client in clients_of(who))

    def limits(self, who: Who) -> Limits:
        """What this client's message is held to; a group's is a sum."""
        empty, own = self.empty, getattr(self.head, "feature_map", None)
        lattice = empty.lattice or (own and own.lattice)  # random features have their own bounds
        return Limits(
            bytes=self.size_limit,
            samples=self.cap(who),
            bound=lattice.bound if lattice else self.largest,
            dimension=int(empty.dimension),
            classes=self.classes,
            norm=own.norm if own else self.norm,
            total=len(clients_of(who)) > 1,
        )

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Any) -> Contract:
        try:
            return cls(**plain)
        except TypeError:
            raise HeadstartError("contract: damaged, or of another version") from None


def kind_of(classes: Labels) -> str:
    """Return the kind of labels, "text" or "integer"."""
    return "text" if classes.dtype.kind == "U" else "integer"


def check_classes(classes: Labels, kind: str, listed: Labels) -> None:
    """Refuse labels of another kind, or a class that is not listed (nothing listed: any)."""
    if len(classes) and kind_of(classes) != kind:
        raise UploadRejected(
            "labels", f"labels: expected {KINDS[kind]}, as agreed, got the other kind"
        )
    strange = classes[~np.isin(classes, listed)] if len(listed) else classes[:0]
    if len(strange):
        raise UploadRejected(
            "unagreed", f"labels: expected classes of the agreed list, got {strange[0]!r:.80}"
        )


def identity(extractor: Mapping[str, Any] | None) -> Any:
    """By what extractors are told apart: not by what a file is called."""
    return None if extractor is None else (extractor.get("identity"), extractor.get("text"))


def clients_of(who: Who) -> tuple[str, ...]:
    """The clients of an upload, each name in its one spelling."""
    names = (who,) if isinstance(who, str) else tuple(who)
    return tuple(normalized(name) if isinstance(name, str) else name for name in names)


def _natural(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise HeadstartError(f"{name}: expected a whole number above 0, got {value!r}")


# -- the server's side -------------------------------------------------------------------------


class UploadValidator:
    """The checks that need no memory of other uploads; the ledger adds those that do."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self._integrality = Integrality(int(contract.empty.dimension))

    def admit(self, client: Who, round: str, size: int) -> None:
        """Before a byte of the message is read or kept: who, which round, how large."""
        names, contract = clients_of(client), self.contract
        if not names or not all(is_name(name) for name in names) or read_alike(names):
            raise UploadRejected(
                "client", f"client: expected names of printable text, got {client!r:.80}"
            )
        strangers = [name for name in names if contract.clients and name not in contract.clients]
        if strangers:
            raise UploadRejected("unregistered", f"client: {strangers[0]!r} is not registered here")
        if round != contract.round:
            raise UploadRejected("round", f"round: {contract.round!r} is open, got {round!r:.80}")
        if size > contract.size_limit:
            raise UploadRejected(
                "size", f"message: expected at most {contract.size_limit} bytes, got {size}"
            )

    def check(self, client: Who, round: str, payload: bytes) -> Statistic:
        """The statistic, or `UploadRejected`. What passes can join any total of this contract."""
        self.admit(client, round, len(payload))
        contract = self.contract
        try:
            upload = contract.head.statistic.from_bytes(payload, contract.limits(client))
            self._fits(upload)
            check_upload(contract.head, upload, len(clients_of(client)))
            self._integrality.check(upload)
        except UploadRejected:
            raise
        except WireError as error:
            raise UploadRejected(error.code, str(error).removesuffix(f" [{error.code}]")) from None
        except Exception as error:  # one bad message is never the end of a collection
            text = f"message: could not be read ({type(error).__name__})"
            raise UploadRejected("unreadable", text) from error
        return upload

    def _fits(self, upload: Any) -> None:
        empty = self.contract.empty
        if (upload.lattice is None) != (empty.lattice is None):
            word = "exact" if empty.lattice else "inexact"
            raise UploadRejected("exact", f"message: expected {word} statistics")
        try:
            self.contract.check_classes(upload.classes)
            check_alike(empty, upload)
            if hasattr(empty, "tables"):
                _ = empty + upload  # tables of the same widths
        except DataError as error:
            raise UploadRejected("shape", str(error)) from None


class Rate:
    """Tries of one client a minute; `clock` in seconds. Memory is bounded by the busy ones."""

    def __init__(
        self, attempts: int | None, clock: Callable[[], float] = time.monotonic, limit: int = 4096
    ) -> None:
        self._attempts, self._clock, self._limit = attempts, clock, limit
        self._spent: dict[str, tuple[float, float]] = {}  # client: tries not yet forgiven, when

    def spend(self, client: str) -> None:
        """One try; `UploadRejected` when it comes too soon. Tries are forgiven evenly over time."""
        if self._attempts is None:
            return
        now = self._clock()
        tries = self._left(client, now)
        if tries + 1 > self._attempts:
            wait = 60 * (tries + 1 - self._attempts) / self._attempts
            raise UploadRejected("rate", f"client: {client!r} tries too often; wait {wait:.0f} s")
        self._spent[client] = (tries + 1, now)
        if len(self._spent) > self._limit:
            self._spent = {
                name: spent for name, spent in self._spent.items() if self._left(name, now) > 0
            }

    def _left(self, client: str, now: float) -> float:
        tries, then = self._spent.get(client, (0.0, now))
        return max(0.0, tries - (now - then) * (self._attempts or 0) / 60)


# -- the client's side -------------------------------------------------------------------------


_ADVICE = "Use a secure sum, put samples together, or say that it is to be sent all the same"


def check_small_client(
    labels: ArrayLike,
    head: Any = None,
    dimension: int | None = None,
    *,
    protected: bool = False,
    send_anyway: bool = False,
    shows: str = "",
    advice: str = _ADVICE,
    images: int | None = None,
) -> tuple[Disclosure, ...]:
    """Refuse (code `small`) to send what would show single samples; else what it does show.

    `head`: whose statistic is sent (one of counts alone shows no features); None for something else
    that is made of features, such as a gradient: `shows` says how it shows them.
    `protected`: what is sent goes into a secure sum or carries noise of differential privacy.
    `send_anyway`: its owner decided so. `advice`: what a client that refuses can do.
    `images`: how many there are, where labels are those of their cells: it is they that are few.
    """
    if protected or (head is not None and not carries_features(head)):
        return ()
    if images is None:
        _, counts = np.unique(as_labels(labels), return_counts=True)
        found = disclosures(counts.tolist(), dimension)
    else:
        found = few_images(images)
    reasons = [leak.text for leak in found if leak.refused]
    if reasons and not send_anyway:
        raise UploadRejected(
            "small",
            f"client: not sent, since the server could read {'; '.join(reasons)}"
            f"{shows and f' ({shows})'}. {advice}",
        )
    return found


def carries_features(head: Any) -> bool:
    """Whether a head's statistic is made of features, and not of class counts alone."""
    empty = head.measure(np.zeros((0, 1)), np.zeros(0, np.int64), secret=b"")
    return not (hasattr(empty, "tables") and not empty.tables)

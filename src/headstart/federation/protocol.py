"""The only door between server and clients: a step goes out, statistics come back.

A step is data (a registered name and plain parameters; arrays travel in the broadcast), never a
closure, so a remote client runs the same step that a simulated one does. Whatever a server wants to
know of clients it asks by a step: how many samples of each class they have, too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headstart import optional
from headstart.data.samples import Samples
from headstart.errors import DataError, HeadstartError
from headstart.statistics.base import Summable, total

Arrays = Mapping[str, NDArray[Any]]
OUTSIDE = "outside/"  # arrays of a broadcast that only an evaluation needs: no method's bytes
EXTRACTOR = "extractor"  # the parameter of a step whose client looks through a broadcast network


@dataclass(frozen=True)
class Step:
    """What clients are asked to do. A `silent` client answers as if it had no samples."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    silent: bool = False


@dataclass(frozen=True, eq=False)
class Answer:
    """What came back: whose it is, the statistic, and the bytes to and from these clients.

    One client's own, or the sum of several (of a worker, a masked group, the whole federation).
    `payload` is the message that one client sent, byte for byte, where there was one.
    """

    clients: tuple[str, ...]
    statistic: Any
    up: int = 0
    down: int = 0
    payload: bytes | None = None


@dataclass(frozen=True, eq=False)
class ClientData:
    """What a client holds and never sends: its samples, its own test part, its secret.

    `memory` is what it keeps between the rounds of a training: plain arrays, which it changes.
    """

    samples: Samples
    test: Samples | None = None
    secret: bytes | None = None
    memory: dict[str, NDArray[Any]] = field(default_factory=dict)

    def emptied(self) -> ClientData:
        """The same client with nothing to say: its statistics are zeros."""
        return ClientData(self.samples.first(0), secret=self.secret)


# -- what clients can be asked ---------------------------------------------------------------------

Work = Callable[[ClientData, Mapping[str, Any], Arrays], Summable]
# The same work on many clients at once, for simulations: (whose, statistic) of some, or the sum.
Together = Callable[
    [Mapping[str, ClientData], Mapping[str, Any], Arrays], Iterable[tuple[tuple[str, ...], Any]]
]


class View(Protocol):
    """A client's samples through the network of a broadcast; `tests`: its test part as well."""

    def __call__(
        self, client: ClientData, network: Mapping[str, Any], broadcast: Arrays, *, tests: bool
    ) -> ClientData: ...


@dataclass(frozen=True)
class StepKind:
    """What is known of a step before anybody carries it out.

    `answer`: the type of statistic it is answered with, or how the step's parameters tell it.
    `discloses`: what the answer of a client with few samples shows of them (empty: nothing that
    could be undone to a sample), for which small clients refuse. `kept`: arrays of the broadcast
    that a client keeps for the whole training, so that they are sent to it once. `tests`: it needs
    the client's own test part. `fused`: work `together` gives the sum of all clients, not an answer
    of each.
    """

    work: Work
    answer: type[Any] | Callable[[Mapping[str, Any]], type[Any]]
    discloses: str = ""
    kept: frozenset[str] = frozenset()
    tests: bool = False
    together: Together | None = None
    fused: bool = False

    def answer_type(self, step: Step) -> type[Any]:
        """The statistic that clients answer this step with."""
        return self.answer if isinstance(self.answer, type) else self.answer(step.params)


STEPS: dict[str, StepKind] = {}
VIEWS: dict[str, View] = {}
# Where our own are registered: those that train need torch, and are imported when first asked for.
_MODULES = {
    **dict.fromkeys(("measure", "counts", "calibrate", "personal"), "headstart.federation.steps"),
    "channels": "headstart.federation.channels",
    **dict.fromkeys(("update", "gradient"), "headstart.gradient.steps"),
    "home": "headstart.gradient.home",
    "refit": "headstart.gradient.refit",
    EXTRACTOR: "headstart.gradient.refit",
}


def step_names() -> list[str]:
    """Every step that can be asked for by name."""
    return sorted({*_MODULES, *STEPS} - {EXTRACTOR})


def step_kind(name: str) -> StepKind:
    """What is known of a step; an unknown name is refused."""
    if name not in STEPS and name in step_names():
        _import(name)
    if name not in STEPS:
        raise HeadstartError(f"step: expected one of {', '.join(step_names())}, got {name!r}")
    return STEPS[name]


def _import(name: str) -> None:
    """Load the module that registers a step; refused where the extra that it needs is missing."""
    module = _MODULES[name]
    if module.startswith("headstart.gradient."):
        optional.check("torch", f"step {name}")
    importlib.import_module(module)


def register(
    name: str,
    answer: type[Any] | Callable[[Mapping[str, Any]], type[Any]],
    *,
    discloses: str = "",
    kept: Iterable[str] = (),
    tests: bool = False,
) -> Callable[[Work], Work]:
    """Give a piece of client work the name by which a step asks for it."""

    def put(work: Work) -> Work:
        STEPS[name] = StepKind(work, answer, discloses, frozenset(kept), tests)
        return work

    return put


def register_together(
    name: str,
    answer: type[Any],
    *,
    discloses: str = "",
    kept: Iterable[str] = (),
    fused: bool = False,
) -> Callable[[Together], Together]:
    """The same for work on many clients; on one client it is the work of that name."""

    def put(together: Together) -> Together:
        def alone(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
            ((_, statistic),) = together({"": client}, params, broadcast)
            return statistic

        STEPS[name] = StepKind(
            alone, answer, discloses, frozenset(kept), together=together, fused=fused
        )
        return together

    return put


def register_view(view: View) -> View:
    """How a client sees its samples through the network that a step's broadcast carries."""
    VIEWS[EXTRACTOR] = view
    return view


def perform(step: Step, client: ClientData, broadcast: Arrays) -> Summable:
    """One client answers one step."""
    kind = step_kind(step.name)
    if step.silent:
        client = client.emptied()
    if EXTRACTOR in step.params:
        if EXTRACTOR not in VIEWS:
            _import(EXTRACTOR)
        client = VIEWS[EXTRACTOR](client, step.params[EXTRACTOR], broadcast, tests=kind.tests)
    return kind.work(client, step.params, broadcast)


def broadcast_bytes(step: Step, broadcast: Arrays) -> tuple[int, int]:
    """Bytes of a broadcast: those of every time, and those that a client keeps for a training."""
    kept = step_kind(step.name).kept
    sizes = {key: array.nbytes for key, array in broadcast.items() if not key.startswith(OUTSIDE)}
    once = sum(size for key, size in sizes.items() if key in kept)
    return sum(sizes.values()) - once, once


# -- the door --------------------------------------------------------------------------------------


class Federation(Protocol):
    """In-process, on a cluster or over a network: the same methods, the same results."""

    @property
    def clients(self) -> Sequence[str]:
        """Who can be asked."""
        ...

    def answers(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Answer]:
        """Each client's answer as it comes; refused where only sums may be seen."""
        ...

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Answer:
        """The sum of all answers; `clients` are those that are in it."""
        ...

    def begin_training(self, name: str) -> None:
        """Clients put their memories of the last training away."""
        ...

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """What a resumed run must find again, as arrays."""
        ...

    def restore(self, arrays: Arrays) -> None:
        """Be as when `snapshot` gave these."""
        ...


def added(answers: Iterable[Answer]) -> Answer:
    """The sum of a stream of answers, in memory that does not grow with it."""
    clients: list[str] = []
    up = down = 0

    def statistics() -> Iterator[Any]:
        nonlocal up, down
        for answer in answers:
            clients.extend(answer.clients)
            up, down = up + answer.up, down + answer.down
            yield answer.statistic

    sum_ = total(statistics())
    return Answer(tuple(clients), sum_, up, down)


def tallies(
    federation: Federation,
    step: Step,
    broadcast: Arrays | None = None,
    cohort: Sequence[str] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Each client's own tally, in the order of the federation; those that are silent are absent."""
    found = {
        answer.clients[0]: answer.statistic.values
        for answer in federation.answers(step, broadcast, cohort)
    }
    return {name: found[name] for name in chosen(federation.clients, cohort) if name in found}


def chosen(clients: Sequence[str], cohort: Sequence[str] | None) -> Sequence[str]:
    """The cohort, or everybody; a name that nobody has is refused."""
    if cohort is None:
        return clients
    known = set(clients)
    unknown = [name for name in cohort if name not in known]
    if unknown:
        raise DataError(f"cohort: expected known clients, got {', '.join(unknown[:5])}")
    return cohort

"""The only door between server and clients: a step goes out, statistics come back.

A step is data (a registered name and plain parameters; arrays travel in the broadcast), never a
closure, so a remote client runs the same step that a simulated one does. Whatever a server wants to
know of clients it requests by a step, class counts included.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headstart import optional
from headstart.data.samples import Samples
from headstart.errors import DataError, HeadstartError
from headstart.registry import Registry, natural_name, qualified
from headstart.statistics.base import Summable, total
from headstart.statistics.wire import Limits

Arrays = Mapping[str, NDArray[Any]]
OUTSIDE = "outside/"  # arrays of a broadcast that only an evaluation needs: no method's bytes
EXTRACTOR = "extractor"  # the parameter of a step whose client measures through a broadcast network


@dataclass(frozen=True)
class Step:
    """What clients should do. A `silent` client answers as if it had no samples."""

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
        """Return the same client without samples: its statistics are zeros."""
        return ClientData(self.samples.first(0), secret=self.secret)


# -- what clients can be asked for ----------------------------------------------------------------

Work = Callable[[ClientData, Mapping[str, Any], Arrays], Summable]
# The same work on many clients at once, for simulations: (whose, statistic) of some, or the sum.
Together = Callable[
    [Mapping[str, ClientData], Mapping[str, Any], Arrays], Iterable[tuple[tuple[str, ...], Any]]
]


# Raises a `WireError` where an answer of so many clients, each within the limits, cannot be one.
Check = Callable[[Any, Limits, int], None]
# What a step's parameters and broadcast promise of every answer; made once per question.
Promise = Callable[[Mapping[str, Any], Arrays], Check]


class View(Protocol):
    """A client's samples through the network of a broadcast; `tests`: its test part as well."""

    def __call__(
        self, client: ClientData, network: Mapping[str, Any], broadcast: Arrays, *, tests: bool
    ) -> ClientData: ...


@dataclass(frozen=True)
class StepKind:
    """What is known of a step before anybody carries it out.

    `answer`: the type of statistic it is answered with, or how the step's parameters give it.
    `discloses`: what the answer of a client with few samples shows of them (empty: nothing that
    could be undone to a sample), for which small clients refuse. `kept`: arrays of the broadcast
    that a client keeps for the whole training, so that they are sent to it once. `tests`: it needs
    the client's own test part. `fused`: work `together` gives the sum of all clients, not an answer
    of each. `promise`: what every answer must look like (`headstart.federation.promises`).
    `budget`: what a node counts such questions as, for it answers only so many about its samples.
    """

    work: Work
    answer: type[Any] | Callable[[Mapping[str, Any]], type[Any]]
    discloses: str = ""
    kept: frozenset[str] = frozenset()
    tests: bool = False
    together: Together | None = None
    fused: bool = False
    promise: Promise | None = None
    budget: str = ""

    def answer_type(self, step: Step) -> type[Any]:
        """The statistic that clients answer this step with."""
        return self.answer if isinstance(self.answer, type) else self.answer(step.params)

    @property
    def about(self) -> str:
        """Return the first line of its work's docstring."""
        return (self.work.__doc__ or "").strip().partition("\n")[0]


# Of this package: the module that registers a step when it is first looked up (those that train
# need torch), and what clients compute.
OWN_STEPS = {
    "measure": ("headstart.federation.steps", "the statistic of a head"),
    "pseudo-measure": ("headstart.federation.steps", "the statistic of what a head is sure of"),
    "counts": ("headstart.federation.steps", "samples of each class"),
    "calibrate": ("headstart.federation.steps", "training losses of a head by temperature"),
    "confusion": ("headstart.federation.steps", "what a head takes test samples or pixels for"),
    "personal": ("headstart.federation.steps", "hits of closed-form personal heads"),
    "channels": ("headstart.federation.channels", "mean and deviation of each colour channel"),
    "styles": ("headstart.federation.styles", "styles of images: colours or low frequencies"),
    "unit-sums": ("headstart.privacy.unit_sums", "sums of features of unit length, or their share"),
    "update": ("headstart.gradient.steps", "the change of a model by local training"),
    "gradient": ("headstart.gradient.steps", "the gradient at the received model"),
    "home": ("headstart.gradient.local", "hits of the client's own model, after training alone"),
    "segment": ("headstart.gradient.pixel_tests", "what a network takes the pixels of tests for"),
    "normalize": ("headstart.gradient.pixel_tests", "sums for a network's batch norm, of tests"),
    "refit": ("headstart.gradient.refit", "the change of a statistic, as the extractor trains"),
}
VIEWS: dict[str, View] = {}


def _import(module: str, what: str) -> None:
    """Load a module that registers; refused where the extra that it needs is missing."""
    if module.startswith("headstart.gradient."):
        optional.check("torch", what)
    importlib.import_module(module)


def _check(name: str, kind: Any) -> None:
    if not isinstance(kind, StepKind):
        raise HeadstartError(
            f"step {name}: expected one that @register_step has registered, got {kind!r:.200}"
        )


STEPS: Registry[StepKind] = Registry(
    "step",
    "headstart.steps",
    dict,
    named=lambda kind: natural_name(kind.work),
    check=_check,
    later={
        name: functools.partial(_import, module, f"step {name}")
        for name, (module, _) in OWN_STEPS.items()
    },
)


def step_kind(name: str) -> StepKind:
    """What is known of a step; refused unless the name is exactly that of a step.

    Names travel, and whoever refuses a step compares them: no other spelling is taken.
    """
    entry = STEPS.entry(name)
    if entry.name != name:
        raise HeadstartError(f"step: expected {entry.name!r}, got {name!r}")
    return entry.load()


def register_step(
    name: str,
    answer: type[Any] | Callable[[Mapping[str, Any]], type[Any]],
    *,
    discloses: str = "",
    kept: Iterable[str] = (),
    tests: bool = False,
    promise: Promise | None = None,
    budget: str = "",
) -> Callable[[Work], Work]:
    """Register a piece of client work under the name that steps use.

    What is decorated is a function of (client, params, broadcast) that returns a statistic of the
    type `answer`. `discloses`, `kept` and `tests` are those of `StepKind`.
    """

    def put(work: Work) -> Work:
        kind = StepKind(
            work, answer, discloses, frozenset(kept), tests, promise=promise, budget=budget
        )
        STEPS.add(kind, name=name, place=qualified(work))
        return work

    return put


def register_together(
    name: str,
    answer: type[Any],
    *,
    discloses: str = "",
    kept: Iterable[str] = (),
    tests: bool = False,
    fused: bool = False,
    promise: Promise | None = None,
    budget: str = "",
) -> Callable[[Together], Together]:
    """The same for work on many clients; on one client it is the work of that name."""

    def put(together: Together) -> Together:
        @functools.wraps(together)
        def alone(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
            ((_, statistic),) = together({"": client}, params, broadcast)
            return statistic

        kind = StepKind(
            alone, answer, discloses, frozenset(kept), tests, together, fused, promise, budget
        )
        STEPS.add(kind, name=name, place=qualified(together))
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
            _import("headstart.gradient.refit", f"step {step.name} through a network")
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
        """The ids of the clients that can answer."""
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
    by_client = {
        answer.clients[0]: answer.statistic.values
        for answer in federation.answers(step, broadcast, cohort)
    }
    order = chosen(federation.clients, cohort)
    return {name: by_client[name] for name in order if name in by_client}


def chosen(clients: Sequence[str], cohort: Sequence[str] | None) -> Sequence[str]:
    """The cohort, or everybody; a name that nobody has, or that stands twice, is refused."""
    if cohort is None:
        return clients
    existing = set(clients)
    if len(set(cohort)) != len(cohort):
        raise DataError("cohort: expected each client once, got one twice")
    unknown = [name for name in cohort if name not in existing]
    if unknown:
        raise DataError(f"cohort: expected known clients, got {', '.join(unknown[:5])}")
    return cohort

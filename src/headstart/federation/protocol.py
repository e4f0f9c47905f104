"""The only door between server and clients: a step goes out, statistics come back.

A step is data (a registered name and plain parameters; arrays travel in the broadcast), never a
closure, so a remote client runs the same step that a simulated one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headstart.data.rdn import Looks
from headstart.errors import HeadstartError
from headstart.labels import Labels
from headstart.statistics.base import Summable

Arrays = Mapping[str, NDArray[Any]]
Upload = tuple[tuple[str, ...], Any]  # whose it is, and the statistic; a masked group is one upload


@dataclass(frozen=True)
class Step:
    """What clients are asked to do."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ClientData:
    """What a client holds and never sends: its samples, its own test part, its secret.

    `memory` is what it keeps between the rounds of a training: plain arrays, which it changes.
    `looks`: how else it may see its images in training (FedRDN).
    """

    features: NDArray[Any]
    labels: Labels
    test_features: NDArray[Any] | None = None
    test_labels: Labels | None = None
    secret: bytes | None = None
    memory: dict[str, NDArray[Any]] = field(default_factory=dict)
    looks: Looks | None = None

    def emptied(self) -> ClientData:
        """The same client with nothing to say: its statistics are zeros."""
        return ClientData(self.features[:0], self.labels[:0], secret=self.secret)


Work = Callable[[ClientData, Mapping[str, Any], Arrays], Summable]
STEPS: dict[str, Work] = {}
# Work that a simulation may do for many clients at once: the answers of some, or the sum of all.
Together = Callable[[Mapping[str, ClientData], Mapping[str, Any], Arrays], Iterable[Upload]]
TOGETHER: dict[str, Together] = {}


def register(name: str) -> Callable[[Work], Work]:
    """Give a piece of client work the name by which a step asks for it."""

    def put(work: Work) -> Work:
        STEPS[name] = work
        return work

    return put


def register_together(name: str) -> Callable[[Together], Together]:
    """The same for work on many clients; on one client it is the work of that name."""

    def put(together: Together) -> Together:
        def alone(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
            ((_, answer),) = together({"": client}, params, broadcast)
            return answer

        TOGETHER[name] = together
        STEPS[name] = alone
        return together

    return put


def perform(step: Step, client: ClientData, broadcast: Arrays) -> Summable:
    """One client answers one step."""
    if step.name not in STEPS:
        raise HeadstartError(f"step: expected one of {', '.join(STEPS)}, got {step.name!r}")
    return STEPS[step.name](client, step.params, broadcast)


class Federation(Protocol):
    """In-process or over a network: the same methods, the same results."""

    @property
    def clients(self) -> Sequence[str]: ...
    def uploads(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Upload]:
        """(client ids, statistic) as they come."""
        ...

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Any:
        """The uploads, folded."""
        ...

    def evaluate(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """Each client's own tally."""
        ...

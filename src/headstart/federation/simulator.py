"""The in-process federation: every client is asked once, in any order, through the real wire.

`Sync` is Fed3R-Sync (Fanì 2025): groups of κ clients, of which the server sees only the sum.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import threads
from headstart.errors import DataError, HeadstartError
from headstart.federation import steps  # noqa: F401  (registers what clients can do)
from headstart.federation.protocol import TOGETHER, Arrays, ClientData, Step, Upload, perform
from headstart.statistics.base import total


def secret_of(seed: int, client: str) -> bytes:
    """A simulated client's secret: repeatable, and its own. (A real client draws and keeps one.)"""
    return hashlib.sha256(f"headstart simulated client {seed} {client}".encode()).digest()


@dataclass(frozen=True)
class Simulator:
    """Clients in this process. Each answer is encoded, counted, decoded and checked as a real one.

    `precision` is that of the wire (None: float32, or whole for exact statistics). Work that can be
    done for many clients at once is (`together`); the server then sees the sum of their answers,
    and each is counted as if it had been sent.
    """

    data: Mapping[str, ClientData]
    seed: int = 0
    precision: str | None = None
    sent: Counter[str] = field(default_factory=Counter)  # bytes up, by client
    together: bool = True
    _own: dict[str, tuple[ClientData, ClientData]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        if not self.data:
            raise DataError("federation: expected at least one client, got none")

    @property
    def clients(self) -> Sequence[str]:
        return tuple(self.data)

    def uploads(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Upload]:
        names = self._chosen(cohort)
        if self.together and step.name in TOGETHER:
            yield from self._at_once(step, names, broadcast or {})
            return
        for name in names:
            message = self.message(step, name, broadcast)
            kind, data = message
            self.sent[name] += len(data)
            yield (name,), kind.from_bytes(data)

    def _at_once(self, step: Step, names: Sequence[str], broadcast: Arrays) -> Iterator[Upload]:
        """A sum has the arrays of each of its parts, so its size is what each client sends. Nobody
        sends the sum itself: it takes the precision of the wire, and is not written."""
        clients = {name: self._client(name) for name in names}
        for ids, answer in TOGETHER[step.name](clients, step.params, broadcast):
            if len(ids) == 1:
                data = self._encoded(answer)
                size, came = len(data), type(answer).from_bytes(data)
            else:
                size, came = answer.size(self.precision), answer
                if self.precision is not None:
                    came = type(answer).from_arrays(answer.to_arrays(self.precision))
            for name in ids:
                self.sent[name] += size
            yield ids, came

    def forget(self) -> None:
        """Another training begins: what clients remember of the last one is put away."""
        for client in self.data.values():
            client.memory.clear()

    def _client(self, name: str) -> ClientData:
        """With a secret: the same object every time, so that its work can be kept."""
        client = self.data[name]
        if client.secret is not None:
            return client
        held, own = self._own.get(name, (None, client))
        if held is not client:
            own = replace(client, secret=secret_of(self.seed, name))
            self._own[name] = client, own
        return own

    def message(
        self, step: Step, name: str, broadcast: Arrays | None = None, *, silent: bool = False
    ) -> tuple[Any, bytes]:
        """The type and the bytes of one client's answer; a `silent` one sends zeros."""
        client = self._client(name)
        with threads.for_size(len(client.labels)):
            answer = perform(step, client.emptied() if silent else client, broadcast or {})
            return type(answer), self._encoded(answer)

    def _encoded(self, answer: Any) -> bytes:
        data: bytes = answer.to_bytes(None if getattr(answer, "lattice", None) else self.precision)
        return data

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Any:
        return total(statistic for _, statistic in self.uploads(step, broadcast, cohort))

    def evaluate(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        return {ids[0]: tally.values for ids, tally in self.uploads(step, broadcast, cohort)}

    def _chosen(self, cohort: Sequence[str] | None) -> Sequence[str]:
        unknown = [name for name in cohort or () if name not in self.data]
        if unknown:
            raise DataError(f"cohort: expected known clients, got {', '.join(unknown[:5])}")
        return self.clients if cohort is None else cohort


@dataclass(frozen=True)
class Sync:
    """Rounds of κ clients; one upload, the group's sum, a round.

    Without replacement all have spoken after ⌈K/κ⌉ rounds. With it, a client drawn again sends
    zeros, for the server cannot tell who is in a sum; it goes on until all have spoken, or for
    `rounds`.
    """

    inner: Simulator
    size: int
    replace: bool = False
    seed: int = 0
    rounds: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.size <= len(self.inner.clients):
            raise HeadstartError(
                f"size: expected a group of 1 to {len(self.inner.clients)}, got {self.size}"
            )

    @property
    def clients(self) -> Sequence[str]:
        return self.inner.clients

    def groups(self, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Who is asked in each round."""
        rng = np.random.default_rng(self.seed)
        if not self.replace:
            order = [names[i] for i in rng.permutation(len(names))]
            for start in range(0, len(order), self.size)[: self.rounds]:
                yield tuple(order[start : start + self.size])
            return
        missing, done = set(names), 0
        while missing if self.rounds is None else done < self.rounds:
            group = tuple(names[i] for i in rng.choice(len(names), self.size, replace=False))
            missing -= set(group)
            done += 1
            yield group

    def uploads(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Upload]:
        spoken: set[str] = set()
        for group in self.groups(self.clients if cohort is None else cohort):
            answers = []
            for name in group:
                kind, data = self.inner.message(step, name, broadcast, silent=name in spoken)
                if not kind.is_sum:
                    raise HeadstartError(
                        f"sync: {kind.__name__} are rows, not sums; a group cannot hide them"
                    )
                answers.append(kind.from_bytes(data))
            spoken |= set(group)
            yield group, total(answers)

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Any:
        return total(statistic for _, statistic in self.uploads(step, broadcast, cohort))

    def evaluate(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        return self.inner.evaluate(step, broadcast, cohort)

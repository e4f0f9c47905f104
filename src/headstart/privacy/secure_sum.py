"""Fed3R-Sync with secure sums: groups of clients of which the server can see only the sum.

`SecureSync` is `federation.simulator.Sync` whose groups go through the masked protocol, client and
server halves exchanging the very bytes that a network would carry; the sums are the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError, HeadstartError, WireError
from headstart.federation.protocol import Arrays, Step, Upload
from headstart.federation.simulator import Simulator, Sync
from headstart.privacy.client import Client
from headstart.privacy.groups import Book
from headstart.privacy.layout import Layout
from headstart.privacy.server import Server
from headstart.privacy.terms import Policy, Terms
from headstart.statistics.base import total

Group = tuple[str, ...]
# Who vanishes before answering, of those asked at a stage of a round: (number, stage, asked).
Vanish = Callable[[int, str, Sequence[str]], Collection[str]]


def nobody(number: int, stage: str, asked: Sequence[str]) -> Collection[str]:
    return ()


def carry(
    server: Server,
    clients: Mapping[str, Client],
    vanish: Callable[[str, Sequence[str]], Collection[str]] = lambda stage, asked: (),
    sent: Callable[[str, int], object] = lambda name, size: None,
    lost: Callable[[str, str], object] = lambda name, why: None,
) -> Any:
    """One round in this process: the sum of the survivors, or `Abort`.

    `sent` is told the bytes of each message up, `lost` who left and why (a stage, or a code).
    """
    asked: dict[str, bytes] = dict.fromkeys(clients, b"")
    while (stage := server.stage) != "done":
        gone = set(vanish(stage, tuple(asked)))
        for name, question in asked.items():
            if name in gone:
                lost(name, stage)
                continue
            try:
                client = clients[name]
                answer = client.answer(question) if question else client.start()
                sent(name, len(answer))
                server.receive(name, answer)
            except WireError as refusal:
                lost(name, refusal.code)
        asked = server.close()
    return server.total


@dataclass(frozen=True)
class SecureSync:
    """Rounds of `size` clients, each once; one upload a round: the sum, opened by its members.

    `classes` is the list agreed beforehand; a client with another class is an error. Statistics
    must be exact sums. A last group too small for the policy joins the one before. Who leaves in
    mid-round is left out; so is a whole group when too few remain. `lost` says who, and why.
    """

    inner: Simulator
    size: int
    classes: ArrayLike
    seed: int = 0
    rounds: int | None = None
    policy: Policy = field(default_factory=Policy)
    vanish: Vanish = nobody  # drop-outs, for tests
    lost: dict[str, str] = field(default_factory=dict)
    books: dict[str, Book] = field(default_factory=dict)  # what each client remembers
    opened: list[Group] = field(default_factory=list)  # the groups of all sums so far

    def __post_init__(self) -> None:
        if not self.policy.group <= self.size <= len(self.inner.clients):
            raise HeadstartError(
                f"size: expected a group of {self.policy.group} to {len(self.inner.clients)} "
                f"clients, got {self.size}"
            )

    @property
    def clients(self) -> Sequence[str]:
        return self.inner.clients

    def groups(self, names: Sequence[str]) -> list[Group]:
        """Who is asked in each round: the groups of `Sync`, the last one never too small."""
        unknown = [name for name in names if name not in self.inner.data]
        if unknown:
            raise DataError(f"cohort: expected known clients, got {', '.join(unknown[:5])}")
        plain = Sync(self.inner, self.size, seed=self.seed, rounds=self.rounds)
        groups = list(plain.groups(names))
        if len(groups) > 1 and len(groups[-1]) < self.policy.group:
            groups[-2:] = [groups[-2] + groups[-1]]
        return groups

    def uploads(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Upload]:
        names = self.clients if cohort is None else cohort
        for number, group in enumerate(self.groups(names)):
            answers = {name: self._answer(step, name, broadcast) for name in group}
            found = self._round(number, answers)
            if found is not None:
                yield found

    def _answer(self, step: Step, name: str, broadcast: Arrays | None) -> Any:
        kind, data = self.inner.message(step, name, broadcast)
        return kind.from_bytes(data)

    def _round(self, number: int, answers: Mapping[str, Any]) -> Upload | None:
        layout = Layout.of(next(iter(answers.values())), self.classes)
        terms = Terms.plan(answers, layout, threshold=self.policy.floor(len(answers)))
        server = Server(terms, earlier=self.opened, least=self.policy.group)
        members = {
            name: Client(name, terms, answer, policy=self.policy, book=self._book(name))
            for name, answer in answers.items()
        }
        gone: dict[str, str] = {}
        try:
            found = carry(
                server,
                members,
                lambda stage, asked: self.vanish(number, stage, asked),
                lambda name, size: self.inner.sent.update({name: size}),
                gone.__setitem__,
            )
        except WireError as refusal:
            self.lost.update(dict.fromkeys(answers, refusal.code) | gone)
            return None
        self.lost.update({name: why for name, why in gone.items() if name not in server.survivors})
        self.opened.append(tuple(server.survivors))
        return tuple(server.survivors), found

    def _book(self, name: str) -> Book:
        return self.books.setdefault(name, Book())

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Any:
        return total(statistic for _, statistic in self.uploads(step, broadcast, cohort))

    def evaluate(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """Each client's own tally, as it is: tests at home are not masked."""
        return self.inner.evaluate(step, broadcast, cohort)

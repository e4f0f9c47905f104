"""A federation whose measurements are kept: who has answered may be absent, and is not asked again.

A store holds the messages of one step (a run's folder, a ledger). They also hold how many samples
of each class a client has, so that class counts need no second question.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headstart.federation.promises import sound
from headstart.federation.protocol import Answer, Arrays, Federation, Step, added, chosen, step_kind
from headstart.federation.steps import counts
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.exact import Lattice


class Store(Protocol):
    """Messages of one step, each kept under the clients that it is of."""

    @property
    def step(self) -> Step | None:
        """What they answer, as far as it is known."""
        ...

    def holds(self, step: Step) -> bool:
        """Whether messages of this step are kept here."""
        ...

    def members(self) -> Sequence[tuple[str, ...]]:
        """Whose messages are kept: one client's, or a group's."""
        ...

    def messages(self, wanted: Sequence[tuple[str, ...]]) -> Iterator[bytes]:
        """The messages of these members, in their order."""
        ...

    def keep(self, answer: Answer) -> None:
        """Keep an answer that has just come."""
        ...

    def total(self) -> tuple[Any, int] | None:
        """The sum of all that is kept and the bytes that it took, if the store has it at hand."""
        ...


@dataclass(frozen=True)
class Recorded:
    """`inner`, but what `store` holds is answered from there, and what is new is kept in it."""

    inner: Federation
    store: Store

    @property
    def clients(self) -> Sequence[str]:
        return self.inner.clients

    def answers(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Answer]:
        if step == counts() and self._complete(cohort):
            for answer in self._kept(self._wanted(cohort)):
                yield Answer(answer.clients, class_counts(answer.statistic))
            return
        if not self.store.holds(step):
            yield from self.inner.answers(step, broadcast, cohort)
            return
        wanted = self._wanted(cohort)
        yield from self._kept(wanted)
        members = {name for clients in self.store.members() for name in clients}
        missing = [name for name in chosen(self.clients, cohort) if name not in members]
        if missing:
            for answer in self.inner.answers(step, broadcast, missing):
                self.store.keep(answer)
                yield answer

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Answer:
        ours = self.store.holds(step)
        if not ours and step != counts():
            return self.inner.total(step, broadcast, cohort)
        whole = self.store.total() if ours and cohort is None and self._complete(None) else None
        if whole is None:
            return added(self.answers(step, broadcast, cohort))
        everybody = tuple(name for clients in self.store.members() for name in clients)
        return Answer(everybody, *whole)

    def _wanted(self, cohort: Sequence[str] | None) -> list[tuple[str, ...]]:
        """Kept messages of the cohort; all of them, absent clients' too, where none is named."""
        members = list(self.store.members())
        if cohort is None:
            return members
        names = set(cohort)
        return [clients for clients in members if names.issuperset(clients)]

    def _complete(self, cohort: Sequence[str] | None) -> bool:
        """Whether every client has already answered."""
        if self.store.step is None:
            return False
        members = {name for clients in self.store.members() for name in clients}
        return bool(members) and members.issuperset(self.clients if cohort is None else cohort)

    def _kept(self, members: Sequence[tuple[str, ...]]) -> Iterator[Answer]:
        step = self.store.step
        assert step is not None
        kind = step_kind(step.name).answer_type(step)
        messages = zip(members, self.store.messages(members), strict=True)
        read = (
            Answer(clients, kind.from_bytes(payload), len(payload), payload=payload)
            for clients, payload in messages
        )
        yield from sound(read, step, None)

    def begin_training(self, name: str) -> None:
        self.inner.begin_training(name)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        return self.inner.snapshot()

    def restore(self, arrays: Arrays) -> None:
        self.inner.restore(arrays)


def same_step(first: Step, other: Step) -> bool:
    """Whether two steps are equal after encoding."""
    return _form(first) == _form(other)


def _form(step: Step) -> str:
    """Drop the bound of a lattice where sums are not exact: it has no effect there."""
    params = dict(step.params)
    if not params.get("exact"):
        params.pop("bound", None)
    return json.dumps([step.name, params, step.silent], sort_keys=True)


def class_counts(statistic: Any) -> ClassSums:
    """What the step `counts` would have been answered, from any statistic of labelled samples."""
    labels = getattr(statistic, "labels", statistic.classes)  # rows have a label each
    classes, at = np.unique(labels, return_inverse=True)
    counted = np.zeros(len(classes), np.int64)
    np.add.at(counted, at, np.rint(statistic.counts).clip(0).astype(np.int64))
    shown = counted > 0
    return ClassSums(1, classes[shown], counted[shown], {}, Lattice(16.0))

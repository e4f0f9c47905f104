"""Fed3R-Sync (Fanì 2025): groups of κ clients, of which the server sees only the sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import HeadstartError
from headstart.federation.protocol import Answer, Arrays, Federation, Step, added, chosen, step_kind


def check_group(size: int, clients: int, least: int = 1) -> None:
    """Refuse a size that no group of these clients can have."""
    if not least <= size <= clients:
        raise HeadstartError(f"group_size: expected {least} to {clients} clients, got {size}")


@dataclass(frozen=True)
class Grouped:
    """Rounds of `size` clients; one answer, the group's sum, per round.

    Without replacement all have spoken after ⌈K/κ⌉ rounds. With it, a client drawn again sends
    zeros, for the server cannot tell who is in a sum; it goes on until all have spoken, or for
    `rounds`.
    """

    inner: Federation
    size: int
    replace: bool = False
    seed: int = 0
    rounds: int | None = None

    def __post_init__(self) -> None:
        check_group(self.size, len(self.inner.clients))

    @property
    def clients(self) -> Sequence[str]:
        return self.inner.clients

    def groups(self, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Return the clients of each round."""
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

    def answers(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Answer]:
        """The sum of each group."""
        kind = step_kind(step.name).answer_type(step)
        if not kind.is_sum:
            raise HeadstartError(
                f"group_size: {kind.__name__} are rows, not sums; a group cannot hide them"
            )
        spoken: set[str] = set()
        for group in self.groups(chosen(self.clients, cohort)):
            again = [name for name in group if name in spoken]
            fresh = [name for name in group if name not in spoken]
            totals = [self.inner.total(step, broadcast, fresh)] if fresh else []
            if again:
                totals.append(self.inner.total(replace(step, silent=True), broadcast, again))
            spoken |= set(group)
            yield replace(added(totals), clients=group)

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Answer:
        return added(self.answers(step, broadcast, cohort))

    def begin_training(self, name: str) -> None:
        self.inner.begin_training(name)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        return self.inner.snapshot()

    def restore(self, arrays: Arrays) -> None:
        self.inner.restore(arrays)

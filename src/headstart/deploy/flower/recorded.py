"""A ledger as the store of a recorded federation: its members are not asked twice, nor have to be
there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.deploy.ledger import Ledger
from headstart.federation.protocol import Answer, Step
from headstart.federation.recorded import same_step


@dataclass(frozen=True)
class LedgerStore:
    """The admitted uploads; it is the collection that puts them there."""

    ledger: Ledger

    @property
    def step(self) -> Step:
        return Step("measure", self.ledger.contract.step)

    def holds(self, step: Step) -> bool:
        return same_step(step, self.step)

    def members(self) -> Sequence[tuple[str, ...]]:
        return [entry.clients for entry in self.ledger.entries()]

    def messages(self, wanted: Sequence[tuple[str, ...]]) -> Iterator[bytes]:
        entries = {entry.clients: entry for entry in self.ledger.entries()}
        for clients in wanted:
            yield self.ledger.payload(entries[clients])

    def keep(self, answer: Answer) -> None:
        """Nothing: what is asked for here was admitted before."""

    def total(self) -> tuple[Any, int]:
        return self.ledger.total(), sum(entry.size for entry in self.ledger.entries())

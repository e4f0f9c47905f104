"""The phases of a sentence over real clients, as if they were simulated.

A phase asks its federation for sums, and of the clients it needs no more than how many samples of
each class they have: the ledger's uploads tell, and these counts stand in for data that stays where
it is. The initial head, too, comes from the ledger: nobody is asked twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from headstart.data.datasets import Dataset
from headstart.data.heterogeneity import describe
from headstart.data.partition import Partition
from headstart.deploy.flower.grid import GridFederation
from headstart.deploy.ledger import Ledger
from headstart.errors import DataError
from headstart.federation.protocol import Arrays, ClientData, Step, Upload
from headstart.federation.simulator import Simulator
from headstart.runs.config import RunConfig
from headstart.runs.federate import Prepared


@dataclass
class Deployed:
    """What the phases ask of a Simulator.

    `clients` can be asked; `data` has the label counts of all that are in the total. `run`: a name
    by which clients tell the trainings of one run from those of another.
    """

    federation: GridFederation
    clients: Sequence[str]
    data: Mapping[str, ClientData]
    ledger: Ledger
    run: str = ""
    trainings: int = 0

    @property
    def sent(self) -> Counter[str]:
        return self.federation.sent

    def forget(self) -> None:
        """Another training begins: clients put their memories away when they hear of it."""
        self.trainings += 1
        self.federation.training = f"{self.run}/{self.trainings}"

    def uploads(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Upload]:
        return self.federation.uploads(step, broadcast, self._chosen(cohort))

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Any:
        if cohort is None and self._kept(step):
            return self.ledger.total()
        return self.federation.total(step, broadcast, self._chosen(cohort))

    def evaluate(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        found = self.federation.evaluate(step, broadcast, self._chosen(cohort))
        if not found:
            raise DataError(f"{step.name}: expected an answer of some client, got none")
        return found

    def _kept(self, step: Step) -> bool:
        """Whether the ledger holds the answers, whatever plain form the step took on its way."""
        said = (json.dumps(one, sort_keys=True) for one in (step.params, self.ledger.contract.step))
        return step.name == "measure" and len(set(said)) == 1

    def _chosen(self, cohort: Sequence[str] | None) -> Sequence[str]:
        return self.clients if cohort is None else cohort


def label_counts(ledger: Ledger) -> dict[str, ClientData]:
    """Stand-ins for all in the total: their labels, and features that take no room."""
    found = {}
    contract = ledger.contract
    for entry in ledger.entries():
        if len(entry.clients) > 1:
            raise DataError("clients: expected uploads of their own, got one of a masked group")
        upload = contract.head.statistic.from_bytes(ledger.payload(entry))
        shown = getattr(upload, "labels", upload.classes)  # rows have a label each
        labels = np.repeat(shown, np.rint(upload.counts).clip(0).astype(np.int64))
        if len(labels):
            nothing = np.broadcast_to(0.0, (len(labels), contract.dimension))
            found[entry.clients[0]] = ClientData(nothing, labels)
    return found


def as_prepared(
    deployed: Deployed,
    config: RunConfig,
    test: Dataset | None,
    extractor: dict[str, Any] | None,
) -> Prepared:
    """What the phases are carried out on; nobody's features are in it."""
    labels = np.concatenate([client.labels for client in deployed.data.values()])
    ends = np.cumsum([len(client.labels) for client in deployed.data.values()])
    parts = np.split(np.arange(len(labels)), ends[:-1])
    partition = Partition(tuple(deployed.data), tuple(parts))
    classes, dimension = np.unique(labels), deployed.ledger.contract.dimension
    nothing = Dataset("nodes", np.zeros((len(classes), dimension)), classes)
    return Prepared(
        config,
        nothing,
        nothing.subset(np.zeros(0, np.int64)) if test is None else test,
        partition,
        describe(partition, labels),
        cast(Simulator, deployed),
        extractor,
        blind=True,
    )

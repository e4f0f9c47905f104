"""What every reproduction does: take features, deal them to clients, ask, solve, test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart import threads
from headstart.data.datasets import Dataset
from headstart.data.partition import Partition, dirichlet
from headstart.federation import steps
from headstart.federation.protocol import Answer, ClientData
from headstart.federation.simulator import Simulator
from headstart.heads.linear import LinearHead
from headstart.reproduce.table import Features
from headstart.statistics.exact import bound_for

CLIENTS, ALPHA = 100, 0.1


@dataclass(frozen=True, eq=False)
class Case:
    """A feature set, cut into its training and test parts."""

    name: str
    train: Dataset
    test: Dataset

    def accuracy(self, model: Any) -> float:
        """Percent of the test part, for anything that predicts."""
        return 100 * float(np.mean(model.predict(self.test.features) == self.test.labels))


def cases(features: Features) -> Iterator[Case]:
    for name, data in features.items():
        yield Case(name, data.train_part(), data.test_part())


def describe(data: Dataset) -> str:
    """What a feature set is, in a line."""
    tested = 0 if data.test is None else int(data.test.sum())
    return (
        f"{len(data) - tested:,} training and {tested:,} test samples, {len(data.classes)} "
        f"classes, dimension {data.dimension:,}"
    )


def federation(train: Dataset, split: Partition, seed: int = 0) -> Simulator:
    """The clients of a split; those without samples stay away."""
    return Simulator(
        {name: ClientData(train.subset(own).samples) for name, own in split.items() if len(own)},
        seed,
    )


def fedcof_clients(case: Case, seed: int) -> Simulator:
    """FedCOF's own setting: 100 clients, Dirichlet 0.1 by class."""
    split = dirichlet(case.train.labels, CLIENTS, alpha=ALPHA, seed=seed)
    return federation(case.train, split, seed)


def asked(simulator: Simulator, head: Any) -> Answer:
    """Every client once, through the wire: the total of what `head` needs, and its bytes."""
    return simulator.total(steps.measure(head))


def solved(head: Any, total: Any) -> LinearHead:
    with threads.for_size(total.dimension):
        return head.solve(total)


def federated(simulator: Simulator, head: Any) -> LinearHead:
    """Ask and solve."""
    return solved(head, asked(simulator, head).statistic)


def lattice_bound(data: Dataset) -> float:
    """The power of two that the features stay within: a public constant of an exact federation."""
    return bound_for(data.features)

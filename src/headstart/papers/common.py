"""What reproductions share: features dealt to clients, their total, the head, its test."""

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
from headstart.papers.reproduction import Task
from headstart.statistics.exact import bound_for

CLIENTS, ALPHA = 100, 0.1


@dataclass(frozen=True, eq=False)
class Case:
    """A feature set, cut into its training and test parts."""

    name: str
    train: Dataset
    test: Dataset

    def accuracy(self, model: Any) -> float:
        """Return the percent of the test part that anything that predicts gets right."""
        return 100 * float(np.mean(model.predict(self.test.features) == self.test.labels))


def cases(task: Task) -> Iterator[Case]:
    """Yield every feature set of a task, cut into its parts."""
    for name, data in task.data.items():
        yield Case(name, data.train_part(), data.test_part())


def describe(data: Dataset) -> str:
    """Return a line that says what a feature set is."""
    tested = 0 if data.test is None else int(data.test.sum())
    return (
        f"{len(data) - tested:,} training and {tested:,} test samples, {len(data.classes)} "
        f"classes, dimension {data.dimension:,}"
    )


def federation(train: Dataset, split: Partition, seed: int = 0) -> Simulator:
    """Return the clients of a split, without those that hold no sample."""
    return Simulator(
        {name: ClientData(train.subset(rows).samples) for name, rows in split.items() if len(rows)},
        seed,
    )


def fedcof_clients(case: Case, seed: int) -> Simulator:
    """FedCOF's own setting: 100 clients, Dirichlet 0.1 by class."""
    split = dirichlet(case.train.labels, CLIENTS, alpha=ALPHA, seed=seed)
    return federation(case.train, split, seed)


def collect(simulator: Simulator, head: Any) -> Answer:
    """Ask every client once, through the wire: the total of what `head` needs, and its bytes."""
    return simulator.total(steps.measure(head))


def solve_head(head: Any, total: Any) -> LinearHead:
    """Solve with as many BLAS threads as the size is worth."""
    with threads.for_size(total.dimension):
        return head.solve(total)


def fit_head(simulator: Simulator, head: Any) -> LinearHead:
    """Collect the total and solve."""
    return solve_head(head, collect(simulator, head).statistic)


def lattice_bound(data: Dataset) -> float:
    """Return the power of two that the features stay within: public, of an exact federation."""
    return bound_for(data.features)

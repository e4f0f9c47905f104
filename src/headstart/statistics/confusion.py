"""The confusion matrix: pixels (or samples) of a true class that were taken for another. It adds.

On the wire it is `ClassSums` of rows that have a single 1, on the lattice of step 1: whole numbers,
masked and added as all others are, so that a federated matrix is the pooled one, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError, WireError
from headstart.labels import Labels, as_labels
from headstart.statistics.base import check_alike
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.exact import LEVELS, Lattice

UNITS = Lattice(float(LEVELS))  # its step is 1


@dataclass(frozen=True, eq=False)
class Confusion:
    """Rows are true classes, columns predictions; both are `classes`, sorted."""

    classes: Labels
    matrix: NDArray[np.int64]

    @classmethod
    def empty(cls, classes: Any) -> Confusion:
        known = np.unique(as_labels(classes, "classes"))
        return cls(known, np.zeros((len(known), len(known)), np.int64))

    @classmethod
    def of(cls, pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]], classes: Any) -> Confusion:
        """From places in the sorted classes, (true, predicted) arrays; a truth below 0 is void."""
        made = cls.empty(classes)
        count = len(made.classes)
        for truth, guess in pairs:
            shown = truth >= 0
            cells = truth[shown].astype(np.int64) * count + guess[shown]
            made.matrix[:] += np.bincount(cells, minlength=count**2).reshape(count, count)
        return made

    @property
    def accuracy(self) -> float:
        """The share of pixels that have their class."""
        return float(np.trace(self.matrix) / max(int(self.matrix.sum()), 1))

    @property
    def iou(self) -> NDArray[np.float64]:
        """M_cc/(ΣM_c· + ΣM_·c − M_cc) of each class; 0 where nobody shows or says it."""
        return intersection_over_union(self.matrix)

    @property
    def mean_iou(self) -> float:
        """The mean over the classes that are in the truth."""
        return mean_iou(self.matrix)

    def __add__(self, other: Confusion) -> Confusion:
        if not np.array_equal(self.classes, other.classes):
            raise DataError("confusion: expected matrices of the same classes, got others")
        return Confusion(self.classes, self.matrix + other.matrix)

    def statistic(self) -> ClassSums:
        """What is sent: for each class that is in the truth, its pixels by prediction."""
        counts = self.matrix.sum(axis=1)
        shown = counts > 0
        tables = {"sums": self.matrix[shown]}
        return ClassSums(len(self.classes), self.classes[shown], counts[shown], tables, UNITS)

    @classmethod
    def received(cls, statistic: ClassSums, classes: Any) -> Confusion:
        """The inverse; refused where it is no matrix over these classes."""
        made = cls.empty(classes)
        check(statistic, made.classes)
        made.matrix[np.searchsorted(made.classes, statistic.classes)] = statistic.tables["sums"]
        return made


def check(statistic: ClassSums, classes: Sequence[Any] | Labels) -> None:
    """Whether class sums are a confusion matrix: no number below 0, each row its class's pixels."""
    empty = Confusion.empty(classes).statistic()
    try:
        check_alike(empty, statistic)
    except DataError as error:
        raise WireError("impossible", f"confusion: {error}") from None
    sums = statistic.tables.get("sums")
    if sums is None or set(statistic.tables) != {"sums"}:
        raise WireError("impossible", "confusion: expected sums alone, got other tables")
    if not np.isin(statistic.classes, np.asarray(classes)).all():
        raise WireError("impossible", "confusion: expected the classes that were asked for")
    if (sums < 0).any() or (sums.sum(axis=1) != statistic.counts).any():
        raise WireError("impossible", "confusion: expected each pixel to be predicted once")


def intersection_over_union(matrix: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each class of a confusion matrix."""
    hits = np.diagonal(matrix)
    union = matrix.sum(axis=0) + matrix.sum(axis=1) - hits
    return np.asarray(hits / np.maximum(union, 1), np.float64)


def mean_iou(matrix: NDArray[np.int64]) -> float:
    """The mean over the classes that are in the truth; 0 where there is none."""
    shown = matrix.sum(axis=1) > 0
    return float(intersection_over_union(matrix)[shown].mean()) if shown.any() else 0.0

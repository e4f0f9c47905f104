"""How good a head is: accuracy, balanced accuracy, confusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.data.cells import CellSamples
from headstart.data.samples import Samples
from headstart.errors import DataError
from headstart.federation.judging import confusion
from headstart.heads.linear import LinearHead
from headstart.labels import Labels, as_labels, same_kind
from headstart.personal import VARIANTS
from headstart.statistics.confusion import mean_iou

PERSONAL = tuple(VARIANTS)  # the models of a tally of personal accuracy, in its order


class Mistake(NamedTuple):
    """Samples of a true class that were predicted as another, and their share of the true class."""

    true: str
    predicted: str
    samples: int
    share: float


@dataclass(frozen=True, eq=False)
class Scores:
    """A head on an outside test set: rows of `confusion` are true classes, columns predictions."""

    classes: Labels
    confusion: NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        return float(np.trace(self.confusion) / max(self.confusion.sum(), 1))

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that are in the test set."""
        shown = self.confusion.sum(axis=1)
        recall = np.diagonal(self.confusion)[shown > 0] / shown[shown > 0]
        return float(recall.mean()) if len(recall) else 0.0

    @property
    def mean_iou(self) -> float:
        """The mean over the true classes of intersection over union."""
        return mean_iou(self.confusion)

    def worst_pairs(self, most: int = 10) -> list[Mistake]:
        """The most frequent mistakes, at most so many."""
        wrong = self.confusion - np.diag(np.diagonal(self.confusion))
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        rows, columns = np.unravel_index(order, wrong.shape)
        return [
            Mistake(
                str(self.classes[i]),
                str(self.classes[j]),
                int(wrong[i, j]),
                float(wrong[i, j] / self.confusion[i].sum()),
            )
            for i, j in zip(rows, columns, strict=True)
            if wrong[i, j]
        ]


def scores(head: LinearHead, features: ArrayLike, labels: ArrayLike) -> Scores:
    """Test a head; classes it has never seen count as mistakes."""
    truth = as_labels(labels)
    if not same_kind(truth, head.classes):
        raise DataError(
            f"labels: expected classes like {head.classes[0].item()!r}, got {truth[0].item()!r}"
        )
    return compared(truth, head.predict(features), head.classes)


def tested(head: LinearHead, samples: Samples) -> Scores:
    """Test a head on samples wherever they are; of scenes, on every pixel of their masks."""
    if not isinstance(samples, CellSamples):
        return scores(head, *samples.read())
    found = confusion(head, samples)
    return Scores(found.classes, found.matrix)


def compared(truth: Labels, guess: Labels, known_classes: Labels) -> Scores:
    """Predictions next to the truth; `known`: the classes that could be predicted."""
    classes = np.union1d(truth, known_classes)
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(confusion, (np.searchsorted(classes, truth), np.searchsorted(classes, guess)), 1)
    return Scores(classes, confusion)

"""How good a head is: accuracy, balanced accuracy, confusion; and personal accuracy by client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError
from headstart.heads.linear import LinearHead
from headstart.labels import Labels, as_labels, same_kind
from headstart.personal import VARIANTS

PERSONAL = tuple(VARIANTS)  # the columns of a tally
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


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

    def worst_pairs(self, most: int = 10) -> list[dict[str, object]]:
        """The most frequent mistakes: true class, prediction, count, share of the true class."""
        wrong = self.confusion - np.diag(np.diagonal(self.confusion))
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        rows, columns = np.unravel_index(order, wrong.shape)
        return [
            {
                "true": str(self.classes[i]),
                "predicted": str(self.classes[j]),
                "count": int(wrong[i, j]),
                "share": float(wrong[i, j] / self.confusion[i].sum()),
            }
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
    guess = head.predict(features)
    classes = np.union1d(truth, head.classes)
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(confusion, (np.searchsorted(classes, truth), np.searchsorted(classes, guess)), 1)
    return Scores(classes, confusion)


@dataclass(frozen=True)
class Change:
    """What one personalization does to the clients' accuracies, against another."""

    gain: int
    lose: int
    same: int
    quantiles: dict[str, float]  # of the difference, over clients


@dataclass(frozen=True, eq=False)
class Personal:
    """Each client's tests on its own held-out part; rows are clients, columns those of PERSONAL."""

    clients: tuple[str, ...]
    tested: NDArray[np.float64]
    hits: NDArray[np.float64]

    def weighted(self) -> dict[str, float]:
        """Mean accuracy, clients weighed by their test samples, as in the papers."""
        total = max(float(self.tested.sum()), 1.0)
        return dict(zip(PERSONAL, (self.hits.sum(axis=0) / total).tolist(), strict=True))

    def mean(self) -> dict[str, float]:
        """Mean accuracy, every client that tested counting the same."""
        shares = self._shares()
        means = shares.mean(axis=0) if len(shares) else np.zeros(len(PERSONAL))
        return dict(zip(PERSONAL, means.tolist(), strict=True))

    def change(self, variant: str, base: str = "global") -> Change:
        """Who gains and who loses by `variant`, against `base`."""
        for name in (variant, base):
            if name not in PERSONAL:
                raise DataError(f"variant: expected one of {', '.join(PERSONAL)}, got {name!r}")
        shares = self._shares()
        by = shares[:, PERSONAL.index(variant)] - shares[:, PERSONAL.index(base)]
        points = np.quantile(by, QUANTILES).tolist() if len(by) else [0.0] * len(QUANTILES)
        named = {f"{q:g}": point for q, point in zip(QUANTILES, points, strict=True)}
        gain, lose = int((by > 0).sum()), int((by < 0).sum())
        return Change(gain, lose, len(by) - gain - lose, named)

    def _shares(self) -> NDArray[np.float64]:
        """The accuracies of the clients that tested."""
        tested = self.tested > 0
        return self.hits[tested] / self.tested[tested, None]

    def of(self, client: str) -> dict[str, float] | None:
        """One client's accuracies; None when it tested nothing."""
        row = self.clients.index(client)
        if not self.tested[row]:
            return None
        return dict(zip(PERSONAL, (self.hits[row] / self.tested[row]).tolist(), strict=True))


def personal(tallies: Mapping[str, NDArray[np.float64]]) -> Personal:
    """From the tallies of the step `personal`."""
    rows = np.array(list(tallies.values())).reshape(len(tallies), 1 + len(PERSONAL))
    return Personal(tuple(tallies), rows[:, 0], rows[:, 1:])

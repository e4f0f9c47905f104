"""What a head makes of samples: its confusion; of scenes, every pixel of their masks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.cells import CellSamples
from headstart.data.samples import Samples, pieces
from headstart.data.scenes import VOID
from headstart.heads.base import Head
from headstart.heads.linear import LinearHead
from headstart.statistics.base import Summable, total
from headstart.statistics.confusion import Confusion

Pair = tuple[NDArray[Any], NDArray[Any]]


def measured(head: Head, samples: Samples, **how: Any) -> Summable:
    """A head's statistic of samples, of cells some images at a time.

    Sums add; rows are one client's, and are measured at once.
    """
    if not head.statistic.is_sum:
        return head.measure(*samples.read(), **how)
    parts = list(pieces(samples))
    if len(parts) == 1:
        return head.measure(*samples.read(parts[0]), **how)
    return total(head.measure(*samples.read(part), **how) for part in parts)


def confusion(head: LinearHead, samples: Samples, classes: Any = None) -> Confusion:
    """Of a head on samples; `classes`: all that may be there (none: its own and the samples')."""
    known = np.unique(_every(head, samples) if classes is None else np.asarray(classes))
    columns = np.searchsorted(known, head.classes)
    if isinstance(samples, CellSamples):
        return Confusion.of(_pixels(head, samples, known, columns), known)
    return Confusion.of(_rows(head, samples, known, columns), known)


def _every(head: LinearHead, samples: Samples) -> NDArray[Any]:
    if isinstance(samples, CellSamples):
        return np.union1d(head.classes, np.array(samples.data.names))
    return np.union1d(head.classes, samples.labels)


def _rows(
    head: LinearHead, samples: Samples, known: NDArray[Any], columns: NDArray[Any]
) -> Iterator[Pair]:
    for part in pieces(samples):
        features, labels = samples.read(part)
        yield np.searchsorted(known, labels), columns[head.scores(features).argmax(axis=1)]


def _pixels(
    head: LinearHead, samples: CellSamples, known: NDArray[Any], columns: NDArray[Any]
) -> Iterator[Pair]:
    names = np.array(samples.names or samples.data.names)
    places = np.append(np.searchsorted(known, names), VOID)  # the last is that of void, −1
    for mask, guess in samples.judged(head.scores):
        yield places[mask], columns[guess]

"""Statistics of clients without labels: cells that a broadcast head is sure of, under its classes.

LADD's mask (Shenaj et al. 2023), on cells: one is kept if its probability exceeds `sure`, or if it
is among the `top` share of those that the same image has of its class. Everything else is left out.
No label of the client is read.

The head is the server's choice, so what it sorts cells by is too: a head that only one cell
satisfies would give that cell away in the sum of its class. For this the step says so, and small
clients refuse it as they do a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.cells import CellSamples
from headstart.data.pixel_features import softmax
from headstart.data.samples import Samples
from headstart.data.scenes import VOID
from headstart.errors import DataError
from headstart.heads.base import Head
from headstart.heads.linear import LinearHead
from headstart.statistics.base import Summable, total

SURE, TOP = 0.9, 0.66


def pseudo_labels(
    probabilities: NDArray[Any], sure: float = SURE, top: float = TOP
) -> NDArray[np.int64]:
    """The likeliest column of each row of an image's cells, or `VOID` where it is not sure.

    The `top` share is rounded up; of equal probabilities all are kept.
    """
    chances, places = probabilities.max(axis=1), probabilities.argmax(axis=1)
    kept = chances > sure
    for class_ in np.unique(places):
        own = places == class_
        count = max(1, math.ceil(top * int(own.sum())))
        least = np.partition(chances[own], -count)[-count]
        kept |= own & (chances >= least)
    return np.where(kept, places, VOID).astype(np.int64)


def pseudo_measured(
    head: Head, model: LinearHead, samples: Samples, sure: float, top: float, **how: Any
) -> Summable:
    """A head's statistic of all cells of the images that `model` is sure of, under its classes."""
    if not isinstance(samples, CellSamples):
        raise DataError(f"pseudo-labels: expected scenes, got samples of shape {samples.shape}")
    return total(_measured(head, model, samples, sure, top, how))


def _measured(
    head: Head,
    model: LinearHead,
    samples: CellSamples,
    sure: float,
    top: float,
    how: dict[str, Any],
) -> Iterator[Summable]:
    empty = np.zeros((0, samples.data.channels), np.float32)
    yield head.measure(empty, model.classes[:0], **how)
    for row in samples.rows[: samples.units].tolist():
        cells = samples.data.cells(row)
        chances = softmax(model.scores(cells) / (model.temperature or 1.0))
        places = pseudo_labels(chances, sure, top)
        kept = places != VOID
        yield head.measure(cells[kept], model.classes[places[kept]], **how)

"""What the result of one run is made of: samples, split, curve, head, clients, failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.statistics.confusion import Confusion as Matrix


@dataclass(frozen=True)
class DataSummary:
    """The samples of a run. `classes` are the labels as text; `digest` is a SHA-256 of the data."""

    name: str
    samples: int
    test: int
    dimension: int
    classes: tuple[str, ...] = ()
    digest: str = ""
    shift: float | None = None  # δ of the domain shift of images
    augment: str | None = None


@dataclass(frozen=True)
class SplitSummary:
    """How samples came to clients. `counts`: a row per client, a column per class."""

    name: str
    settings: Mapping[str, Any]
    clients: tuple[str, ...]
    held_out: float = 0.0  # of each client's samples, for personal accuracy
    test_fraction: float | None = None  # None: the data have a test part of their own
    summary: Mapping[str, float] = field(default_factory=dict)
    counts: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Point:
    """A point of the curve: after `round` rounds of phase number `phase` (0: the initial head).

    Bytes and FLOPs are counted from the beginning of the pipeline.
    """

    phase: int
    round: int
    accuracy: float | None
    up: float = 0.0
    down: float = 0.0
    flops: float = 0.0  # as done
    counted: float = 0.0  # as torch counts them
    formula_up: float = 0.0
    formula_flops: float = 0.0
    diagnosis: Mapping[str, float] | None = None
    pixels: Mapping[str, float] | None = None  # of scenes: mean_iou, seen_mean_iou, seen_accuracy

    def values(self) -> dict[str, float | None]:
        """Every number by its name, those of the diagnosis and of pixels too."""
        plain = asdict(self)
        return plain | dict(plain.pop("diagnosis") or {}) | dict(plain.pop("pixels") or {})


@dataclass(frozen=True)
class Arrival:
    """The head of the first `clients` uploads."""

    clients: int
    up: int
    accuracy: float | None
    classes: int


@dataclass(frozen=True)
class RidgePath:
    """GCV scores and degrees of freedom over λ."""

    ridges: tuple[float, ...]
    scores: tuple[float, ...]
    freedom: tuple[float, ...]
    best: float


@dataclass(frozen=True)
class HeadSummary:
    """The closed-form head that a pipeline begins with, and what it cost to collect."""

    name: str
    title: str
    settings: Mapping[str, Any]
    solved: Mapping[str, Any]  # what it chose itself
    temperature: float | None = None
    bytes_per_client: float | None = None
    formula_bytes_per_client: float | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)  # bytes at other precisions
    arrivals: tuple[Arrival, ...] = ()
    path: RidgePath | None = None
    digest: str = ""  # of the exact total


@dataclass(frozen=True)
class Pooled:
    """The same head from all data in one place: only a simulation can make this comparison."""

    accuracy: float | None
    digest: str = ""


@dataclass(frozen=True)
class ClientSummary:
    """One client, as far as the server knows it."""

    client: str
    domain: str | None = None  # where the colours of images were shifted
    samples: int | None = None
    classes: int | None = None
    up: int | None = None  # bytes of its upload for the initial head
    formula_up: float | None = None


@dataclass(frozen=True)
class PersonalScores:
    """Hits on the clients' own test parts, by model: a tuple over `clients` for each.

    `models` begins with "global", the shared model; `final` names the one the pipeline ends with.
    """

    clients: tuple[str, ...]
    tested: tuple[float, ...]
    models: Mapping[str, tuple[float, ...]]
    final: str = "global"

    @classmethod
    def of(
        cls, tallies: Mapping[str, NDArray[np.float64]], models: Sequence[str]
    ) -> PersonalScores:
        """From each client's tally: its test samples, then its hits with each of `models`."""
        rows = np.array(list(tallies.values()), float).reshape(len(tallies), 1 + len(models))
        tested, *hits = (tuple(column) for column in rows.T.tolist())
        return cls(tuple(tallies), tested, dict(zip(models, hits, strict=True)))

    def weighted(self, model: str | None = None) -> float:
        """Mean accuracy, clients weighed by their test samples."""
        return float(sum(self.models[model or self.final]) / max(sum(self.tested), 1.0))

    def shares(self, model: str | None = None) -> NDArray[np.float64]:
        """The accuracy of each client that tested."""
        tested = np.array(self.tested, float)
        hits = np.array(self.models[model or self.final], float)
        return hits[tested > 0] / tested[tested > 0]

    def by_client(self) -> dict[str, dict[str, float]]:
        """Each client's test samples and, where it has some, its accuracy by model."""
        rows = {}
        for at, (client, tested) in enumerate(zip(self.clients, self.tested, strict=True)):
            hits = {
                f"accuracy_{model}": hits_of[at] for model, hits_of in self.models.items() if tested
            }
            rows[client] = {"tested": tested, **{key: hit / tested for key, hit in hits.items()}}
        return rows

    def mean(self, model: str | None = None) -> float:
        """Mean accuracy, every client that tested counting the same."""
        shares = self.shares(model)
        return float(shares.mean()) if len(shares) else 0.0

    def change(self, model: str | None = None, base: str = "global") -> NDArray[np.float64]:
        """What each client that tested gains by `model`, or loses, against `base`."""
        return self.shares(model) - self.shares(base)


@dataclass(frozen=True)
class Epoch:
    """Local fine-tuning after an epoch: the own test part; outside, own classes and the others."""

    epoch: int
    own: float
    local: float
    absent: float


@dataclass(frozen=True)
class Confusion:
    """Rows are true classes, columns predictions."""

    classes: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class PixelScores:
    """A model on masks, by one confusion matrix over all pixels of a test.

    `test`: "unseen", the server's own images, or "seen", those of clients. `inference`: what a
    dense network was normalized with; "frozen", an extractor that stays as it is. `iou`: of each
    class that is in the truth, of which `mean_iou` is the mean.
    """

    test: str
    inference: str
    mean_iou: float
    accuracy: float  # of pixels
    iou: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, test: str, inference: str, found: Matrix) -> PixelScores:
        """From the matrix of a test."""
        shown = found.matrix.sum(axis=1) > 0
        pairs = zip(found.classes[shown], found.iou[shown].tolist(), strict=True)
        iou = {str(name): value for name, value in pairs}
        return cls(test, inference, found.mean_iou, found.accuracy, iou)


@dataclass(frozen=True)
class LastEvaluations:
    """The mean and the deviation of mIoU over the last points of a curve, and which these are."""

    first: int  # rounds
    last: int
    count: int
    mean: float
    deviation: float


@dataclass(frozen=True)
class Failure:
    """Something expected of a client that did not come, or was refused."""

    client: str
    code: str
    text: str

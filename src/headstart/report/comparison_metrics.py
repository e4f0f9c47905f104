"""What can be said of results side by side: costs, costs to a target, who gains, what varied."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headstart.errors import HeadstartError
from headstart.report.format import Write, count, flops, size
from headstart.report.pipeline_labels import legend, short
from headstart.results import (
    Estimate,
    PersonalScores,
    Point,
    RunResult,
    SeedResult,
)

Array = NDArray[np.float64]
Read = Callable[[SeedResult], float | None]
NEAR = 0.01  # of the best accuracy: what a cheaper pipeline may lack
MODELS = {
    "global": "one global head",
    "oll": "only local labels",
    "prior": "local prior",
    "ridge": "residual ridge",
    "FP": "trained alone",
}


@dataclass(frozen=True)
class Entry:
    """A result on the page: its place, which gives its colour, and what it is called.

    `legend` is short enough for a figure.
    """

    at: int
    label: str
    legend: str
    result: RunResult

    @property
    def first(self) -> SeedResult:
        return self.result.runs[0]


def make_entries(
    results: Sequence[RunResult], labels: Sequence[str] | None = None
) -> tuple[list[Entry], list[str]]:
    """The results with their labels, and the settings that all trainings share; refuses none."""
    if not results:
        raise HeadstartError("results: expected at least one to report, got none")
    names, shared = short([result.pipeline for result in results])
    if labels is not None:
        names, shared = list(labels), []
    numbered = enumerate(zip(names, legend(names), results, strict=True))
    return [Entry(at, *rest) for at, rest in numbered], shared


def runs_of(entries: Iterable[Entry]) -> list[SeedResult]:
    """Return the runs of all entries, seed by seed."""
    return [run for entry in entries for run in entry.result.runs]


# -- a curve ---------------------------------------------------------------------------------------


class Measure(NamedTuple):
    """A cost by which curves and targets are read; `header` and `unit` are those of text tables."""

    title: str
    write: Write
    header: str
    unit: float = 1.0


MEASURES = {
    "round": Measure("Rounds", count, "round"),
    "both": Measure("Bytes both ways", size, "MB both ways", 1e6),
    "up": Measure("Bytes up", size, "MB up", 1e6),
    "formula_up": Measure("Bytes up, by formula", size, "formula MB up", 1e6),
    "flops": Measure("FLOPs per client", flops, "GFLOPs per client", 1e9),
    "counted": Measure("FLOPs, counted by torch", flops, "torch GFLOPs", 1e9),
    "formula_flops": Measure("FLOPs, by formula", flops, "formula GFLOPs", 1e9),
}
_COUNTED = ("formula_up", "flops", "counted", "formula_flops")  # 0: nobody has counted them


class CurvePoint(NamedTuple):
    """A point, and the rounds until then over all phases."""

    point: Point
    rounds: float

    def cost(self, key: str) -> float:
        if key == "round":
            return self.rounds
        if key == "both":
            return self.point.up + self.point.down
        return float(getattr(self.point, key))


def curve(run: SeedResult) -> list[CurvePoint]:
    """The points with their rounds counted over the pipeline.

    A phase in which nothing goes up (each client alone) has no rounds, whatever it counts.
    """
    points: list[CurvePoint] = []
    phase, past, now, sent = -1, 0.0, 0.0, 0.0
    for point in run.curve:
        if point.phase != phase:
            phase, past, now = point.phase, past + now, 0.0
            sent = points[-1].point.up if points else 0.0
        if point.up > sent:
            now = float(point.round)
        points.append(CurvePoint(point, past + now))
    return points


def spent(run: SeedResult, key: str) -> float | None:
    """A cost at the end; None where it was not counted."""
    points = curve(run)
    cost = points[-1].cost(key) if points else None
    return None if key in _COUNTED and not cost else cost


def accuracies(run: SeedResult) -> list[float]:
    """Return the accuracies along a run's curve, where it was tested."""
    return [point.accuracy for point in run.curve if point.accuracy is not None]


def trained(entries: Iterable[Entry]) -> bool:
    """Whether any pipeline has rounds of training, and so a curve."""
    return any(spent(run, "round") for run in runs_of(entries))


def mean_series(result: RunResult, read: Callable[[SeedResult], Mapping[int, float]]) -> Array:
    """Rows (at, mean, deviation) of what is read from runs, where all seeds have a value."""
    series = [read(run) for run in result.runs]
    shared = [at for at in series[0] if all(at in values for values in series)]
    values = [Estimate(values[at] for values in series) for at in shared]
    rows = [(at, value, value.std or 0.0) for at, value in zip(shared, values, strict=True)]
    return np.array(rows, float).reshape(-1, 3)


def mean_curve(result: RunResult, key: str) -> Array:
    """Rows (cost, accuracy, deviation, phase) over the points that all seeds have."""
    curves = [
        {(p.point.phase, p.point.round): p for p in curve(run) if p.point.accuracy is not None}
        for run in result.runs
    ]
    rows = []
    for place in curves[0]:
        points = [curve[place] for curve in curves if place in curve]
        accuracy = Estimate(point.point.accuracy or 0.0 for point in points)
        if len(points) == len(curves):
            cost = np.mean([point.cost(key) for point in points])
            rows.append((cost, accuracy, accuracy.std or 0.0, place[0]))
    return np.array(rows, float).reshape(-1, 4)


# -- the price of an accuracy ----------------------------------------------------------------------


def targets(entries: Sequence[Entry]) -> list[float]:
    """Tens from 30% to the best that all seeds of a pipeline reach, and five fine steps up to it.

    A target is reached when a curve first comes to it.
    """
    best = max((_reached_by_all(entry.result) for entry in entries), default=0.0)
    step = 0.01 if best < 0.95 else 0.005 if best < 0.99 else 0.001
    top = math.floor(best / step + 1e-9)
    fine = [round(step * at, 4) for at in range(max(top - 4, 1), top + 1)]
    tens = [at / 10 for at in range(3 if best >= 0.3 else 1, 10) if at / 10 <= best]
    return sorted({*tens, *fine})


def _reached_by_all(result: RunResult) -> float:
    return min(max(accuracies(run), default=0.0) for run in result.runs)


def reached(run: SeedResult, target: float, key: str) -> float | None:
    """A cost when the accuracy is first at least the target; None where it never is."""
    for at in curve(run):
        if at.point.accuracy is not None and at.point.accuracy >= target - 1e-9:
            return at.cost(key)
    return None


def cheapest(entries: Sequence[Entry], key: str) -> tuple[Entry, Estimate] | None:
    """Who is first within a point of the best accuracy by this cost, and the cost."""
    best = max((_reached_by_all(entry.result) for entry in entries), default=0.0)
    costs = []
    for entry in entries:
        cost = entry.result.over_seeds(lambda run: reached(run, best - NEAR, key))
        if cost:
            costs.append((entry, cost))
    return min(costs, key=lambda pair: pair[1], default=None)


# -- clients ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnModel:
    """A model that clients made their own, against the one they share, on their own test parts."""

    at: int
    label: str
    result: RunResult
    model: str

    def over_seeds(self, read: Callable[[PersonalScores], float]) -> Estimate | None:
        return self.result.over_seeds(lambda run: read(run.personal) if run.personal else None)

    def pooled(self, read: Callable[[PersonalScores], Array]) -> Array:
        """Of the clients of all seeds together, sorted."""
        scores = [read(run.personal) for run in self.result.runs if run.personal]
        return np.sort(np.concatenate(scores)) if scores else np.zeros(0)

    @property
    def mean(self) -> Estimate | None:
        return self.over_seeds(lambda personal: personal.weighted(self.model))

    @property
    def shares(self) -> Array:
        return self.pooled(lambda personal: personal.shares(self.model))

    @property
    def change(self) -> Array:
        return self.pooled(lambda personal: personal.change(self.model))


def own_models(entries: Sequence[Entry]) -> list[OwnModel]:
    """The personal model that each pipeline ends with; where none does, all that the first has."""
    ends = [
        OwnModel(entry.at, entry.legend, entry.result, personal.final)
        for entry in entries
        if (personal := entry.first.personal)
        and personal.final != "global"
        and any(personal.tested)
    ]
    return ends or [model for model in models_of(entries) if model.model != "global"]


def models_of(entries: Sequence[Entry]) -> list[OwnModel]:
    """All models of the first pipeline that has personal ones beside the shared."""
    for entry in entries:
        personal = entry.first.personal
        if personal is not None and len(personal.models) > 1 and any(personal.tested):
            return [
                OwnModel(at, MODELS.get(model, model), entry.result, model)
                for at, model in enumerate(personal.models)
            ]
    return []


# -- seeds -----------------------------------------------------------------------------------------


def paired(first: RunResult, other: RunResult, read: Read) -> Estimate | None:
    """The differences of `other` to `first`, seed by seed; None unless two seeds have both."""
    base = {run.seed: read(run) for run in first.runs}
    gaps = [
        value - baseline
        for run in other.runs
        if (value := read(run)) is not None and (baseline := base.get(run.seed)) is not None
    ]
    return Estimate(gaps) if len(gaps) > 1 else None


def varied(entries: Sequence[Entry]) -> list[str]:
    """What another seed changed: of the data only what shows in their digests."""
    runs = runs_of(entries)
    parts = []
    if any(len({run.data.digest for run in entry.result.runs}) > 1 for entry in entries):
        if any(run.split.test_fraction is not None for run in runs):
            parts.append("test split")
        if any(run.split.name != "natural" for run in runs):
            parts.append("partition")
        if any(run.split.held_out for run in runs):
            parts.append("held-out parts")
    if trained(entries):
        parts += ["cohorts", "initialization"]
    return parts


def splits(entries: Sequence[Entry]) -> list[Entry]:
    """The first result of each different split but those of private runs."""
    distinct: dict[str, Entry] = {}
    for entry in entries:
        split = entry.first.split
        if entry.first.privacy is not None:
            continue
        distinct.setdefault(repr((split.name, dict(split.settings), split.clients)), entry)
    return list(distinct.values())

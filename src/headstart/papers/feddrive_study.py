"""FedDrive (Fantauzzo et al. 2022; chapter 5 of the thesis): its rows, and how each is run.

A row is a distribution of the data over clients, a training and an augmentation, with a number per
test and inference. Ours is the mean of mIoU over the last evaluations of the curve (every five
rounds; at most 20, so the last 100 of 1,600 rounds); by domain it is the end. All train with the
same batch: the published program gives SiloBN half of it, and so twice the steps. Adam is that of
Reddi et al., without the program's correction of bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.gradient.checks import whole
from headstart.papers.feddr_grid import phrase_settings
from headstart.papers.feddr_study import Study, changed
from headstart.papers.reproduction import Task
from headstart.papers.table import Row
from headstart.pipeline.config import apply_change, make_config
from headstart.pipeline.run import run_config
from headstart.report import write_report
from headstart.results import RunResult, SeedResult

CITYSCAPES = (
    "Cityscapes is at cityscapes-dataset.com, for who has an account: leftImg8bit and gtFine, "
    "unpacked into one folder."
)
IDDA = (
    "IDDA is at idda-dataset.github.io: bring it into images/, masks/, classes.csv and meta.csv "
    "with a domain per image and a split whose test part is the unseen domains."
)
KINDS = {"idda-country": 90, "idda-rainy": 69, "idda-bus": 83}  # clients
SERVERS = {
    "SGD": ("FedAvg", {}),
    "FedAvgM": ("FedAvgM", {"momentum": 0.9, "server_rate": 1}),
    "Adam": ("FedAdam", {"server_rate": 1, "tau": 0.1}),
    "AdaGrad": ("FedAdagrad", {"server_rate": 1, "tau": 0.01}),
}
Numbers = Mapping[tuple[str, str], float | None]  # by test and inference


@dataclass(frozen=True)
class Line:
    """A distribution, a training and an augmentation, and what the thesis has of them."""

    distribution: str
    numbers: Numbers
    silo: bool = False
    augment: str | None = None
    server: str = "SGD"

    @property
    def title(self) -> str:
        """As the tables name it."""
        parts = ["SiloBN" if self.silo else "FedAvg", self.augment and self.augment.upper()]
        return " + ".join(filter(None, [*parts, self.server if self.server != "SGD" else None]))


@dataclass(frozen=True)
class Settings(Study):
    """FedDrive's schedule, which is constant; without a rate of one's own, that of the data."""

    rounds: int = 1600
    epochs: int = 2
    batch: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("batch", self.batch)


def fedavg(distribution: str, *numbers: float, augment: str | None = None) -> Line:
    """Tested with averaged statistics: unseen, and seen where there is such a test."""
    tests = zip(("unseen", "seen"), numbers, strict=False)
    return Line(distribution, {(test, "averaged"): n for test, n in tests}, augment=augment)


def silobn(distribution: str, *numbers: float, augment: str | None = None) -> Line:
    """Tested by the statistics of test batches: unseen, seen, and seen by domain."""
    places = (("unseen", "standard"), ("seen", "standard"), ("seen", "by-domain"))
    found = dict(zip(places, numbers, strict=False))
    return Line(distribution, found, silo=True, augment=augment)


def study(task: Task, need: str, lines: Sequence[Line]) -> list[Row]:
    """Every line's rows; where the data are not here, with the thesis's numbers alone."""
    rows: list[Row] = []
    results: list[RunResult] = []
    settings, changes = changed(Settings(), task.changes)
    for number, line in enumerate(lines, 1):
        result = None
        if need in task.data:
            place = (task.folder or Path()) / need / f"{number:02d}"
            plain = configured(need, str(task.data[need]), line, settings)
            for change in changes:
                apply_change(plain, change)
            results.append(run_config(make_config(plain), place, progress=task.progress))
            write_report(results, place.parent)
            result = results[-1].runs[0]
        rows += [
            _row(need, line, place_, number_, result) for place_, number_ in line.numbers.items()
        ]
    return rows


def configured(need: str, data: str, line: Line, settings: Settings) -> dict[str, Any]:
    """The settings of a line's run."""
    city = need == "cityscapes"
    method, server = ("SiloBN", {}) if line.silo else SERVERS[line.server]
    if line.silo and line.server != "SGD":
        method, server = SERVERS[line.server]
    how = {
        "batch": settings.batch,
        "epochs": settings.epochs,
        "lr": settings.lr or (0.05 if city else 0.1),
        "local_momentum": 0.9,
        "decay": 5e-4 if city else 0,
        "hardest": 0.25,
        **server,
    }
    return {
        "data": data,
        "network": "bisenetv2",
        "pixels": "512x1024" if city else "512x928",
        "batch_norm": "local" if line.silo else "average",
        "inference": "standard" if line.silo else "averaged",
        "held_out": 0 if city else 0.2,
        "partition": _partition(need, line.distribution),
        "augment": ["crop", "flip", *([line.augment] if line.augment else [])],
        "cohort": 5,
        "evaluate_every": 5,
        "pipeline": f"{method}-{settings.rounds}(f, {phrase_settings(how)})",
    }


def _partition(need: str, distribution: str) -> dict[str, Any]:
    city = need == "cityscapes"
    return {
        "uniform": {"name": "iid", "clients": KINDS.get(need, 146)},
        "heterogeneous": {"name": "runs", "frames": 20}
        if city
        else {"name": "domain", "clients": KINDS.get(need)},
        "class imbalance": {"name": "imbalance", "clients": KINDS.get(need, 142)},
    }[distribution]


def _row(
    need: str, line: Line, place: tuple[str, str], number: float | None, result: SeedResult | None
) -> Row:
    test, inference = place
    kind = "" if need == "cityscapes" else f"{need.removeprefix('idda-')}, "
    shown = f"{kind}{line.distribution}, {test}, {inference}"
    if result is None:
        return Row(line.title, shown, number, ())
    last, found = result.last_evaluations(test), result.pixel_scores(test, inference)
    if last is not None and result.pixel_scores(test) == found:
        note = f"± {100 * last.deviation:.1f} in {last.count}, rounds {last.first}–{last.last}"
        return Row(line.title, shown, number, (100 * last.mean,), note=note)
    return Row(line.title, shown, number, () if found is None else (100 * found.mean_iou,))


def conclusion(rows: Sequence[Row]) -> str:
    """What the thesis says of the order, and the largest gap."""
    gaps = [(abs(row.difference), row) for row in rows if row.difference is not None]
    if not gaps:
        return "No row has both numbers."
    gap, row = max(gaps, key=lambda pair: pair[0])
    return f"The largest difference is {gap:.1f} points ({row.what}, {row.setting})."

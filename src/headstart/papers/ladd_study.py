"""LADD (Shenaj et al. 2023; chapter 5 of the thesis): its rows, and how each is run.

Without its data a row has the thesis's number alone. Rounds, rates, cohorts and the distillation
are those of the thesis and of the published program: λ there is over a mean of the classes, so a
pixel's is λ divided by their number. The backbone begins at ImageNet's weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.papers.feddr_grid import phrase_settings
from headstart.papers.reproduction import Task
from headstart.papers.table import Row
from headstart.pipeline.config import apply_change, make_config
from headstart.pipeline.run import run_config
from headstart.report import write_report
from headstart.results import RunResult

GTA5 = (
    "GTA5 is at download.visinf.tu-darmstadt.de/data/from_games, for research: bring it into "
    "images/, masks/ and classes.csv with the classes of the target."
)
CITED = "of another paper, cited by the thesis"
CENTRAL = "in one place, with the targets' labels: no federation, so nothing here runs it"
EPOCHS = 10  # of the source: 15,000 steps of 16 over GTA5


@dataclass(frozen=True)
class Target:
    """A target of the thesis and its schedule."""

    need: str
    elsewhere: str
    cohort: int
    rounds: int
    rate: float
    start: int
    every: int
    distillation: float  # λ/C

    @property
    def needs(self) -> tuple[str, ...]:
        """The clients' images, the images of the test, and the source."""
        return self.need, f"{self.need}-test", "gta5"


@dataclass(frozen=True)
class Line:
    """A method, what the thesis has of it, and the pipeline that runs it ("": none does)."""

    title: str
    paper: float
    how: str = ""
    note: str = ""


def pipeline(target: Target, how: str) -> str:
    """The pipeline of a row."""
    plain = {"lr": target.rate, "batch": 16, "momentum": 0.9}
    source = f"Source-{EPOCHS}(%s{phrase_settings({'lr': 0.005, 'batch': 16})})"
    rounds = target.rounds
    ladd = {
        **plain,
        "kd": round(target.distillation, 4),
        "start": target.start,
        "every": target.every,
    }
    alone = {**plain, "kd": 0, "clusters": 1, "start": rounds + 1}
    return {
        "source": source % "",
        "self-training": f"{source % 'fda, '} + LADD-{rounds}(f, {phrase_settings(alone)})",
        "cls": f"{source % 'fda, '} + LADD-{rounds}(ψ, {phrase_settings(ladd)})",
        "all": f"{source % 'fda, '} + LADD-{rounds}(f, {phrase_settings(ladd)})",
        "ftda": f"{source % 'fda, '} + FedAvg-{rounds}(f, {phrase_settings(plain)})",
        "oracle": f"FedAvg-{rounds}(f, {phrase_settings(plain)})",
    }[how]


def configured(task: Task, target: Target, how: str) -> dict[str, Any]:
    """The settings of a row's run."""
    images, test, source = (str(task.data[need]) for need in target.needs)
    return {
        "data": images,
        "test": test,
        "source": source,
        "network": "deeplabv3_32",
        "pixels": "512x1024",
        "partition": {"name": "runs", "frames": 20} if target.need == "cityscapes" else None,
        "cohort": target.cohort,
        "evaluate_every": 5,
        "pipeline": pipeline(target, how),
    }


def study(task: Task, target: Target, lines: Sequence[Line]) -> list[Row]:
    """Every line's row; where some of the data are not here, with the thesis's numbers alone."""
    rows, results = [], list[RunResult]()
    here = all(need in task.data for need in target.needs)
    for number, line in enumerate(lines, 1):
        ours: tuple[float, ...] = ()
        if here and line.how:
            place = (task.folder or Path()) / target.need / f"{number:02d}"
            settings = configured(task, target, line.how)
            for change in task.changes:
                apply_change(settings, change)
            results.append(run_config(make_config(settings), place, progress=task.progress))
            write_report(results, place.parent)
            found = results[-1].runs[0].mean_iou
            ours = () if found is None else (100 * found,)
        rows.append(Row(line.title, target.need, line.paper, ours, note=line.note))
    return rows


def conclusion(rows: Sequence[Row]) -> str:
    """What the thesis claims, and whether it holds where it was run."""
    by_title = {row.what: row for row in rows}
    run = [row for row in rows if row.ours]
    if not run:
        return "Nobody has run it here: it needs the data sets and a GPU."
    both = [by_title.get(name) for name in ("FedAvg + self-training", "LADD (all)")]
    if both[0] is None or both[1] is None or not (both[0].ours and both[1].ours):
        return f"{len(run)} of {len(rows)} rows were run."
    gap = both[1].mean - both[0].mean
    return f"LADD (all) is {gap:+.1f} points from FedAvg with self-training."

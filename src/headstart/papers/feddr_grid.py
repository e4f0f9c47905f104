"""Many pipelines on one split as a table: every cell is a run folder that is filled once.

A grid that was cut short goes on where it stopped, cells that are finished are read, and one whose
model was no longer finite says so in its place. The paper's numbers stand beside ours where split,
network and data are the paper's.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headstart import gradient
from headstart.errors import DivergedError, HeadstartError
from headstart.files import write_text
from headstart.papers import feddr_paper as paper
from headstart.papers.feddr_tables import CellResult, write_grid, write_tables
from headstart.papers.reproduction import Task
from headstart.papers.table import Row
from headstart.pipeline.config import RunConfig, parsed
from headstart.pipeline.experiment import Experiment, prepare
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.run import REPORTED, check_pipeline, configured, load_or_run
from headstart.progress import Progress, silent
from headstart.results import RunResult, SeedResult

CELLS, DIVERGED = "cells.json", "diverged.json"


@dataclass(frozen=True)
class Cell:
    """A pipeline and its place: the table, row and column, and the paper's number there.

    `split`: the paper's split that this number belongs to.
    """

    table: str
    row: str
    column: str
    pipeline: str
    paper: float | None = None
    split: str | None = None
    personal: bool = False  # the plain mean over clients counts, not the outside test set

    @property
    def folder(self) -> str:
        name = f"{self.table} {self.row} {self.column}".casefold().replace("+", "-plus")
        return re.sub(r"[^\w.=]+", "-", name).strip("-")


@dataclass(frozen=True)
class Schedule:
    """How every cell trains, as in the paper: lr ×0.1 at half and three quarters of the rounds."""

    rounds: int = 320
    epochs: int = 3
    batch: int = 50
    decay: float = 1e-5
    momentum: float = 0.9
    rate: float | None = None  # for all; none: each method's own

    def phrase(self, algorithm: str, settings: Mapping[str, Any] | None = None) -> str:
        """Return a training as a pipeline notates it; `settings` override the schedule's."""
        drops = sorted({self.rounds // 2, self.rounds * 3 // 4} - {0})  # of one round, none
        values = {
            "lr": self.rate_of(algorithm, settings or {}),
            "epochs": self.epochs,
            "batch": self.batch,
            "decay": self.decay,
            "local_momentum": self.momentum,
            **({"drops": f"'{','.join(map(str, drops))}'"} if drops else {}),
            **(settings or {}),
        }
        return f"{algorithm}-{self.rounds}({phrase_settings(values)})"

    def rate_of(self, algorithm: str, settings: Mapping[str, Any]) -> float:
        """Return the rate of all cells, or the own rate of the algorithm with these settings."""
        if self.rate is not None:
            return self.rate
        keys = gradient.settings_of(algorithm)
        method = {key: value for key, value in settings.items() if key in keys}
        return gradient.make(algorithm, method).rate


def share_of(ratio: float, count: int) -> int:
    """Return this share of a count, at least 1."""
    return max(1, round(ratio * count))


def phrase_settings(settings: Mapping[str, Any]) -> str:
    """Return settings as a pipeline notates them."""
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def exact_name(what: str, name: str, choices: Iterable[str]) -> str:
    """Return a name as the table writes it, from any case; refuse one that is not there."""
    names = {exact.casefold(): exact for exact in choices}
    if name.casefold() not in names:
        raise HeadstartError(f"{what}: expected one of {', '.join(names.values())}, got {name!r}")
    return names[name.casefold()]


def paper_split(experiment: Experiment) -> str | None:
    """Return which of the paper's splits this is, or None.

    None also where the network or the data are not the paper's.
    """
    config = experiment.config
    trained = np.concatenate([client.samples.labels for client in experiment.clients.values()])
    each = [np.unique(y, return_counts=True)[1] for y in (trained, experiment.test.labels)]
    counts = [paper.IMAGES[part] for part in ("train", "test")]
    data = all(
        len(images) == paper.IMAGES["classes"] and (images == count).all()
        for images, count in zip(each, counts, strict=True)
    )
    usual = {**paper.SETTING, "shift": None, "augment": None}
    if not data or any(getattr(config, key) != value for key, value in usual.items()):
        return None
    named = config.partition and {"name": config.partition.name, **config.partition.settings}
    return next((split for split, made in paper.SPLITS.items() if made == named), None)


def run_study(cells: Sequence[Cell], config: RunConfig, task: Task, title: str) -> list[CellResult]:
    """Run the cells in the task's folder; refuse a task without one."""
    if task.folder is None:
        raise HeadstartError("folder: expected a folder for the runs of the cells, got none")
    return run_grid(cells, config, task.folder, title, task.progress)


def rows_of(results: Sequence[CellResult]) -> list[Row]:
    """Return a row per cell; a cell that diverged has no number of ours."""
    return [
        Row(
            f"{cell.row} / {cell.column}",
            cell.table,
            cell.paper,
            () if cell.accuracy is None else (100 * cell.accuracy,),
            note=cell.note,
        )
        for cell in results
    ]


def run_grid(
    cells: Sequence[Cell], config: RunConfig, root: Path, title: str, progress: Progress = silent
) -> list[CellResult]:
    """Run every cell on one split; tables are written after each, the report now and then.

    They also show what other commands have finished in this folder. A cell that holds another run
    is refused before anything is written.
    """
    if (root / "config.yaml").exists():
        raise HeadstartError(f"output: {root} holds one run; name a new folder")
    experiment = prepare(config, progress)
    for cell in cells:
        check_pipeline(experiment.context(), parsed(cell.pipeline))
    earlier = _places(root, _others(root, cells))
    others = [cell for cell, path in earlier.items() if _finished(experiment, cell, path)]
    places = _places(root, (*others, *cells))
    for cell in cells:
        config_of = configured(experiment, parsed(cell.pipeline))
        RunFolder(places[cell]).check(config_of, experiment.digest())
    root.mkdir(parents=True, exist_ok=True)
    write_text(root / CELLS, json.dumps([asdict(cell) for cell in places]))
    results: list[CellResult] = []
    reported, split = time.monotonic(), paper_split(experiment)
    for cell, path in places.items():
        if cell.split is None or cell.split != split:
            cell = replace(cell, paper=None)
        results.append(_cell_result(cell, _run_cell(experiment, cell, path, progress), path))
        write_tables(results, root)
        if len(results) == len(places) or time.monotonic() > reported + REPORTED:
            write_grid(results, root, title)
            reported = time.monotonic()
    return results


def _places(root: Path, cells: Sequence[Cell]) -> dict[Cell, Path]:
    """Return the folder of each cell; a pipeline that stands in two places is run once."""
    first: dict[str, Path] = {}
    return {
        cell: first.setdefault(str(parsed(cell.pipeline)), root / cell.folder) for cell in cells
    }


def _others(root: Path, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of earlier commands in this folder that this one has not."""
    if not (root / CELLS).exists():
        return []
    folders = {cell.folder for cell in cells}
    try:
        earlier = [Cell(**values) for values in _saved(root / CELLS)]
    except TypeError:
        raise HeadstartError(f"grid: {root / CELLS} is damaged; name a new folder") from None
    return [cell for cell in earlier if cell.folder not in folders]


def _finished(experiment: Experiment, cell: Cell, path: Path) -> bool:
    same = RunFolder(path).is_of(configured(experiment, parsed(cell.pipeline)), experiment.digest())
    return same and any((path / name).exists() for name in ("results.json", DIVERGED))


def _run_cell(
    experiment: Experiment, cell: Cell, path: Path, progress: Progress
) -> SeedResult | str:
    """Return the result, or why there is none."""
    pipeline, mark, digest = parsed(cell.pipeline), path / DIVERGED, experiment.digest()
    if mark.exists() and RunFolder(path).is_of(configured(experiment, pipeline), digest):
        return str(_saved(mark)["failed"])
    try:
        return load_or_run(experiment, pipeline, path, digest, progress)
    except DivergedError as error:
        write_text(mark, json.dumps({"failed": str(error)}, ensure_ascii=False))
        return str(error)


def _saved(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise HeadstartError(f"run: {path} is damaged; name a new folder") from None


def _cell_result(cell: Cell, result: SeedResult | str, path: Path) -> CellResult:
    place = (cell.table, cell.row, cell.column)
    if isinstance(result, str):
        return CellResult(*place, cell.pipeline, paper=cell.paper, failed=result)
    accuracy, deviation = result.accuracy, None
    if cell.personal and result.personal is not None:
        each = result.personal.shares()
        accuracy, deviation = float(each.mean()), float(each.std())
    run = RunResult((result,), path)
    return CellResult(*place, result.pipeline, accuracy, deviation, cell.paper, result=run)

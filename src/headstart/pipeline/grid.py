"""Many pipelines on one split as a table: every cell a run folder, begun once and never again.

A grid that was cut short goes on where it stopped, cells that are finished are read, and one whose
model was no longer finite says so in its place. The paper's numbers stand beside ours where split,
network and data are the paper's.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headstart import gradient
from headstart.costs import sample_flops
from headstart.data.backbones.catalogue import NETWORKS
from headstart.errors import DivergedError, HeadstartError
from headstart.files import write_text
from headstart.gradient.checks import share
from headstart.gradient.engine import Training
from headstart.gradient.flops import extractor_flops, head_flops
from headstart.gradient.loop import Plan, begin, one_round
from headstart.gradient.models import Spec, initial
from headstart.gradient.steps import Job
from headstart.pipeline import feddr_tables as paper
from headstart.pipeline.config import RunConfig, parsed
from headstart.pipeline.experiment import Experiment, prepare
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.run import REPORTED, check_pipeline, configured, load_or_run
from headstart.progress import Progress, silent
from headstart.report.grid import CellResult, write_grid, write_tables
from headstart.results import RunResult, SeedResult

RATIOS, EPOCHS, BETAS = (0.05, 0.1, 0.2, 0.5), (1, 3, 5, 10), (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
CELLS, DIVERGED = "cells.json", "diverged.json"
COMPARED = {  # of the sensitivity study
    **{name: paper.ALGORITHMS[name] for name in ("FedAvg", "FedBABU", "SphereFed")},
    "FedDr+": ("etf", "feddr-plus"),
}


@dataclass(frozen=True)
class Cell:
    """A pipeline and its place: which table, row and column, and what the paper has there.

    `split`: on which of its splits the paper has that.
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
        """A training in a pipeline; `settings` may change the schedule's own."""
        drops = sorted({self.rounds // 2, self.rounds * 3 // 4} - {0})  # of one round, none
        told = {
            "lr": self.rate_of(algorithm, settings or {}),
            "epochs": self.epochs,
            "batch": self.batch,
            "decay": self.decay,
            "local_momentum": self.momentum,
            **({"drops": f"'{','.join(map(str, drops))}'"} if drops else {}),
            **(settings or {}),
        }
        return f"{algorithm}-{self.rounds}({_words(told)})"

    def rate_of(self, algorithm: str, settings: Mapping[str, Any]) -> float:
        """The one for all, or that of the algorithm so set."""
        if self.rate is not None:
            return self.rate
        own = gradient.settings_of(algorithm)
        known = {key: value for key, value in settings.items() if key in own}
        return gradient.make(algorithm, known).rate


# -- which cells -----------------------------------------------------------------------------------


def feddr_cells(
    schedule: Schedule,
    split: str,
    beta: float | None = None,
    algorithms: Sequence[str] = tuple(paper.ALGORITHMS),
    terms: Sequence[str] = paper.TERMS,
) -> list[Cell]:
    """Table 2: algorithms × terms, β a cell as in table 12, or one for all as in table 13."""
    known = (paper.TABLE_2 if beta is None else paper.TABLE_13 if beta == 0.9 else {}).get(split)
    if beta is not None:
        share("beta", beta)
    found = []
    for row in (_known("algorithm", name, paper.ALGORITHMS) for name in algorithms):
        head, algorithm = paper.ALGORITHMS[row]
        for term in (_known("term", name, paper.TERMS) for name in terms):
            own = paper.TABLE_12[split][row, term] if beta is None else beta
            settings = {} if term == "none" else {"term": term, "mix": own}
            text = f"{head} + {schedule.phrase(algorithm, settings)}"
            told = (known or {}).get((row, term))
            found.append(Cell(split, row, term, text, told, split))
    return found


def sensitivity_cells(schedule: Schedule, clients: int, cohort: int) -> list[Cell]:
    """Figure 7: client ratio, local epochs, and β of FedDr+; the others stay as they are told, β at
    0.9. Ratios that few clients cannot tell apart stand once."""
    ratios = {_some(ratio, clients): ratio for ratio in reversed(RATIOS)}
    axes: list[tuple[str, str, Sequence[float]]] = [
        ("client ratio", "clients", sorted(ratios.values())),
        ("local epochs", "epochs", EPOCHS),
        ("beta", "beta", BETAS),
    ]
    found = []
    for table, key, values in axes:
        for row, (head, algorithm) in COMPARED.items():
            own = {"beta": 0.9} if algorithm == "feddr-plus" else {}
            usual = {"clients": cohort, "epochs": schedule.epochs, **own}
            for value in values if key in usual else ():
                changed = {**usual, key: _some(value, clients) if key == "clients" else value}
                words = f"{head} + {schedule.phrase(algorithm, changed)}"
                found.append(Cell(table, row, f"{value:g}", words))
    return found


def _some(ratio: float, clients: int) -> int:
    return max(1, round(ratio * clients))


def personal_cells(
    schedule: Schedule, split: str, clients: int, cohort: int, home: int
) -> list[Cell]:
    """Tables 5 and 14. Local training visits a client as often as a federated one would.

    At home a client goes on as training ended: its learning rate, momentum and decay.
    """
    alone = replace(schedule, rounds=_some(cohort / clients, schedule.rounds))
    usual = {key: getattr(schedule, key) for key in ("batch", "decay", "momentum")}
    found = []
    for row, (head, algorithm, own, at_home, *numbers) in paper.TABLE_5.items():
        local = algorithm == "local-only"
        settings = {**own, **({"clients": clients} if local else {})}
        words = f"{head} + {(alone if local else schedule).phrase(algorithm, settings)}"
        if at_home is not None:
            rate = 0.01 * schedule.rate_of(algorithm, own)
            words += f" + FP-{home}({_words({**at_home, 'lr': rate, **usual})})"
        known = dict(zip(("shards", "dirichlet"), numbers, strict=True))[split]
        place = (f"personal {split}", row, "at home")
        found.append(Cell(*place, words, known, split, personal=True))
    return found


def _words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def _known(what: str, name: str, known: Iterable[str]) -> str:
    """As the table writes it; in whatever case it was said."""
    names = {one.casefold(): one for one in known}
    if name.casefold() not in names:
        raise HeadstartError(f"{what}: expected one of {', '.join(names.values())}, got {name!r}")
    return names[name.casefold()]


def paper_split(prepared: Experiment) -> str | None:
    """Which of the paper's splits this is; None also where network or data are not the paper's."""
    config = prepared.config
    trained = np.concatenate([client.samples.labels for client in prepared.clients.values()])
    each = [np.unique(y, return_counts=True)[1] for y in (trained, prepared.test.labels)]
    counts = [paper.IMAGES[part] for part in ("train", "test")]
    data = all(
        len(found) == paper.IMAGES["classes"] and (found == count).all()
        for found, count in zip(each, counts, strict=True)
    )
    usual = {**paper.SETTING, "shift": None, "augment": None}
    if not data or any(getattr(config, key) != value for key, value in usual.items()):
        return None
    named = config.partition and {"name": config.partition.name, **config.partition.settings}
    return next((split for split, known in paper.SPLITS.items() if known == named), None)


# -- carried out -----------------------------------------------------------------------------------


def run_grid(
    cells: Sequence[Cell], config: RunConfig, root: Path, title: str, progress: Progress = silent
) -> list[CellResult]:
    """Every cell on one split; the tables are written anew after each, the report now and then.

    They also show what other commands have finished in this folder. A cell that holds another run
    is refused before anything is written.
    """
    if (root / "config.yaml").exists():
        raise HeadstartError(f"output: {root} holds one run; name a new folder")
    prepared = prepare(config, progress)
    for cell in cells:
        check_pipeline(prepared.context(), parsed(cell.pipeline))
    known = _places(root, _others(root, cells))
    others = [cell for cell, path in known.items() if _finished(prepared, cell, path)]
    places = _places(root, (*others, *cells))
    for cell in cells:
        config_of = configured(prepared, parsed(cell.pipeline))
        RunFolder(places[cell]).check(config_of, prepared.digest())
    root.mkdir(parents=True, exist_ok=True)
    write_text(root / CELLS, json.dumps([asdict(cell) for cell in places]))
    found: list[CellResult] = []
    reported, split = time.monotonic(), paper_split(prepared)
    for cell, path in places.items():
        if cell.split is None or cell.split != split:
            cell = replace(cell, paper=None)
        found.append(_cell_result(cell, _outcome(prepared, cell, path, progress), path))
        write_tables(found, root)
        if len(found) == len(places) or time.monotonic() > reported + REPORTED:
            write_grid(found, root, title)
            reported = time.monotonic()
    return found


def _places(root: Path, cells: Sequence[Cell]) -> dict[Cell, Path]:
    """The folder of each cell; a pipeline that stands in two places is run once."""
    first: dict[str, Path] = {}
    return {
        cell: first.setdefault(str(parsed(cell.pipeline)), root / cell.folder) for cell in cells
    }


def _others(root: Path, cells: Sequence[Cell]) -> list[Cell]:
    """What earlier commands asked for in this folder, and this one does not."""
    if not (root / CELLS).exists():
        return []
    asked = {cell.folder for cell in cells}
    try:
        known = [Cell(**values) for values in _saved(root / CELLS)]
    except TypeError:
        raise HeadstartError(f"grid: {root / CELLS} is damaged; name a new folder") from None
    return [cell for cell in known if cell.folder not in asked]


def _finished(prepared: Experiment, cell: Cell, path: Path) -> bool:
    own = RunFolder(path).is_of(configured(prepared, parsed(cell.pipeline)), prepared.digest())
    return own and any((path / name).exists() for name in ("results.json", DIVERGED))


def _outcome(prepared: Experiment, cell: Cell, path: Path, progress: Progress) -> SeedResult | str:
    """The result, or why there is none."""
    pipeline, mark, digest = parsed(cell.pipeline), path / DIVERGED, prepared.digest()
    if mark.exists() and RunFolder(path).is_of(configured(prepared, pipeline), digest):
        return str(_saved(mark)["failed"])
    try:
        return load_or_run(prepared, pipeline, path, digest, progress)
    except DivergedError as error:
        write_text(mark, json.dumps({"failed": str(error)}, ensure_ascii=False))
        return str(error)


def _saved(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise HeadstartError(f"run: {path} is damaged; name a new folder") from None


def _cell_result(cell: Cell, found: SeedResult | str, path: Path) -> CellResult:
    place = (cell.table, cell.row, cell.column)
    if isinstance(found, str):
        return CellResult(*place, cell.pipeline, paper=cell.paper, failed=found)
    accuracy, deviation = found.accuracy, None
    if cell.personal and found.personal is not None:
        each = found.personal.shares()
        accuracy, deviation = float(each.mean()), float(each.std())
    result = RunResult((found,), path)
    return CellResult(*place, found.pipeline, accuracy, deviation, cell.paper, result=result)


# -- how long a round takes ------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    """Seconds of a round, next to FedAvg's of the same run, the papers', and counted operations."""

    method: str
    seconds: float
    ratio: float
    flops: float
    paper: float | None


def time_rounds(
    prepared: Experiment, training: Training, repeats: int = 3, methods: Sequence[str] = ()
) -> list[Timed]:
    """The shortest of a few rounds of every method, taken in turn on the same clients."""
    config = prepared.config
    if not config.network:
        raise HeadstartError("network: expected one to train on images, got none")
    classes = prepared.context().classes
    dimension = NETWORKS[config.network].dimension
    spec = Spec(len(classes), dimension, config.network, batch_norm=config.batch_norm)
    jobs = {
        name: Job(name, spec, training, gradient.make(name).trains or "model")
        for name in (gradient.METHODS.entry(one).name for one in methods or paper.TABLE_4)
    }
    best = dict.fromkeys(jobs, np.inf)
    for name, seconds in _rounds(prepared, jobs, classes, repeats):
        best[name] = min(best[name], seconds)
    forward = extractor_flops(config.network, (3, config.pixels, config.pixels)), head_flops(spec)
    flops = {
        name: sample_flops(job.recipe, job.train, *forward, training.epochs)
        for name, job in jobs.items()
    }
    first = next(iter(jobs))
    table = paper.TABLE_4 if paper_split(prepared) == "shards" else {}
    known = {name: table.get(name) for name in jobs}
    base = known[first]
    return [
        Timed(
            name,
            best[name],
            best[name] / best[first],
            flops[name] / flops[first],
            told_ / base if (told_ := known[name]) and base else None,
        )
        for name in jobs
    ]


def _rounds(
    prepared: Experiment, jobs: Mapping[str, Job], classes: Any, repeats: int
) -> Iterator[tuple[str, float]]:
    federation = prepared.federation
    cohort = min(prepared.config.cohort, len(federation.clients))
    plan = Plan(rounds=repeats + 1, clients=cohort, seed=prepared.config.seed)
    states = {name: begin(job, initial(job.model, None, 0)) for name, job in jobs.items()}
    for turn in range(repeats + 1):
        for name, job in jobs.items():
            began = time.perf_counter()
            states[name] = one_round(job, plan, federation, classes, states[name])
            if turn:  # the first makes buffers
                yield name, time.perf_counter() - began
    federation.begin_training("")

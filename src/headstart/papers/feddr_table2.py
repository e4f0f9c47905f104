"""FedDr+, table 2: six algorithms × seven terms; with beta=0.9 table 13, else β as in table 12."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.gradient.checks import share
from headstart.papers import feddr_paper as paper
from headstart.papers.feddr_grid import Cell, exact_name, rows_of, run_study
from headstart.papers.feddr_study import Study, names, study_of
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row, find_row, settings_of


@dataclass(frozen=True)
class Settings(Study):
    """`beta`: one for all cells, none: that of table 12; `algorithms` and `terms`: some of them."""

    beta: float | None = None
    algorithms: Sequence[str] = tuple(paper.ALGORITHMS)
    terms: Sequence[str] = paper.TERMS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta is not None:
            share("beta", self.beta)
        for field, choices in (("algorithms", paper.ALGORITHMS), ("terms", paper.TERMS)):
            exact = [
                exact_name(field, name, choices) for name in names(field, getattr(self, field))
            ]
            object.__setattr__(self, field, tuple(exact))


def run(task: Task) -> list[Row]:
    study, split, config = study_of(Settings(), "shards", task)
    cells = table_cells(study, split)
    title = "Algorithms and what holds them to the received model"
    return rows_of(run_study(cells, config, task, title))


def table_cells(settings: Settings, split: str) -> list[Cell]:
    """Return the algorithms × terms of a split, with the paper's numbers if it has this β."""
    beta = settings.beta
    numbers = (paper.TABLE_2 if beta is None else paper.TABLE_13 if beta == 0.9 else {}).get(split)
    cells = []
    for row in settings.algorithms:
        head, algorithm = paper.ALGORITHMS[row]
        for term in settings.terms:
            mix = paper.TABLE_12[split][row, term] if beta is None else beta
            more = {} if term == "none" else {"term": term, "mix": mix}
            pipeline = f"{head} + {settings.schedule.phrase(algorithm, more)}"
            number = (numbers or {}).get((row, term))
            cells.append(Cell(split, row, term, pipeline, number, split))
    return cells


def conclusion(rows: Sequence[Row]) -> str:
    """Return which cell is best, and what feature distillation gives dot-regression."""
    parts = []
    for split in settings_of(rows):
        done = [row for row in rows if row.setting == split and row.ours]
        if not done:
            continue
        best = max(done, key=lambda row: row.mean)
        plain, plus = (find_row(done, f"Dot-Regression / {term}", split) for term in ("none", "fd"))
        gain = f", fd gives dot-regression {plus.mean - plain.mean:+.1f}" if plain and plus else ""
        parts.append(f"{split}: best is {best.what} ({best.mean:.1f}){gain}")
    claim = "The paper: dot-regression with feature distillation (FedDr+) is best on both splits."
    return "; ".join(parts) + (". " if parts else "") + claim


REPRODUCTION = Reproduction(
    "feddr-table2",
    "Algorithms × terms that hold a client to the received model",
    "FedDr+, tables 2 and 13 (MobileNet on CIFAR-100, 320 rounds; partition=shards or dirichlet)",
    ("cifar100",),
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
)

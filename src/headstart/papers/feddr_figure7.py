"""FedDr+, figure 7: the ratio of clients in a round, local epochs, and β of FedDr+."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.papers import feddr_paper as paper
from headstart.papers.feddr_grid import Cell, Schedule, rows_of, run_study, share_of
from headstart.papers.feddr_study import Study, clients_of, study_of
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row, settings_of

RATIOS, EPOCHS, BETAS = (0.05, 0.1, 0.2, 0.5), (1, 3, 5, 10), (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
COMPARED = {
    **{name: paper.ALGORITHMS[name] for name in ("FedAvg", "FedBABU", "SphereFed")},
    "FedDr+": ("etf", "feddr-plus"),
}


def run(task: Task) -> list[Row]:
    study, _, config = study_of(Study(), "dirichlet", task)
    cells = figure_cells(study.schedule, clients_of(config), config.cohort)
    return rows_of(run_study(cells, config, task, "Sensitivity of FedDr+"))


def figure_cells(schedule: Schedule, clients: int, cohort: int) -> list[Cell]:
    """Return the cells along each axis; what does not vary stays as set, β at 0.9.

    Ratios that few clients cannot tell apart stand once.
    """
    ratios = {share_of(ratio, clients): ratio for ratio in reversed(RATIOS)}
    axes: list[tuple[str, str, Sequence[float]]] = [
        ("client ratio", "clients", sorted(ratios.values())),
        ("local epochs", "epochs", EPOCHS),
        ("beta", "beta", BETAS),
    ]
    cells = []
    for table, key, values in axes:
        for row, (head, algorithm) in COMPARED.items():
            more = {"beta": 0.9} if algorithm == "feddr-plus" else {}
            usual = {"clients": cohort, "epochs": schedule.epochs, **more}
            for value in values if key in usual else ():
                changed = {**usual, key: share_of(value, clients) if key == "clients" else value}
                pipeline = f"{head} + {schedule.phrase(algorithm, changed)}"
                cells.append(Cell(table, row, f"{value:g}", pipeline))
    return cells


def conclusion(rows: Sequence[Row]) -> str:
    """Return the best cell of each axis."""
    parts = []
    for axis in settings_of(rows):
        done = [row for row in rows if row.setting == axis and row.ours]
        if done:
            best = max(done, key=lambda row: row.mean)
            parts.append(f"{axis}: best is {best.what} ({best.mean:.1f})")
    return "; ".join([*parts, "the paper draws curves, FedDr+ above the others"]) + "."


REPRODUCTION = Reproduction(
    "feddr-figure7",
    "Client ratio, local epochs and β",
    "FedDr+, figure 7 (curves; MobileNet on CIFAR-100, 320 rounds)",
    ("cifar100",),
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
)

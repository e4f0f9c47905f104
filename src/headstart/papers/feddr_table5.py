"""FedDr+, tables 5 and 14: personal accuracy, the plain mean over clients and its deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headstart.gradient.checks import whole
from headstart.papers import feddr_paper as paper
from headstart.papers.feddr_grid import Cell, phrase_settings, rows_of, run_study, share_of
from headstart.papers.feddr_study import Study, clients_of, study_of
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row


@dataclass(frozen=True)
class Settings(Study):
    """`local_epochs`: of each client's fine-tuning after the federated training."""

    local_epochs: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("local_epochs", self.local_epochs)


def run(task: Task) -> list[Row]:
    study, split, config = study_of(Settings(), "shards", task, {"matched": True})
    cells = table_cells(study, split, clients_of(config), config.cohort)
    return rows_of(run_study(cells, config, task, "Personal accuracy"))


def table_cells(settings: Settings, split: str, clients: int, cohort: int) -> list[Cell]:
    """Return a cell per method. Local-only training visits a client as often as a federated one.

    A client's fine-tuning goes on as training ended: its learning rate, momentum and decay.
    """
    schedule = settings.schedule
    alone = replace(schedule, rounds=share_of(cohort / clients, schedule.rounds))
    usual = {key: getattr(schedule, key) for key in ("batch", "decay", "momentum")}
    cells = []
    for row, (head, algorithm, method, local, *numbers) in paper.TABLE_5.items():
        local_only = algorithm == "local-only"
        more = {**method, **({"clients": clients} if local_only else {})}
        pipeline = f"{head} + {(alone if local_only else schedule).phrase(algorithm, more)}"
        if local is not None:
            rate = 0.01 * schedule.rate_of(algorithm, method)
            fine_tuning = phrase_settings({**local, "lr": rate, **usual})
            pipeline += f" + FP-{settings.local_epochs}({fine_tuning})"
        number = dict(zip(("shards", "dirichlet"), numbers, strict=True))[split]
        place = (f"personal {split}", row, "personal")
        cells.append(Cell(*place, pipeline, number, split, personal=True))
    return cells


def conclusion(rows: Sequence[Row]) -> str:
    """Return the methods from best to worst."""
    done = sorted((row for row in rows if row.ours), key=lambda row: -row.mean)
    order = " > ".join(f"{row.what.partition(' / ')[0]} ({row.mean:.1f})" for row in done[:5])
    return f"First are {order}. The paper: FedDr+FT is first on both splits."


REPRODUCTION = Reproduction(
    "feddr-table5",
    "Personal accuracy after local fine-tuning",
    "FedDr+, tables 5 and 14 (MobileNet on CIFAR-100, 320 rounds; partition=shards or dirichlet)",
    ("cifar100",),
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
)

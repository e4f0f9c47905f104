"""FedCOF, table 5: feature shift, a domain per client. The paper: DomainNet; ours: PACS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.data.partition import domain
from headstart.errors import DataError
from headstart.heads.fed3r import Fed3R
from headstart.heads.fedcof import FedCOF
from headstart.heads.fedncm import FedNCM
from headstart.papers.common import cases, collect, federation, solve_head
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import ResultCollector, Row, find_row

SETTING = "a domain per client"
PAPER = {
    ("FedNCM", SETTING): 65.8,
    ("Fed3R", SETTING): 81.9,
    ("FedCOF", SETTING): 74.1,
    ("FedCOF, 2 means", SETTING): 76.5,
    ("FedCOF, 10 means", SETTING): 78.8,
}
HEADS: dict[str, Any] = {
    "FedNCM": FedNCM(),
    "Fed3R": Fed3R(ridge=0.01),
    "FedCOF": FedCOF(shrinkage=0.1),
    "FedCOF, 2 means": FedCOF(shrinkage=0.1, means=2),
    "FedCOF, 10 means": FedCOF(shrinkage=0.1, means=10),
}


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    results = ResultCollector()
    for case in cases(task):
        if case.train.domains is None:
            raise DataError(f"{case.name}: expected the domain of each sample, got none")
        for seed in range(task.seeds):
            simulator = federation(case.train, domain(case.train.domains, seed=seed), seed)
            for name, head in HEADS.items():
                answer = collect(simulator, head)
                results.add(name, SETTING, case.accuracy(solve_head(head, answer.statistic)))
                results.add(f"{name}, sent", SETTING, answer.up / 1e6, "MB")
            task.progress(case.name, seed + 1, task.seeds)
    return sorted(results.rows(PAPER), key=lambda row: row.unit != "%")


def conclusion(rows: Sequence[Row]) -> str:
    """Return one sentence on what the rows show."""
    shown = [row for row in (find_row(rows, name, SETTING) for name in HEADS) if row]
    ours = " < ".join(row.what for row in sorted(shown, key=lambda row: row.mean))
    paper = " < ".join(row.what for row in sorted(shown, key=lambda row: row.paper or 0.0))
    return (
        f"Order here: {ours}. The paper's (DomainNet, 6 domains, 10 classes): {paper}. The order "
        "is what can be compared: PACS has 4 domains and 7 classes."
    )


REPRODUCTION = Reproduction(
    "fedcof-table5",
    "Feature shift: a domain per client",
    "FedCOF, table 5 (the paper: DomainNet; ours: PACS; MobileNetV2)",
    ("pacs",),
    5,
    run,
    conclusion,
)

"""FedCOF, table 2: ridge regression on the total or on the within-class scatter, pooled.

Both are solved from the same sums. The paper's numbers are SqueezeNet's (d = 512).
"""

from __future__ import annotations

from collections.abc import Sequence

from headstart.heads.fed3r import Fed3R
from headstart.papers.common import cases, solve_head
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import ResultCollector, Row, find_row, settings_of

PAPER = {
    ("total scatter", "cifar100"): 57.1,
    ("within-class scatter", "cifar100"): 57.3,
    ("total scatter", "cub200"): 50.4,
    ("within-class scatter", "cub200"): 53.7,
}
HEADS = {
    "total scatter": Fed3R(ridge=0.01),
    "within-class scatter": Fed3R(ridge=0.01, scatter="within"),
    "within-class scatter, γ = 0.1": Fed3R(ridge=0.01, scatter="within", shrinkage=0.1),
}


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    results = ResultCollector()
    for done, case in enumerate(cases(task), 1):
        pooled = Fed3R().measure(case.train.features, case.train.labels)
        for name, head in HEADS.items():
            results.add(name, case.name, case.accuracy(solve_head(head, pooled)))
        task.progress("pooled", done, len(task.data))
    return results.rows(PAPER)


def conclusion(rows: Sequence[Row]) -> str:
    """Return one sentence on what the rows show."""
    parts = []
    for name in settings_of(rows):
        total, within = (find_row(rows, what, name) for what in list(HEADS)[:2])
        if total and within:
            gain = f"{name}: within − total = {within.mean - total.mean:+.1f}"
            published = within.paper is not None and total.paper is not None
            paper = (within.paper or 0.0) - (total.paper or 0.0)
            parts.append(f"{gain} (paper {paper:+.1f})" if published else gain)
    return (
        "; ".join(parts) + ". The paper's features are SqueezeNet's, ours MobileNetV2's: compare "
        "the gain, not the accuracy. Nothing is random: one seed."
    )


REPRODUCTION = Reproduction(
    "fedcof-table2",
    "Total against within-class scatter, pooled",
    "FedCOF, table 2 (the paper: SqueezeNet; ours: MobileNetV2; λ = 0.01)",
    ("cifar100", "cub200"),
    1,
    run,
    conclusion,
)

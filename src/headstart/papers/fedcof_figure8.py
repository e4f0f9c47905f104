"""FedCOF, figure 8: several means per class; and its cheaper rivals, diagonal and spherical.

The paper gives curves (ImageNet-R, SqueezeNet) and no numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart.heads.fedcof import FedCOF
from headstart.heads.shared_variances import SharedVariances
from headstart.papers.common import cases, collect, fedcof_clients, solve_head
from headstart.papers.fedcof_table3 import ORACLE
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import ResultCollector, Row, find_row, settings_of

MEANS = (1, 2, 3, 5)
HEADS: dict[str, Any] = {
    **{f"FedCOF, {means} mean{'s' * (means > 1)}": FedCOF(means=means) for means in MEANS},
    "spherical covariances shared": SharedVariances("spherical"),
    "diagonal covariances shared": SharedVariances("diagonal"),
    "full covariances (oracle)": ORACLE,
}


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    results = ResultCollector()
    for case in cases(task):
        for seed in range(task.seeds):
            simulator = fedcof_clients(case, seed)
            for done, (name, head) in enumerate(HEADS.items(), 1):
                answer = collect(simulator, head)
                total = answer.statistic
                results.add(name, case.name, case.accuracy(solve_head(head, total)))
                results.add(f"{name}: sent", case.name, answer.up / 1e6, "MB")
                if isinstance(head, FedCOF):
                    each = np.unique(total.labels, return_counts=True)[1]
                    results.add(f"{name}: rows per class", case.name, each.mean(), "means")
                task.progress(f"{case.name} {seed + 1}/{task.seeds}", done, len(HEADS))
    return sorted(results.rows(), key=lambda row: row.unit != "%")


def conclusion(rows: Sequence[Row]) -> str:
    """Return one sentence on what the rows show."""
    parts = []
    for name in settings_of(rows):
        shown = [find_row(rows, what, name) for what in HEADS]
        single, many, ball, line, full = (shown[i] for i in (0, len(MEANS) - 1, -3, -2, -1))
        if single and many and ball and line and full:
            parts.append(
                f"{name}: {MEANS[-1]} means for 1 give {many.mean - single.mean:+.1f}; FedCOF is "
                f"{single.mean - ball.mean:+.1f} from spherical, "
                f"{single.mean - line.mean:+.1f} from "
                f"diagonal, {single.mean - full.mean:+.1f} from full covariances"
            )
    return "; ".join(parts) + ". The paper: more means help, and FedCOF beats both rivals."


REPRODUCTION = Reproduction(
    "fedcof-figure8",
    "Several means per class, and the cheaper rivals",
    "FedCOF, figure 8 (the paper: ImageNet-R, SqueezeNet; 100 clients, Dirichlet 0.1)",
    ("cub200", "cifar100"),
    3,
    run,
    conclusion,
)

"""Thesis, figures 3.6 and 3.7: Fed3R-Sync by round, from one class per client to uniform splits.

In exact mode the totals are integers: whatever the split, the last round ends in the same bits, so
the digests of all totals are one digest (the count of distinct ones is a row).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headstart.data.partition import dirichlet_client
from headstart.federation import steps
from headstart.federation.grouped import Grouped
from headstart.heads.fed3r import Fed3R
from headstart.papers.common import Case, cases, federation, lattice_bound, solve_head
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import ResultCollector, Row, settings_of
from headstart.progress import Progress

ALPHAS = (0.0, 0.05, 0.1, 0.5, 1.0, 10.0, 1000.0)
CLIENTS, SIZE = 100, 10
SHOWN = (1, 2, 5, 10)
DISTINCT = "distinct totals over all α"
HEAD = Fed3R(ridge=0.01)
PAPER = {(f"α = {alpha:g}, round 10", "cifar100"): 63.2 for alpha in ALPHAS} | {
    (DISTINCT, name): 1.0 for name in ("cifar100", "cub200")
}


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    results = ResultCollector()
    for case in cases(task):
        for seed in range(task.seeds):
            ends = {one_split(case, alpha, seed, results, task.progress) for alpha in ALPHAS}
            digest = sorted(ends)[0][:16]
            results.add(DISTINCT, case.name, len(ends), "totals", f"first 16 digits {digest}")
    return results.rows(PAPER)


def one_split(
    case: Case, alpha: float, seed: int, results: ResultCollector, progress: Progress
) -> str:
    """Accuracy after some rounds; the digest of the final total."""
    split = dirichlet_client(case.train.labels, CLIENTS, alpha=alpha, seed=seed)
    sync = Grouped(federation(case.train, split, seed), SIZE, seed=seed)
    bound = max(lattice_bound(case.train), lattice_bound(case.test))
    total: Any = None
    for number, total in enumerate(running(sync, bound), 1):
        if number in SHOWN:
            name = f"α = {alpha:g}, round {number}"
            results.add(name, case.name, case.accuracy(solve_head(HEAD, total)))
            if alpha == ALPHAS[-1]:
                free = Fed3R(ridge="gcv")
                results.add(f"{name}, λ by GCV", case.name, case.accuracy(solve_head(free, total)))
        progress(f"{case.name} α = {alpha:g}", number, -(-CLIENTS // SIZE))
    return str(total.digest())


def running(sync: Grouped, bound: float) -> Iterator[Any]:
    """The sum of all groups so far, after each round, on the lattice."""
    so_far: Any = None
    for group in sync.answers(steps.measure(HEAD, exact=True, bound=bound)):
        sum_ = group.statistic
        so_far = sum_ if so_far is None else so_far + sum_
        yield so_far


def conclusion(rows: Sequence[Row]) -> str:
    """Return one sentence on what the rows show."""
    parts = []
    for name in settings_of(rows):
        ends = [r for r in rows if r.setting == name and r.what.endswith(f"round {SHOWN[-1]}")]
        same = all(r.mean == 1 for r in rows if r.setting == name and r.what == DISTINCT)
        word = "the same bits" if same else "NOT the same bits"
        parts.append(
            f"{name}: after round {SHOWN[-1]} every α ends in {word}, accuracy "
            f"{min(row.mean for row in ends):.2f} to {max(row.mean for row in ends):.2f}"
        )
    return (
        "; ".join(parts) + ". The thesis prints equal accuracies (63.2 on CIFAR-100, with randomly "
        "resized and cropped training images); ours are whole images at 224 px. A dip on the way "
        "is where samples are about as many as dimensions and λ = 0.01 is far too small: with λ by "
        "GCV (last α) there is none."
    )


REPRODUCTION = Reproduction(
    "thesis-figure3.6",
    "Fed3R-Sync by round: immune to the split",
    "Thesis, figures 3.6 and 3.7 (100 clients, 10 per round, Dirichlet by client; final value of "
    "table 3.5)",
    ("cifar100", "cub200"),
    1,
    run,
    conclusion,
)

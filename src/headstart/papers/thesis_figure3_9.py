"""Thesis, figure 3.9: Fed3R-Sync with 10, 20 or 50 clients per round, with and without replacement.

With replacement a client drawn again sends zeros; the end is the same, it only takes longer.
"""

from __future__ import annotations

from collections.abc import Sequence

from headstart.data.heterogeneity import rounds_to_see
from headstart.data.partition import dirichlet_client
from headstart.federation.grouped import Grouped
from headstart.papers.common import Case, cases, federation, lattice_bound, solve_head
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import ResultCollector, Row, find_row, settings_of
from headstart.papers.thesis_figure3_6 import HEAD, running
from headstart.progress import Progress

CLIENTS, ALPHA = 100, 0.0
PLANS = ((10, False), (20, False), (50, False), (10, True))
DISTINCT = "distinct totals over all plans"


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    results = ResultCollector()
    for case in cases(task):
        for seed in range(task.seeds):
            ends = {
                one_plan(case, size, again, seed, results, task.progress) for size, again in PLANS
            }
            results.add(DISTINCT, case.name, len(ends), "totals")
    rows = results.rows()
    return [_with_paper(row) for row in rows]


def one_plan(
    case: Case, size: int, again: bool, seed: int, results: ResultCollector, progress: Progress
) -> str:
    """Add rounds and accuracies until all have answered; return the final total's digest."""
    split = dirichlet_client(case.train.labels, CLIENTS, alpha=ALPHA, seed=seed)
    sync = Grouped(federation(case.train, split, seed), size, replace=again, seed=seed)
    rounds = sum(1 for _ in sync.groups(sync.clients))
    name = f"κ = {size}, {'with' if again else 'without'} replacement"
    bound = max(lattice_bound(case.train), lattice_bound(case.test))
    digest = ""
    for number, total in enumerate(running(sync, bound), 1):
        if again and number in (-(-rounds // 4), -(-rounds // 2)):
            part = "a quarter" if number <= -(-rounds // 4) else "half"
            results.add(f"{name}: after {part}", case.name, case.accuracy(solve_head(HEAD, total)))
        if number == rounds:
            results.add(f"{name}: at the end", case.name, case.accuracy(solve_head(HEAD, total)))
            digest = str(total.digest())
        progress(f"{case.name}, {name}", number, rounds)
    results.add(f"{name}: rounds", case.name, rounds, "rounds")
    return digest


def _with_paper(row: Row) -> Row:
    """The thesis's rounds: K/κ exactly without replacement, table 3.6 with it."""
    published = {f"κ = {size}, without replacement: rounds": CLIENTS / size for size, _ in PLANS}
    published["κ = 10, with replacement: rounds"] = 50.0
    published[DISTINCT] = 1.0
    return Row(row.what, row.setting, published.get(row.what), row.ours, row.unit, row.note)


def conclusion(rows: Sequence[Row]) -> str:
    """Return one sentence on what the rows show."""
    parts = []
    for name in settings_of(rows):
        same = find_row(rows, DISTINCT, name)
        half = find_row(rows, "κ = 10, with replacement: after half", name)
        end = find_row(rows, "κ = 10, with replacement: at the end", name)
        if same and half and end:
            word = "one total" if same.mean == 1 else f"{same.mean:g} totals"
            parts.append(
                f"{name}: all plans end in {word}; with replacement, half of the rounds already "
                f"give {half.mean:.1f} of the final {end.mean:.1f}"
            )
    expected = rounds_to_see(CLIENTS, 10, (1.0,))[0]
    return (
        "; ".join(parts) + f". Rounds with replacement are one draw per seed; their expectation is "
        f"{expected:.1f}, the thesis prints 50 ± 12."
    )


REPRODUCTION = Reproduction(
    "thesis-figure3.9",
    "Fed3R-Sync: group size and sampling with replacement",
    "Thesis, figure 3.9 (curves on iNaturalist there; rounds of table 3.6)",
    ("cifar100", "cub200"),
    1,
    run,
    conclusion,
)

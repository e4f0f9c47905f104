"""FedCOF, figure 5: more clients, milder splits, and several means per class help the estimate.

The paper gives curves; its one number is +2.6 from a second mean with 10 clients.
"""

from __future__ import annotations

from collections.abc import Sequence

from headstart.data.partition import dirichlet
from headstart.heads.fedcof import FedCOF
from headstart.heads.fedncm import FedNCM
from headstart.papers.common import Case, cases, federation, fit_head
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import ResultCollector, Row, find_row, settings_of

CLIENTS, ALPHAS = (10, 20, 50, 100), (0.05, 0.1, 0.5, 1.0)
FEW, MEANS = (10, 20, 50), (1, 2, 5)
GAIN = "a second mean, 10 clients"


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    results = ResultCollector()
    jobs = len(CLIENTS) * len(ALPHAS) + len(FEW) * (len(MEANS) - 1)
    for case in cases(task):
        for seed in range(task.seeds):
            done = 0
            for clients, alpha, means in _settings():
                value = accuracy(case, clients, alpha, means, seed)
                results.add(_name(clients, alpha, means), case.name, value)
                task.progress(f"{case.name} {seed + 1}/{task.seeds}", done := done + 1, jobs)
        ncm = FedNCM().solve(FedNCM().measure(case.train.features, case.train.labels))
        results.add("FedNCM, any split", case.name, case.accuracy(ncm))
    rows = results.rows()
    return rows + [_gain(rows, name) for name in settings_of(rows)]


def _settings() -> list[tuple[int, float, int]]:
    grid = [(clients, alpha, 1) for clients in CLIENTS for alpha in ALPHAS]
    return grid + [(clients, 0.1, means) for clients in FEW for means in MEANS[1:]]


def _name(clients: int, alpha: float, means: int) -> str:
    several = f", {means} means" if means > 1 else ""
    return f"{clients} clients, α = {alpha:g}{several}"


def accuracy(case: Case, clients: int, alpha: float, means: int, seed: int) -> float:
    split = dirichlet(case.train.labels, clients, alpha=alpha, seed=seed)
    head = FedCOF(shrinkage=0.1, means=means)
    return case.accuracy(fit_head(federation(case.train, split, seed), head))


def _gain(rows: Sequence[Row], name: str) -> Row:
    first, two = (find_row(rows, _name(10, 0.1, means), name) for means in (1, 2))
    gains = [b - a for a, b in zip(first.ours, two.ours, strict=True)] if first and two else [0.0]
    return Row(GAIN, name, 2.6, tuple(gains), "points")


def conclusion(rows: Sequence[Row]) -> str:
    """Return one sentence on what the rows show."""
    parts = []
    for name in settings_of(rows):
        few, many = (find_row(rows, _name(clients, 0.1, 1), name) for clients in (10, 100))
        rough, mild = (find_row(rows, _name(10, alpha, 1), name) for alpha in (0.05, 1.0))
        gain = find_row(rows, GAIN, name)
        if few and many and rough and mild and gain:
            gains = (many.mean - few.mean, mild.mean - rough.mean, gain.mean)
            texts = ("10 → 100 clients", "α 0.05 → 1 with 10 clients", "a second mean with them")
            each = ", ".join(f"{text} {g:+.1f}" for text, g in zip(texts, gains, strict=True))
            word = "all three help, as in the paper" if min(gains) > 0 else "not all three help"
            parts.append(f"{name}: {each}: {word}")
    return "; ".join(parts) + ". The paper draws curves; its one number is the last row's."


REPRODUCTION = Reproduction(
    "fedcof-figure5",
    "Clients, heterogeneity and several means",
    "FedCOF, figure 5 (curves; γ = 0.1, Dirichlet by class)",
    ("cub200", "cifar100"),
    3,
    run,
    conclusion,
)

"""FedCOF, figure 9: counts with noise on them. The paper gives curves (CIFAR-100, SqueezeNet)."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.heads.fedcof import FedCOF
from headstart.papers.common import cases, collect, fedcof_clients, fit_head
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import ResultCollector, Row, find_row, settings_of
from headstart.statistics.client_means import NOISES

EPSILONS = (0.1, 0.3, 0.5, 0.7, 0.9)
CLEAN, COUNT = "true counts", "mean count per class and client"


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    heads = {CLEAN: FedCOF()}
    for kind in NOISES:
        heads |= {f"{kind}, ε = {eps:g}": FedCOF(noise=(kind, eps)) for eps in EPSILONS}
    results = ResultCollector()
    for case in cases(task):
        for seed in range(task.seeds):
            simulator = fedcof_clients(case, seed)
            results.add(
                COUNT, case.name, collect(simulator, FedCOF()).statistic.counts.mean(), "samples"
            )
            for done, (name, head) in enumerate(heads.items(), 1):
                results.add(name, case.name, case.accuracy(fit_head(simulator, head)))
                task.progress(f"{case.name} {seed + 1}/{task.seeds}", done, len(heads))
    return sorted(results.rows(), key=lambda row: row.unit != "%")


def conclusion(rows: Sequence[Row]) -> str:
    """Return one sentence on what the rows show."""
    parts = []
    for name in settings_of(rows):
        clean, count = (find_row(rows, what, name) for what in (CLEAN, COUNT))
        if clean and count:
            lost = {kind: _worst(rows, kind, name) - clean.mean for kind in NOISES}
            each = ", ".join(f"{kind} {points:+.1f}" for kind, points in lost.items())
            parts.append(f"{name} (counts of {count.mean:.1f} on average): at worst {each}")
    return (
        "; ".join(parts) + ". The paper (CIFAR-100, counts of about 17): a slight drop as ε falls. "
        "Uniform noise is in proportion to a count; Gaussian and Laplace noise are not, so they "
        "drown small counts. This is no differential privacy: the means are sent as they are."
    )


def _worst(rows: Sequence[Row], kind: str, name: str) -> float:
    return min(row.mean for row in rows if row.setting == name and row.what.startswith(kind))


REPRODUCTION = Reproduction(
    "fedcof-figure9",
    "Noisy class counts",
    "FedCOF, figure 9 (the paper: CIFAR-100, SqueezeNet; 100 clients, Dirichlet 0.1)",
    ("cub200", "cifar100"),
    3,
    run,
    conclusion,
)

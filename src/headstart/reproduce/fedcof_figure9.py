"""FedCOF, figure 9: counts with noise on them. The paper gives curves (CIFAR-100, SqueezeNet)."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.heads.fedcof import FedCOF
from headstart.progress import Progress
from headstart.reproduce.cases import asked, cases, fedcof_clients, federated
from headstart.reproduce.table import Features, Reproduction, Row, Sheet, found, settings
from headstart.statistics.client_means import NOISES

EPSILONS = (0.1, 0.3, 0.5, 0.7, 0.9)
CLEAN, COUNT = "true counts", "mean count of a class at a client"


def run(features: Features, seeds: int, progress: Progress) -> list[Row]:
    heads = {CLEAN: FedCOF()}
    for kind in NOISES:
        heads |= {f"{kind}, ε = {eps:g}": FedCOF(noise=(kind, eps)) for eps in EPSILONS}
    sheet = Sheet()
    for case in cases(features):
        for seed in range(seeds):
            simulator = fedcof_clients(case, seed)
            sheet.add(
                COUNT, case.name, asked(simulator, FedCOF()).statistic.counts.mean(), "samples"
            )
            for done, (name, head) in enumerate(heads.items(), 1):
                sheet.add(name, case.name, case.accuracy(federated(simulator, head)))
                progress(f"{case.name} {seed + 1}/{seeds}", done, len(heads))
    return sorted(sheet.rows(), key=lambda row: row.unit != "%")


def conclusion(rows: Sequence[Row]) -> str:
    parts = []
    for name in settings(rows):
        clean, count = (found(rows, what, name) for what in (CLEAN, COUNT))
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

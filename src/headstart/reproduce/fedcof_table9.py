"""FedCOF, table 9: how much the shrinkage γ matters. The paper's numbers are SqueezeNet's."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.heads.fedcof import FedCOF
from headstart.progress import Progress
from headstart.reproduce.cases import asked, cases, fedcof_clients, solved
from headstart.reproduce.table import Features, Reproduction, Row, Sheet, settings

GAMMAS = (0.0, 0.01, 0.1, 1.0, 10.0)
CUB = (51.08, 51.07, 51.81, 53.57, 53.50)
PAPER = {(f"γ = {gamma:g}", "cub200"): paper for gamma, paper in zip(GAMMAS, CUB, strict=True)}


def run(features: Features, seeds: int, progress: Progress) -> list[Row]:
    sheet = Sheet()
    for case in cases(features):
        for seed in range(seeds):
            means = asked(fedcof_clients(case, seed), FedCOF()).statistic
            for gamma in GAMMAS:
                head = FedCOF(shrinkage=gamma, ridge=0.01)
                sheet.add(f"γ = {gamma:g}", case.name, case.accuracy(solved(head, means)))
            progress(case.name, seed + 1, seeds)
    return sheet.rows(PAPER)


def conclusion(rows: Sequence[Row]) -> str:
    best = [
        max((row for row in rows if row.setting == name), key=lambda row: row.mean)
        for name in settings(rows)
    ]
    ours = "; ".join(f"{row.setting}: best at {row.what} ({row.mean:.1f})" for row in best)
    return (
        f"{ours}. The paper (SqueezeNet, d = 512): best at γ = 1 on CUB-200, 2.5 above γ = 0. "
        "Compare the shape, not the accuracy: γ is in units of a feature's variance, and "
        "MobileNetV2's is another."
    )


REPRODUCTION = Reproduction(
    "fedcof-table9",
    "The shrinkage γ",
    "FedCOF, table 9 (the paper: SqueezeNet; ours: MobileNetV2; 100 clients, Dirichlet 0.1)",
    ("cub200", "cifar100"),
    3,
    run,
    conclusion,
)

"""Thesis, table 3.11: normalization under global class imbalance.

Variants keep, of each class: A half; B 25% or 75%; C 20, 40, 60 or 80%; D 5, 15, …, 95%, the
classes in random groups of equal number. Clients hold one class each (Dirichlet α = 0).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.data.partition import dirichlet_client
from headstart.heads.fed3r import Fed3R
from headstart.labels import Labels
from headstart.papers.common import cases, collect, federation, solve_head
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import ResultCollector, Row, find_row, settings_of

CLIENTS = 100
VARIANTS = {
    "A": (0.5,),
    "B": (0.25, 0.75),
    "C": (0.2, 0.4, 0.6, 0.8),
    "D": tuple(share / 100 for share in range(5, 100, 10)),
}
PAPER = {
    ("A, normalized", "cifar100"): 56.0,
    ("A, not normalized", "cifar100"): 56.0,
    ("B, normalized", "cifar100"): 53.5,
    ("B, not normalized", "cifar100"): 44.7,
    ("C, normalized", "cifar100"): 55.0,
    ("C, not normalized", "cifar100"): 48.7,
    ("D, normalized", "cifar100"): 49.5,
    ("D, not normalized", "cifar100"): 44.0,
}


def imbalanced(labels: Labels, shares: Sequence[float], seed: int) -> NDArray[np.intp]:
    """The samples a variant keeps; at least one of each class."""
    rng = np.random.default_rng(seed)
    groups = np.array_split(rng.permutation(np.unique(labels)), len(shares))
    kept = []
    for share, group in zip(shares, groups, strict=True):
        for label in group:
            rows = rng.permutation(np.flatnonzero(labels == label))
            kept.append(rows[: max(1, round(share * len(rows)))])
    return np.sort(np.concatenate(kept))


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    results = ResultCollector()
    for case in cases(task):
        for seed in range(task.seeds):
            for done, (variant, shares) in enumerate(VARIANTS.items(), 1):
                train = case.train.subset(imbalanced(case.train.labels, shares, seed))
                split = dirichlet_client(train.labels, CLIENTS, alpha=0, seed=seed)
                total = collect(federation(train, split, seed), Fed3R()).statistic
                for normalize in (True, False):
                    model = solve_head(Fed3R(ridge=0.01, normalize=normalize), total)
                    name = f"{variant}, {'' if normalize else 'not '}normalized"
                    results.add(name, case.name, case.accuracy(model))
                task.progress(f"{case.name} {seed + 1}/{task.seeds}", done, len(VARIANTS))
    return results.rows(PAPER)


def conclusion(rows: Sequence[Row]) -> str:
    """Return one sentence on what the rows show."""
    parts = []
    for name in settings_of(rows):
        gains = []
        for variant in VARIANTS:
            with_, without = (
                find_row(rows, f"{variant}, {word}normalized", name) for word in ("", "not ")
            )
            if with_ and without:
                gains.append(f"{variant} {with_.mean - without.mean:+.1f}")
        parts.append(f"{name}: normalizing gives {', '.join(gains)}")
    return (
        "; ".join(parts) + " (paper, CIFAR-100: A 0.0, B +8.8, C +6.3, D +5.5). The thesis trains "
        "on randomly resized and cropped images, ours are whole images at 224 px, so compare the "
        "gains."
    )


REPRODUCTION = Reproduction(
    "thesis-table3.11",
    "Normalization under class imbalance",
    "Thesis, table 3.11 (λ = 0.01, 100 clients, α = 0)",
    ("cifar100", "cub200"),
    3,
    run,
    conclusion,
)

"""FedCOF, table 3: training-free heads over 100 clients, Dirichlet 0.1 by class, MobileNetV2.

Every seed is another split, and every number comes through the federation's wire. The communication
is given three times: what the paper prints, the paper's formula on our split, and bytes measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.heads.fed3r import Fed3R
from headstart.heads.fedcof import FedCOF
from headstart.heads.fedncm import FedNCM
from headstart.labels import Labels
from headstart.papers.common import Case, cases, collect, fedcof_clients, solve_head
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import ResultCollector, Row, find_row, settings_of

MEGABYTE = 1e6
ORDER = ("%", "MB", "classes")
PAPER = {
    ("FedNCM", "cifar100"): 55.6,
    ("Fed3R", "cifar100"): 62.7,
    ("FedCOF", "cifar100"): 63.5,
    ("FedCOF oracle", "cifar100"): 63.9,
    ("FedNCM", "cub200"): 58.3,
    ("Fed3R", "cub200"): 58.6,
    ("FedCOF", "cub200"): 62.5,
    ("FedCOF oracle", "cub200"): 63.1,
    ("FedNCM, sent", "cifar100"): 14.8,
    ("Fed3R, sent", "cifar100"): 670.1,
    ("FedCOF, sent", "cifar100"): 14.8,
    ("FedCOF oracle, sent", "cifar100"): 18823.5,
    ("FedNCM, sent", "cub200"): 12.0,
    ("Fed3R, sent", "cub200"): 667.3,
    ("FedCOF, sent", "cub200"): 12.0,
    ("FedCOF oracle, sent", "cub200"): 15432.7,
}
PAPER |= {(f"{what[:-6]}, formula", on): mb for (what, on), mb in PAPER.items() if "sent" in what}
HELD, CAPPED = "held per client", "held per client, another Dirichlet split"
# The paper's bytes over d = 1280 numbers per class and 100 clients.
PAPER |= {
    (what, on): PAPER["FedCOF, sent", on] * MEGABYTE / (4 * 1280 * 100)
    for what in (HELD, CAPPED)
    for on in ("cifar100", "cub200")
}
ORACLE = Fed3R(ridge=0.01, scatter="within", shrinkage=0.1)


def numbers(head: str, d: int, held: int) -> int:
    """What the paper counts for a client with `own` classes: d² for a covariance, d for a mean."""
    return {"Fed3R": d * d, "FedCOF oracle": held * d * d}.get(head, 0) + d * held


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    results = ResultCollector()
    for case in cases(task):
        for seed in range(task.seeds):
            one_seed(case, seed, results)
            task.progress(case.name, seed + 1, task.seeds)
    by_kind = sorted(
        results.rows(PAPER), key=lambda row: (ORDER.index(row.unit), "sent" in row.what)
    )
    return sorted(by_kind, key=lambda row: settings_of(by_kind).index(row.setting))


def one_seed(case: Case, seed: int, results: ResultCollector) -> None:
    simulator = fedcof_clients(case, seed)
    held = [len(np.unique(client.samples.labels)) for client in simulator.data.values()]
    second = collect(simulator, Fed3R())
    totals: dict[str, tuple[Any, Any, int]] = {
        "Fed3R": (Fed3R(), second.statistic, second.up),
        "FedCOF oracle": (ORACLE, second.statistic, second.up),
    }
    others: dict[str, Any] = {"FedNCM": FedNCM(), "FedCOF": FedCOF(shrinkage=0.1, ridge=0.01)}
    for name, head in others.items():
        answer = collect(simulator, head)
        totals[name] = (head, answer.statistic, answer.up)
    for name in ("FedNCM", "Fed3R", "FedCOF", "FedCOF oracle"):
        head, total, sent = totals[name]
        formula = 4 * sum(numbers(name, case.train.dimension, k) for k in held)
        results.add(name, case.name, case.accuracy(solve_head(head, total)))
        results.add(f"{name}, formula", case.name, formula / MEGABYTE, "MB")
        results.add(f"{name}, sent", case.name, sent / MEGABYTE, "MB")
    results.add(HELD, case.name, float(np.mean(held)), "classes")
    results.add(CAPPED, case.name, capped_classes(case.train.labels, seed), "classes")


def conclusion(rows: Sequence[Row]) -> str:
    """Accuracy, then why bytes differ: the classes a client holds."""
    about = [f"{_about(rows, name)} {_held(rows, name)}".strip() for name in settings_of(rows)]
    return "\n\n".join(about)


def _held(rows: Sequence[Row], name: str) -> str:
    ours, other = (find_row(rows, what, name) for what in (HELD, CAPPED))
    if ours is None or other is None or ours.paper is None:
        return ""
    return (
        f"The paper's bytes are those of {ours.paper:.1f} classes per client, ours of "
        f"{ours.mean:.1f}. Hypothesis: its Dirichlet split draws the samples of a class at random "
        "and gives none to a client above the mean size, as much code does, which gives "
        f"{other.mean:.1f}; ours loses no share to chance. Sums do not depend on it. The oracle is "
        "solved from Fed3R's own sums: the same message."
    )


def capped_classes(labels: Labels, seed: int) -> float:
    """Return the classes per client of much code's split: multinomial, with a cap on sizes."""
    rng = np.random.default_rng(seed)
    held: list[NDArray[np.int64]] = []
    sizes = np.zeros(100)
    for count in np.unique(labels, return_counts=True)[1]:
        open_ = sizes < len(labels) / 100
        shares = rng.dirichlet(np.full(100, 0.1)) * (open_ if open_.any() else 1)
        held.append(rng.multinomial(count, shares / shares.sum()))
        sizes += held[-1]
    return float((np.array(held) > 0).sum(axis=0).mean())


def _about(rows: Sequence[Row], name: str) -> str:
    heads = ("FedNCM", "Fed3R", "FedCOF", "FedCOF oracle")
    ncm, fed3r, cof, oracle = (find_row(rows, head, name) for head in heads)
    if not (ncm and fed3r and cof and oracle):
        return ""
    text = f"{name}: FedCOF is {cof.mean - fed3r.mean:+.1f} from Fed3R"
    if cof.paper is None or fed3r.paper is None:
        return f"{text}, {oracle.mean - cof.mean:.1f} below its oracle."
    text += (
        f" (paper {cof.paper - fed3r.paper:+.1f}), {oracle.mean - cof.mean:.1f} below its oracle"
    )
    away = [row.difference or 0.0 for row in (ncm, fed3r, cof, oracle)]
    if max(map(abs, away)) <= 1.5:
        return f"{text}; every head is within 1.5 points of the paper."
    return (
        f"{text}. Accuracies are {min(away):+.1f} to {max(away):+.1f} points from the paper's. "
        f"FedNCM, which has no setting at all, is {away[0]:+.1f} away too: that points to the "
        "features, not to the heads. Hypothesis (the paper does not state its preprocessing): "
        "another crop, resize or weight file of MobileNetV2."
    )


REPRODUCTION = Reproduction(
    "fedcof-table3",
    "Training-free heads over 100 clients",
    "FedCOF, table 3 (MobileNetV2 columns; Dirichlet 0.1 by class, γ = 0.1, λ = 0.01)",
    ("cifar100", "cub200"),
    5,
    run,
    conclusion,
)

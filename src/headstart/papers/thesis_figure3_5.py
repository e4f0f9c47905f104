"""Thesis, figure 3.5: ridge on random features approaches kernel ridge as D grows.

Kernel ridge sees at most 40 samples per class, as in the thesis; random features see all samples,
and those 40, which shows the approximation itself. Nothing is normalized. The thesis draws curves
(Google Landmarks); the bandwidth here is 1.5 root mean squared distances (`bandwidth_of`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headstart.data.datasets import Dataset
from headstart.heads.fed3r import Fed3R
from headstart.heads.krr import KernelRidge
from headstart.heads.random_features import Fed3RRandomFeatures, bandwidth_of
from headstart.heads.shared_variances import SharedVariances
from headstart.papers.common import Case, cases, solve_head
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import ResultCollector, Row, find_row, settings_of
from headstart.progress import Progress

DIMENSIONS = (250, 500, 1000, 2000, 4000)
PER_CLASS, FACTOR, RIDGE = 40, 1.5, 0.01


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    results = ResultCollector()
    for case in cases(task):
        for seed in range(task.seeds):
            one_seed(case, seed, results, task.progress)
    return results.rows()


def one_seed(case: Case, seed: int, results: ResultCollector, progress: Progress) -> None:
    few = at_most(case.train, PER_CLASS, seed)
    ask = SharedVariances("spherical")
    bandwidth = bandwidth_of(ask.measure(case.train.features, case.train.labels), FACTOR)
    kernel = KernelRidge(bandwidth, RIDGE, per_class=PER_CLASS, seed=seed)
    results.add(
        _few("kernel ridge"), case.name, case.accuracy(kernel.fit(few.features, few.labels))
    )
    for name, train in ((_few("ridge, linear"), few), ("ridge, linear", case.train)):
        plain = Fed3R(ridge=RIDGE, normalize=False)
        model = solve_head(plain, plain.measure(train.features, train.labels))
        results.add(name, case.name, case.accuracy(model))
    for done, dimension in enumerate(DIMENSIONS, 1):
        head = Fed3RRandomFeatures(dimension, bandwidth, RIDGE, seed, normalize=False)
        for name, train in ((_few(f"D = {dimension}"), few), (f"D = {dimension}", case.train)):
            model = solve_head(head, head.measure(train.features, train.labels))
            results.add(name, case.name, case.accuracy(model))
        progress(case.name, done, len(DIMENSIONS))


def _few(name: str) -> str:
    return f"{name}, {PER_CLASS} per class"


def at_most(data: Dataset, per_class: int, seed: int) -> Dataset:
    """Up to `per_class` samples of each class."""
    order = np.random.default_rng(seed).permutation(len(data))
    shown = data.labels[order]
    kept = [order[shown == label][:per_class] for label in data.classes]
    return data.subset(np.sort(np.concatenate(kept)))


def conclusion(rows: Sequence[Row]) -> str:
    """Return one sentence on what the rows show."""
    parts = []
    for name in settings_of(rows):
        kernel = find_row(rows, _few("kernel ridge"), name)
        few = [find_row(rows, _few(f"D = {dimension}"), name) for dimension in DIMENSIONS]
        if kernel and all(few):
            gaps = ", ".join(f"{row.mean - kernel.mean:+.1f}" for row in few if row)
            parts.append(
                f"{name}: on the same samples, D = {DIMENSIONS} are {gaps} from kernel ridge"
            )
    return (
        "; ".join(parts) + ". The thesis: performance rises with D as kernel ridge is better "
        f"approximated. Bandwidth {FACTOR} root mean squared distances, λ = {RIDGE:g}."
    )


REPRODUCTION = Reproduction(
    "thesis-figure3.5",
    "Random features against kernel ridge",
    "Thesis, figure 3.5 (curves; Google Landmarks there)",
    ("cifar100", "cub200"),
    1,
    run,
    conclusion,
)

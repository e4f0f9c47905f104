"""The best training-free head that we can choose without a test label.

Everything is solved from sums. A candidate is a representation (features of MobileNetV2, of
EfficientNet-Lite2, or of both side by side; each sample mapped alone: as it is, to unit length, or
its square root to unit length) and a head on it: linear, or ridge regression on random features.
The choice is by federated validation (15% of each client held out): among linear heads, then among
bandwidths and λ of a few random features, then linear against many of these. The test part is used
once, for the candidate that was chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.datasets import Dataset
from headstart.data.partition import Partition, dirichlet
from headstart.errors import DataError
from headstart.heads.fed3r import Fed3R
from headstart.heads.lda import LDA
from headstart.heads.random_features import Fed3RRandomFeatures, bandwidth_of
from headstart.papers.common import solve_head
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.sources import FEATURE_SETS
from headstart.papers.table import ResultCollector, Row, find_row, settings_of
from headstart.papers.validation import Trial, trial
from headstart.progress import Progress

CLIENTS, ALPHA, HELD_OUT = 100, 0.1, 0.15
SEARCH, FINAL = 2_000, 6_000  # random features to choose with, and to end with
FACTORS = (1.0, 1.5, 2.0, 3.0)
PAPER = {"cifar100": 67.5, "cub200": 63.1}  # thesis table 3.5, RF(10k); FedCOF table 3, oracle
CHOSEN, PLAIN = "chosen by validation", "Fed3R as in the papers (MobileNetV2, λ = 0.01)"
Floats = NDArray[np.floating]
FeatureSets = Mapping[str, Dataset]  # of one data set: the same samples in the same order


def unit(z: Floats) -> Floats:
    """Return rows of length 1."""
    return z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)


def root(z: Floats) -> Floats:
    """Return the signed square roots, as rows of length 1."""
    return unit(np.sign(z) * np.sqrt(np.abs(z)))


MAPS: dict[str, Callable[[Floats], Floats]] = {
    "raw": lambda z: z,
    "unit length": unit,
    "square root": root,
}
LINEAR_HEADS: dict[str, Any] = {
    "ridge, λ by GCV": Fed3R(ridge="gcv"),
    "LDA, OAS": LDA(),
    **{f"LDA, {part:g}": LDA(shrinkage=part) for part in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)},
}
RANDOM_HEADS: dict[str, Any] = {
    f"λ = {ridge:g}": Fed3R(ridge=ridge, scatter="within")
    for ridge in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
}


@dataclass(frozen=True)
class Representation:
    """Which feature sets stand side by side, each after the same map."""

    names: tuple[str, ...]
    map: str

    def __str__(self) -> str:
        return f"{' + '.join(FEATURE_SETS[name].title for name in self.names)}, {self.map}"

    def of(self, sets: FeatureSets) -> Dataset:
        """Return the samples so represented; each client does this alone."""
        parts = [MAPS[self.map](sets[name].features) for name in self.names]
        features = np.concatenate(parts, axis=1).astype(np.float32)
        return replace(sets[self.names[0]], features=features)


@dataclass(frozen=True, eq=False)
class Choice:
    """A candidate: its text, its accuracy on the held-out samples, and what it is made of."""

    text: str
    validation: float
    representation: Representation
    head: Any
    total: Any
    random: Fed3RRandomFeatures | None = None


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    results = ResultCollector()
    for name, train, test in _data_sets(task.data):
        for seed in range(task.seeds):
            _one_seed(name, train, test, seed, results, task.progress)
    return results.rows({(CHOSEN, name): number for name, number in PAPER.items()})


def _data_sets(data: FeatureSets) -> Iterator[tuple[str, FeatureSets, FeatureSets]]:
    """Yield each data set's name with the training and test parts of its feature sets.

    Refuses feature sets whose samples are not the same.
    """
    for name in dict.fromkeys(FEATURE_SETS[need].dataset for need in data):
        sets = {
            need: dataset for need, dataset in data.items() if FEATURE_SETS[need].dataset == name
        }
        first, *others = sets.values()
        for other in others:
            pairs = ((first.labels, other.labels), (_tested(first), _tested(other)))
            if not all(np.array_equal(*pair) for pair in pairs):
                raise DataError(f"{name}: expected the same samples in {' and '.join(sets)}")
        yield (
            name,
            {need: dataset.train_part() for need, dataset in sets.items()},
            {need: dataset.test_part() for need, dataset in sets.items()},
        )


def _tested(data: Dataset) -> NDArray[np.bool_]:
    return np.zeros(len(data), np.bool_) if data.test is None else data.test


def _one_seed(
    name: str,
    train: FeatureSets,
    test: FeatureSets,
    seed: int,
    results: ResultCollector,
    progress: Progress,
) -> None:
    search = Search(name, train, seed, results, progress)
    chosen = search.choose()
    if name in train:  # the features of MobileNetV2
        plain = Fed3R(ridge=0.01)
        model = solve_head(plain, plain.measure(train[name].features, train[name].labels))
        accuracy = 100 * model.accuracy(test[name].features, test[name].labels)
        results.add(PLAIN, name, accuracy)
    results.add(CHOSEN, name, search.test(chosen, test), "%", chosen.text)


@dataclass(frozen=True, eq=False)
class Search:
    """Federated validation on one data set; every candidate's accuracy is collected."""

    name: str
    train: FeatureSets
    seed: int
    results: ResultCollector
    progress: Progress

    def choose(self) -> Choice:
        """Return the candidate of the highest accuracy on the held-out samples."""
        linear = self._linear()
        best = max(linear, key=_validation)
        roots = Representation(best.representation.names, "square root")
        spread = next(variant.total for variant in linear if variant.representation == roots)
        return max(best, self._random(roots, spread), key=_validation)

    def _linear(self) -> list[Choice]:
        """Return every representation with every linear head."""
        choices = []
        representations = self._representations()
        for done, representation in enumerate(representations, 1):
            clients = self._clients(representation)
            total = clients.total(Fed3R())
            choices += self._tried(clients, total, LINEAR_HEADS, representation)
            self.progress(f"{self.name}: linear heads", done, len(representations))
        return choices

    def _representations(self) -> list[Representation]:
        """Return every feature set alone, and all of them side by side, under every map."""
        groups: list[tuple[str, ...]] = [(name,) for name in self.train]
        if len(groups) > 1:
            groups.append(tuple(self.train))
        return [Representation(group, name) for group in groups for name in MAPS]

    def _random(self, representation: Representation, spread: Any) -> Choice:
        """Return the best of many random features; `spread` is the total that bandwidths are of.

        Bandwidth and λ are chosen with few of them, and λ once more with many.
        """
        clients = self._clients(representation)

        def best(dimension: int, factor: float) -> Choice:
            head = Fed3RRandomFeatures(dimension, bandwidth_of(spread, factor), seed=self.seed)
            about = f"{dimension:,} random features of {factor:g} distances"
            total = clients.total(head)
            choices = self._tried(clients, total, RANDOM_HEADS, representation, head, about)
            return max(choices, key=_validation)

        few = {}
        for done, factor in enumerate(FACTORS, 1):
            few[factor] = best(SEARCH, factor).validation
            self.progress(f"{self.name}: random features", done, len(FACTORS))
        return best(FINAL, max(few, key=few.__getitem__))

    def _tried(
        self,
        clients: Trial,
        total: Any,
        heads: Mapping[str, Any],
        representation: Representation,
        random: Fed3RRandomFeatures | None = None,
        about: str = "",
    ) -> list[Choice]:
        """Solve every head from one total, and collect its accuracy on the held-out samples."""
        models = [_model(head, total, random) for head in heads.values()]
        rates = clients.accuracies(models)
        place = f"{representation}; {about}" if about else str(representation)
        each = ", ".join(f"{name}: {rate:.1f}" for name, rate in zip(heads, rates, strict=True))
        self.results.add(f"held-out: {place}", self.name, max(rates), "%", each)
        return [
            Choice(f"{place}; {name}", rate, representation, head, total, random)
            for (name, head), rate in zip(heads.items(), rates, strict=True)
        ]

    def _clients(self, representation: Representation) -> Trial:
        train = representation.of(self.train)
        return trial(train, self._split(train), HELD_OUT, self.seed)

    def _split(self, train: Dataset) -> Partition:
        return dirichlet(train.labels, CLIENTS, alpha=ALPHA, seed=self.seed)

    def test(self, choice: Choice, test: FeatureSets) -> float:
        """Return the accuracy on the test part, with the held-out parts added to the sum."""
        clients = self._clients(choice.representation)
        total = clients.whole(choice.random or Fed3R(), choice.total)
        model = _model(choice.head, total, choice.random)
        data = choice.representation.of(test)
        return 100 * model.accuracy(data.features, data.labels)


def _validation(choice: Choice) -> float:
    return choice.validation


def _model(head: Any, total: Any, random: Fed3RRandomFeatures | None) -> Any:
    model = solve_head(head, total)
    return replace(model, feature_map=random.feature_map) if random else model


def conclusion(rows: Sequence[Row]) -> str:
    """Return one sentence on what the rows show."""
    parts = []
    for name in settings_of(rows):
        row, plain = (find_row(rows, what, name) for what in (CHOSEN, PLAIN))
        if row:
            best = "" if row.paper is None else f", {row.difference:+.1f} from the papers' best"
            gain = f", {row.mean - plain.mean:+.1f} from Fed3R" if plain else ""
            parts.append(f"{name}: {row.mean:.1f} ({row.note}){gain}{best}")
    return "; ".join(parts) + "."


REPRODUCTION = Reproduction(
    "best-training-free",
    "The best training-free head, chosen without test labels",
    "Ours; the papers' best training-free MobileNetV2 results beside it (thesis table 3.5, "
    "FedCOF table 3)",
    ("cifar100", "cifar100-lite2", "cub200", "cub200-lite2"),
    1,
    run,
    conclusion,
)

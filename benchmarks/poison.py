"""One bad client in a hundred, at every cap on its samples: what can it cost?

    python benchmarks/poison.py [--quick] [--json PATH]

Ninety-nine clients hold 99% of the training samples; the hundredth claims n samples, from its fair
share to the largest cap. Features are within ±ρ, and samples within the norm ρ₂ that the contract
states (the largest of the training data). Two searches, and the accuracy of Fed3R on the test set
after each (λ = 0.01, normalized):

legal     n real samples within ρ and ρ₂, the worst of all forms × sizes: class means under the next
          class's label, alone and with random signs added and taken away; the head's own
          directions, reversed, or under the next class's label; random signs, which drown the
          rest; copies of one feature; other clients' samples, shuffled. Sizes are 1, 0.3, 0.1 and
          0.03 of the largest that is legal.
message   any statistic that admission lets in: the three worst legal ones, pushed (A and B larger;
          B alone larger; A larger on its diagonal) as far as they are accepted, by bisection.

Exit code 1: a head could not be solved, or a message costs more than the worst legal samples of its
number (by more than 0.2 points; below chance nothing is left to lose).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import headstart as hs
from headstart.data.datasets import Dataset, load
from headstart.deploy.admission import Contract, UploadRejected, UploadValidator
from headstart.errors import SolveError
from headstart.federation import steps
from headstart.statistics.exact import Lattice
from headstart.statistics.parts import Gram

SIZES, CAPS, STEPS, SLACK = (1.0, 0.3, 0.1, 0.03), (1, 10, 100, 1000), 6, 0.2
console = Console(stderr=True)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Row:
    """One cap: accuracies in percent."""

    data: str
    mode: str
    norm: float
    samples: int
    clean: float
    legal: float
    form: str
    message: float
    push: str
    chance: float

    @property
    def ok(self) -> bool:
        return max(self.message, self.chance) >= max(self.legal, self.chance) - SLACK


@dataclass(frozen=True)
class Samples:
    """`times[i]` copies of the i-th vector, of the class `labels[i]`."""

    form: str
    vectors: Array
    labels: Array
    times: Array


class World:
    """The honest total, the agreed bounds, and what a head scores with one more upload."""

    def __init__(self, name: str, data: Dataset, bound: float, exact: bool) -> None:
        train, self.test = data.train_part(), data.test_part()
        rng = np.random.default_rng(0)
        kept = rng.permutation(len(train.labels))[: round(0.99 * len(train.labels))]
        self.z, self.y = train.features[kept].astype(np.float64), train.labels[kept]
        self.name, self.bound, self.exact, self.head = name, bound, exact, hs.Fed3R()
        self.norm = float(np.linalg.norm(train.features, axis=1).max())
        self.share = max(1, len(train.labels) // 100)
        self.total = self.head.measure(self.z, self.y, exact=exact, bound=bound)
        self.classes = self.total.classes
        self.weights = self.head.solve(self.total).weights
        self.rng = rng

    def door(self, samples: int) -> UploadValidator:
        step = steps.measure(self.head, exact=self.exact, bound=self.bound)
        largest = None if self.exact else self.bound
        about = {"samples": samples, "largest": largest, "norm": self.norm, "attempts": None}
        return UploadValidator(Contract("poison", step.params, self.total.dimension, **about))

    def accuracy(self, gram: Gram | None = None) -> float:
        """In percent, with this statistic in the total; −1 if nothing can be solved."""
        more = [] if gram is None else [self.statistic(gram)]
        try:
            head = self.head.solve(hs.total([self.total, *more]))
        except SolveError:
            return -1.0
        return 100 * head.accuracy(self.test.features, self.test.labels)

    def statistic(self, gram: Gram) -> hs.Moments:
        return hs.Moments(gram.dimension, (gram,), Lattice(self.bound) if self.exact else None)

    def gram(self, samples: Samples) -> Gram:
        """The statistic of samples, most of which are copies."""
        rows, times = samples.vectors, samples.times.astype(np.float64)
        if self.exact:
            rows = Lattice(self.bound).quantize(rows)
        classes, at = np.unique(samples.labels, return_inverse=True)
        counts, b = np.zeros(len(classes)), np.zeros((len(classes), rows.shape[1]))
        np.add.at(counts, at, times)
        np.add.at(b, at, rows * times[:, None])
        a = (rows * times[:, None]).T @ rows
        kind = np.int64 if self.exact else np.float64
        return Gram(classes, counts.astype(np.int64), np.triu(a).astype(kind), b.astype(kind))


# -- legal samples -------------------------------------------------------------------------------


def legal(world: World, n: int) -> Iterator[Samples]:
    """Every form at every size."""
    classes = world.classes
    means = np.stack([world.z[world.y == c].mean(axis=0) for c in classes])
    after = np.roll(classes, -1)
    d, few = world.z.shape[1], min(n, 64)
    signs = world.rng.choice([-1.0, 1.0], (few, d))
    one = np.zeros((1, d))
    one[0, int(np.argmax(np.abs(world.weights).sum(axis=0)))] = 1.0
    some = world.rng.choice(len(world.z), few)
    spread_out = 0.5 * means.std() * world.rng.choice([-1.0, 1.0], (8, 1, d))
    around = np.concatenate([means + spread_out, means - spread_out]).reshape(-1, d)
    forms = {
        "means, next label": (means, after),
        "means ± signs, next label": (around, np.tile(after, 16)),
        "head, reversed": (-world.weights, classes),
        "head, next label": (world.weights, after),
        "random signs": (signs, world.rng.choice(classes, few)),
        "one feature": (one, classes[:1]),
        "shuffled samples": (world.z[some], world.rng.permutation(world.y[some])),
    }
    for name, (vectors, labels) in forms.items():
        for size in SIZES:
            yield Samples(f"{name} ×{size:g}", size * largest(world, vectors), *spread(labels, n))


def largest(world: World, vectors: Array) -> Array:
    """Each vector, as long as the bounds allow."""
    room = world.bound / np.maximum(np.abs(vectors).max(axis=1), 1e-12)
    length = world.norm / np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
    return vectors * np.minimum(room, length)[:, None] * (1 - 1e-9)


def spread(labels: Array, n: int) -> tuple[Array, Array]:
    """n copies, as even as can be (where n is small, of the first ones only)."""
    times = np.full(len(labels), n // len(labels))
    times[: n % len(labels)] += 1
    return labels, times


# -- any message ---------------------------------------------------------------------------------

PUSHES: dict[str, Callable[[Gram, float], tuple[Array, Array]]] = {
    "A, B ×t": lambda g, t: (g.a * t, g.b * t),
    "B ×t": lambda g, t: (g.a * 1.0, g.b * t),
    "diag A ×t": lambda g, t: (g.a + np.diag(np.diagonal(g.a) * (t - 1)), g.b * 1.0),
}


def pushed(world: World, door: UploadValidator, gram: Gram, push: str) -> tuple[float, Gram] | None:
    """The farthest push that is accepted, and its t; None if none is."""
    low, high, best = 0.0, 3.0, None
    for _ in range(STEPS):
        middle = (low + high) / 2
        changed = _even(gram, *PUSHES[push](gram, 10.0**middle))
        try:
            door.check("a", "poison", world.statistic(changed).to_bytes("float64"))
            low, best = middle, (10.0**middle, changed)
        except UploadRejected:
            high = middle
    return best


def _even(gram: Gram, a: Array, b: Array) -> Gram:
    """In exact mode: whole numbers, diag(A) ≡ Σ B modulo 2."""
    if gram.a.dtype.kind == "i":
        a, b = np.rint(a).astype(np.int64), np.rint(b).astype(np.int64)
        odd = (np.diagonal(a) - b.sum(axis=0)) & 1
        a[np.diag_indices_from(a)] += odd
    return Gram(gram.classes, gram.counts, a, b)


# -- both ----------------------------------------------------------------------------------------


def measured(world: World, n: int, clean: float) -> Row:
    found = []
    for samples in legal(world, n):
        kept = samples.times > 0
        few = Samples(
            samples.form, samples.vectors[kept], samples.labels[kept], samples.times[kept]
        )
        gram = world.gram(few)
        found.append((world.accuracy(gram), samples.form, gram))
    found.sort(key=lambda one: one[0])
    door, worst, push = world.door(n), clean, "none accepted"
    for accuracy, form, gram in found[:3]:
        door.check("a", "poison", world.statistic(gram).to_bytes("float64"))  # legal ones pass
        if accuracy <= worst:
            worst, push = accuracy, f"{form}, as it is"
        for name in PUSHES:
            best = pushed(world, door, gram, name)
            if best is not None and (accuracy := world.accuracy(best[1])) < worst:
                worst, push = accuracy, f"{form}, {name} (t = {best[0]:.3g})"
    mode = "exact" if world.exact else "float"
    lowest, form, _ = found[0]
    chance = 100 / len(world.classes)
    return Row(world.name, mode, world.norm, n, clean, lowest, form, worst, push, chance)


def worlds(quick: bool) -> Iterator[World]:
    digits = load("digits")
    for exact in (False, True):
        yield World("digits", digits, 1.0, exact)
    path = Path(os.environ.get("HEADSTART_DATA", "../shared/data"))
    path = path / "cub200_features" / "cub200_mobilenet_v2.npz"
    if not path.exists():
        console.print(f"CUB-200: no features at {path}; left out")
        return
    if not quick:
        for exact in (False, True):
            yield World("CUB-200", cub(path), 8.0, exact)


def cub(path: Path) -> Dataset:
    with np.load(path, allow_pickle=False) as held:
        features, train = held["features"].astype(np.float32), held["is_train"].astype(bool)
        return Dataset("cub", features, held["label"].astype(np.int64), test=~train)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="digits alone")
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    options = parser.parse_args()
    table = Table("data", "ρ₂", "n", "clean", "worst legal", "worst message", "ok")
    rows = []
    with threadpool_limits(1):
        for world in worlds(options.quick):
            clean = world.accuracy()
            for n in sorted({min(world.share * cap, 100_000) for cap in CAPS}):
                row = measured(world, n, clean)
                rows.append(row)
                console.print(asdict(row))
                table.add_row(
                    f"{row.data}, {row.mode}",
                    f"{row.norm:.3g}",
                    f"{n:,}",
                    f"{clean:.1f}",
                    f"{row.legal:.1f} ({row.form})",
                    f"{row.message:.1f} ({row.push})",
                    "yes" if row.ok else "NO",
                )
    Console(width=140).print(table)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if all(row.ok and row.message >= 0 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

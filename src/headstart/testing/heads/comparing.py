"""Clients to check heads with, and what it means that two statistics are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headstart.errors import SolveError
from headstart.heads.base import Head
from headstart.heads.linear import LinearHead
from headstart.testing.require import near, require

Array = NDArray[Any]
Client = tuple[Array, Array]
Check = Callable[[Any], None]
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "int8": 5e-2}
SIZES = (0, 1, 2, 5, 11, 30, 44)
quick = settings(
    max_examples=15,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def make_clients(
    sizes: Sequence[int] = SIZES, d: int = 12, classes: int = 4, seed: int = 0
) -> list[Client]:
    """(features, labels) of clients with these sizes, drawn from Gaussian classes."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, d))
    clients = []
    for n in sizes:
        y = rng.integers(classes, size=n)
        clients.append((centres[y] + rng.normal(size=(n, d)), y))
    return clients


@st.composite
def federations(draw: st.DrawFn) -> list[Client]:
    """Clients of any size, dimension and number of classes, with integer or text labels."""
    sizes = draw(st.lists(st.integers(0, 20), min_size=2, max_size=6))
    d, classes = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    clients = make_clients([*sizes, 3], d, classes, draw(st.integers(0, 2**16)))
    kind = draw(st.sampled_from([np.int64, np.str_]))
    return [(z, y.astype(kind)) for z, y in clients]


def measure(head: Head, clients: Sequence[Client], **how: Any) -> list[Any]:
    """Return the statistic of each client."""
    return [head.measure(z, y, secret=b"client %d" % k, **how) for k, (z, y) in enumerate(clients)]


def pooled(clients: Sequence[Client]) -> Client:
    """Return the samples of all clients as one."""
    return np.concatenate([z for z, _ in clients]), np.concatenate([y for _, y in clients])


def dealt(z: Array, y: Array, rng: np.random.Generator, most: int = 20) -> list[Client]:
    """The same samples at other clients, of whom every other one has none."""
    of = rng.integers(rng.integers(1, most), size=len(y)) * 2
    return [(z[of == k], y[of == k]) for k in rng.permutation(of.max(initial=0) + 2)]


def one_client(n: int, **how: Any) -> Client:
    """Return one client of `n` random samples."""
    return make_clients((n,), **how)[0]


def values(stat: Any) -> dict[str, Array]:
    """The numbers a statistic stands for, in comparable form."""
    if hasattr(stat, "gram"):
        return {"a": stat.gram(), "b": stat.class_sums(), "g": stat.counts}
    if hasattr(stat, "tables"):
        return {"g": stat.counts, **stat.tables}
    if hasattr(stat, "means"):
        return {"g": stat.counts, "means": stat.means}
    return dict(stat.to_arrays())


def alike(left: Any, right: Any, tolerance: float, what: str) -> None:
    """The same classes, and numbers that agree relative to the largest of each array."""
    if hasattr(left, "means"):
        _same_rows(left, right, tolerance, what)
        return
    require(left.classes.tolist() == right.classes.tolist(), f"{what}: the classes differ")
    mine, theirs = values(left), values(right)
    require(set(mine) == set(theirs), f"{what}: the arrays differ")
    for name, array in mine.items():
        largest = float(np.abs(array).max(initial=0.0))
        near(array, theirs[name], f"{what}: {name}", atol=tolerance * largest)


def _same_rows(left: Any, right: Any, tolerance: float, what: str) -> None:
    """Client means, whose rows may change places when rounded: each has its like in the other."""
    kinds = [sorted(zip(s.labels, s.counts, strict=True)) for s in (left, right)]
    require(kinds[0] == kinds[1], f"{what}: labels and counts of rows differ")
    for label in left.classes:
        mine, two = left.means[left.labels == label], right.means[right.labels == label]
        gaps = np.abs(mine[:, None] - two[None, :]).max(axis=2)
        worst = float(max(gaps.min(axis=0).max(), gaps.min(axis=1).max()))
        allowed = tolerance * float(np.abs(left.means).max())
        require(worst <= allowed, f"{what}: a row of class {label} moved by {worst:.3g}")


def same_digest(left: Any, right: Any, what: str) -> None:
    """Fail if the digests of two statistics differ."""
    require(left.digest() == right.digest(), f"{what}: the digests differ")


def solved(head: Head, stat: Any, dimension: int, what: str) -> LinearHead | None:
    """A head, or None where the method says it cannot (never a NaN, never another exception)."""
    try:
        model = head.solve(stat)
    except SolveError:
        return None
    for name, array in (("weights", model.weights), ("bias", model.bias)):
        require(np.isfinite(array).all(), f"{what}: expected finite {name}")
    scores = model.scores(np.ones((3, dimension)))
    require(np.isfinite(scores).all(), f"{what}: expected finite scores")
    result: LinearHead = model
    return result


def each_mode() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "float", {"exact": False}
    yield "exact", {"exact": True}

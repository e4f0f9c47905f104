"""What every head promises, one function per promise, which takes a head."""

from __future__ import annotations

import functools
import operator
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from headstart.data.datasets import load
from headstart.errors import DataError, HeadstartError, SolveError
from headstart.heads import make, name_of
from headstart.heads.base import Head
from headstart.heads.base import settings as settings_of
from headstart.heads.linear import LinearHead
from headstart.statistics.base import PRECISIONS, total
from headstart.testing.require import near, refuses, require

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


# -- clients ---------------------------------------------------------------------------------------


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


# -- comparing -------------------------------------------------------------------------------------


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


def _each_mode() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "float", {"exact": False}
    yield "exact", {"exact": True}


# -- sums ------------------------------------------------------------------------------------------


def order_of_clients_in_exact_mode(head: Head) -> None:
    """The order of clients does not move a bit of an exact total."""

    @quick
    @given(federations(), st.randoms(use_true_random=False))
    def holds(clients: list[Client], random: Any) -> None:
        stats = measure(head, clients, exact=True)
        first = total(stats)
        random.shuffle(stats)
        same_digest(total(stats), first, "total of shuffled clients")
        same_digest(sum(stats), first, "sum() of shuffled clients")
        same_digest(functools.reduce(operator.add, stats), first, "a + b + … of shuffled clients")

    holds()


def order_of_clients(head: Head) -> None:
    """The order of clients does not move a head."""
    clients = make_clients()
    stats, (z, _) = measure(head, clients), pooled(clients)
    scores = head.solve(total(stats)).scores(z)
    near(head.solve(total(stats[::-1])).scores(z), scores, "scores of reversed clients", atol=1e-7)


def splits_in_exact_mode(head: Head) -> None:
    """Any split gives the bits of the pooled data in exact mode, through bytes."""

    @quick
    @given(federations(), st.integers(0, 2**16), st.integers(1, 2))
    def holds(clients: list[Client], seed: int, threads: int) -> None:
        z, y = pooled(clients)
        whole = head.measure(z, y, exact=True)
        with threadpool_limits(threads):
            parts = dealt(z, y, np.random.default_rng(seed))
            sent = [stat.to_bytes() for stat in measure(head, parts, exact=True)]
            came = total(head.statistic.from_bytes(message) for message in sent)
            same_digest(came, whole, f"the total of {len(parts)} clients and the pooled one")

    holds()


def splits(head: Head) -> None:
    """Any split solves to the head of the pooled data."""
    z, y = pooled(make_clients())
    expected = head.solve(head.measure(z, y))
    rng = np.random.default_rng(3)
    for _ in range(3):
        head_ = head.solve(total(measure(head, dealt(z, y, rng, 16))))
        require(head_.classes.tolist() == expected.classes.tolist(), "the classes differ")
        near(head_.weights, expected.weights, "weights", rtol=1e-6, atol=1e-6)
        near(head_.bias, expected.bias, "bias", rtol=1e-6, atol=1e-6)


def removal(head: Head) -> None:
    """A client taken out is a client that never joined."""
    clients = make_clients()
    clients.append((clients[-1][0][:3], np.array([9, 9, 9])))  # a class only it has
    stats = measure(head, clients, exact=True)
    for k in range(len(stats)):
        rest = total(stats[:k] + stats[k + 1 :])
        same_digest(total(stats) - stats[k], rest, f"without client {k}")
    gone = total(stats) - stats[-1]
    require(9 not in gone.classes, "a class that only the removed client had is still there")
    floats = measure(head, clients)
    alike(total(floats) - floats[3], total(floats[:3] + floats[4:]), 1e-12, "without client 3")


def removal_of_everybody(head: Head) -> None:
    """Everybody taken out leaves a total of empty clients."""
    for kind in (np.int64, np.str_):
        clients = [(z, y.astype(kind)) for z, y in make_clients((0, 3, 20))]
        empty, *others = measure(head, clients, exact=True)
        left = functools.reduce(operator.sub, others, total([empty, *others]))
        never = head.measure(np.zeros((0, 12)), [], exact=True)
        same_digest(left, empty, "what is left and an empty client")
        same_digest(left, never, "what is left and one that never had a label")
        same_digest(left - never, never, "nothing without nothing")


def removal_of_an_empty_client(head: Head) -> None:
    """An empty client can be taken out of any total."""
    z, y = pooled(make_clients())
    whole = head.measure(z, y.astype(str), exact=True)
    left = whole - head.measure(np.zeros((0, 12)), [], exact=True)
    same_digest(left, whole, "a total without an empty client")


def removal_of_strangers(head: Head) -> None:
    """Only a part of the sum can be subtracted."""
    z, y = pooled(make_clients())
    whole = head.measure(z, y, exact=True)
    strangers = {
        "another class": head.measure(z[:3], [7, 8, 9], exact=True),
        "too many": head.measure(np.tile(z, (2, 1)), np.tile(y, 2), exact=True),
        "text": head.measure(z[:1], ["a"], exact=True),
    }
    if set(values(whole)) - {"g"}:  # counts alone cannot tell samples apart
        strangers["other samples"] = head.measure(z + 1.0, y, exact=True)
    for name, stranger in strangers.items():
        refuses(functools.partial(operator.sub, whole, stranger), DataError, name, "subtract")


def unlike_statistics(head: Head) -> None:
    """Statistics of other modes, labels, bounds or dimensions do not add."""
    z, y = one_client(9)
    mine = head.measure(z, y, exact=True)
    others = {
        "float and exact": head.measure(z, y),
        "text and integers": head.measure(z, y.astype(str), exact=True),
    }
    if getattr(head, "feature_map", None) is None:  # whose lattice and dimension are its own
        others["another bound"] = head.measure(z, y, exact=True, bound=17.0)
        others["another dimension"] = head.measure(z[:, :-1], y, exact=True)
    for name, other in others.items():
        refuses(lambda other=other: (mine + other).digest(), DataError, name)  # type: ignore[misc]
        refuses(lambda other=other: total([mine, other]), DataError, name)  # type: ignore[misc]


# -- messages --------------------------------------------------------------------------------------


def messages_keep_their_precision(head: Head) -> None:
    """A message keeps what its precision promises, as bytes and as arrays."""
    for n in (0, 1, 5, 11, 60):
        stat = head.measure(*one_client(n), secret=b"s")
        for precision in PRECISIONS:
            what = f"{n} samples at {precision}"
            copy = head.statistic.from_bytes(stat.to_bytes(precision))
            alike(stat, copy, TOLERANCE[precision], f"{what}, as bytes")
            copy = head.statistic.from_arrays(stat.to_arrays(precision))
            alike(stat, copy, TOLERANCE[precision], f"{what}, as arrays")


def messages_can_be_sent_on(head: Head) -> None:
    """A relay decodes at one precision and encodes at another: the coarser one's error, no more."""
    for n in (5, 60):
        stat = head.measure(*one_client(n), secret=b"s")
        for first in PRECISIONS:
            for second in PRECISIONS:
                copy = head.statistic.from_bytes(stat.to_bytes(first))
                again = head.statistic.from_bytes(copy.to_bytes(second))
                allowed = TOLERANCE[first] + TOLERANCE[second]
                alike(stat, again, allowed, f"{n} samples at {first}, then at {second}")


def totals_can_be_saved(head: Head) -> None:
    """A total of rounded uploads, which is not quite that of any dataset, is saved and read."""
    for name, clients in _awkward_totals().items():
        for precision in PRECISIONS:
            uploads = [stat.to_bytes(precision) for stat in measure(head, clients)]
            came = total(head.statistic.from_bytes(message) for message in uploads)
            for stored in ("float64", "float32"):
                again = head.statistic.from_bytes(came.to_bytes(stored))
                what = f"{name} at {precision}, saved at {stored}"
                require(again.samples == came.samples, f"{what}: the samples differ")
            if head.statistic.is_sum:
                left = came - head.statistic.from_bytes(uploads[-1])
                again = head.statistic.from_bytes(left.to_bytes("float64"))
                require(again.samples == left.samples, f"{name} at {precision}, less one client")


def _awkward_totals() -> dict[str, list[Client]]:
    digits, rng = load("digits"), np.random.default_rng(9)
    z, y = digits.features * 16, digits.labels
    low = [(rng.normal(size=(n, 2)) @ rng.normal(size=(2, 9)), n) for n in (3, 1, 5, 20, 50)]
    return {
        "clients": make_clients(),
        "digits": [(z[k * 7 : k * 7 + 7], y[k * 7 : k * 7 + 7]) for k in range(30)],
        "constant": [(np.full((n, 9), 5.0), np.zeros(n, int)) for n in (3, 1, 20, 50)],
        "low rank": [(rows, np.arange(n) % 2) for rows, n in low],
    }


def exact_messages_lose_nothing(head: Head) -> None:
    """An exact statistic comes back bit for bit, and is not sent at a coarser precision."""

    @quick
    @given(st.integers(0, 70), st.integers(1, 12), st.integers(0, 2**16))
    def holds(n: int, d: int, seed: int) -> None:
        stat = head.measure(*one_client(n, d=d, seed=seed), exact=True, secret=b"s")
        cls = head.statistic
        same_digest(cls.from_bytes(stat.to_bytes()), stat, "through bytes")
        same_digest(cls.from_arrays(stat.to_arrays()), stat, "through arrays")
        for precision in ("float32", "float16", "int8"):
            coarse = functools.partial(stat.to_bytes, precision)
            refuses(coarse, DataError, f"an exact statistic at {precision}", "precision")

    holds()


def retries_send_the_same_bytes(head: Head) -> None:
    """The same samples and secret give the same message."""
    for mode, how in _each_mode():
        for n in (4, 60):
            first, second = (head.measure(*one_client(n), secret=b"mine", **how) for _ in range(2))
            for precision in ["float64"] if how["exact"] else PRECISIONS:
                same = first.to_bytes(precision) == second.to_bytes(precision)
                require(same, f"{mode}, {n} samples at {precision}: the bytes differ")


def looking_changes_nothing(head: Head) -> None:
    """Looking at a statistic, or solving from it, does not change its message."""
    for mode, how in _each_mode():
        for n in (4, 60):
            stat = head.measure(*one_client(n), secret=b"mine", **how)
            before = stat.to_bytes()
            stat.digest()
            repr(stat)
            solved(head, stat, 12, f"{mode}, {n} samples")
            require(stat.to_bytes() == before, f"{mode}, {n} samples: the bytes differ")


def order_of_samples(head: Head) -> None:
    """The order of samples does not move a byte, nor do zeros of either sign."""
    rng = np.random.default_rng(5)
    for mode, how in _each_mode():
        n, d = (40, 10) if how["exact"] else (6, 10)
        z, y = rng.normal(size=(n, d)).round(1), rng.integers(3, size=n)
        z[:, :3] = 0.0
        z[rng.random(z.shape) < 0.2] = 0.0
        if not how["exact"] and not hasattr(head.statistic, "gram"):
            z = z.round()  # float sums of few whole numbers are exact as well
        message = head.measure(z, y, secret=b"s", **how).to_bytes()
        for _ in range(4):
            order = rng.permutation(n)
            signed = np.where((z == 0) & (rng.random(z.shape) < 0.5), -0.0, z)
            again = head.measure(signed[order], y[order], secret=b"s", **how).to_bytes()
            require(again == message, f"{mode}: the bytes differ for another order of samples")


# -- awkward clients -------------------------------------------------------------------------------


def awkward_clients(head: Head) -> None:
    """Empty clients, one sample, one class, a class that appears later, text labels: they add."""
    rng = np.random.default_rng(6)
    labels: list[list[str]] = [[], ["a"], ["b"] * 5, ["c", "a"], [], ["a", "b", "c"] * 9]
    for mode, how in _each_mode():
        clients = [(rng.normal(size=(len(y), 6)), np.array(y, dtype=str)) for y in labels]
        running = total(measure(head, clients, **how))
        require(running.classes.tolist() == ["a", "b", "c"], f"{mode}: expected classes a, b, c")
        grown = running + head.measure(rng.normal(size=(4, 6)), ["", "d", "zz", "é"], **how)
        every = ["", "a", "b", "c", "d", "zz", "é"]
        require(grown.classes.tolist() == every, f"{mode}: expected the late classes in order")
        require(grown.samples == running.samples + 4, f"{mode}: expected four samples more")
        model = solved(head, grown, 6, mode)
        if getattr(head, "data_free", False):  # a frame needs as many dimensions as classes
            continue
        require(model is not None, f"{mode}: expected a head of these clients")
        if model is not None:
            require(model.classes.tolist() == every, f"{mode}: expected a row of every class")
            predicted = set(model.predict(rng.normal(size=(9, 6))).tolist())
            require(predicted <= set(every), f"{mode}: expected predictions among the classes")


def one_class(head: Head) -> None:
    """One class in all is no crash: it is predicted, or the head says that it cannot."""
    rng = np.random.default_rng(7)
    stat = total(measure(head, [(rng.normal(size=(5, 6)), np.array([3] * 5))] * 2))
    model = solved(head, stat, 6, "one class")
    if model is not None:
        predicted = model.predict(rng.normal(size=(4, 6))).tolist()
        require(predicted == [3] * 4, f"expected the only class, got {predicted}")


def degenerate_features(head: Head) -> None:
    """No NaN from constant, collinear, tiny, huge, missing or duplicate features."""
    for name, (z, y) in _degenerate().items():
        for mode, how in _each_mode():
            if how["exact"]:
                how = {**how, "bound": max(1.0, float(np.abs(z).max()))}
            halves = [(z[::2], y[::2]), (z[1::2], y[1::2])]
            stat = total(measure(head, halves, **how))
            for statistic in (
                stat,
                head.statistic.from_bytes(stat.to_bytes()),
                head.measure(z, y, **how),
            ):
                solved(head, statistic, 6, f"{name}, {mode}")


def _degenerate() -> dict[str, Client]:
    rng = np.random.default_rng(8)
    z, y = rng.normal(size=(30, 6)), np.arange(30) % 3
    return {
        "constant zero features": (z * (np.arange(6) > 2), y),
        "all features zero": (z * 0, y),
        "a class all zero": (z * (y > 0)[:, None], y),
        "duplicates": (np.tile(z[:1], (30, 1)), y),
        "d > n": (z[:4], y[:4]),
        "a sample per class": (z[:3], y[:3]),
        "one sample": (z[:1], y[:1]),
        "collinear": (z[:, :1] @ np.arange(1.0, 7.0)[None, :], y),
        "tiny": (z * 1e-6, y),
        "huge": (z * 1e6, y),
        "constant": (np.ones_like(z), y),
    }


def nothing_from_nothing(head: Head) -> None:
    """From no samples nothing is solved, and a `SolveError` says so."""
    for mode, how in _each_mode():
        stat = head.measure(np.zeros((0, 6)), [], **how)
        require(stat.samples == 0, f"{mode}: expected no samples")
        refuses(functools.partial(head.solve, stat), SolveError, f"{mode}, an empty client")
        both = total([stat, stat])
        refuses(functools.partial(head.solve, both), SolveError, f"{mode}, two empty clients")
    refuses(lambda: head.statistic.total([]), DataError, "a total of nobody", "total")


# -- files and bad inputs --------------------------------------------------------------------------


def saved_heads(head: Head) -> None:
    """A saved head is the head, and says by which method, settings and total it was made."""
    name, z = name_of(head), np.random.default_rng(0).normal(size=(20, 12))
    require(make(name, settings_of(head)) == head, "expected the same head of name and settings")
    for mode, how in _each_mode():
        stat = total(measure(head, make_clients(), **how))
        model = head.solve(stat)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "head.safetensors"
            model.save(path)
            loaded = LinearHead.load(path)
            require(list(Path(folder).iterdir()) == [path], f"{mode}: expected one file")
        require(np.array_equal(loaded.scores(z), model.scores(z)), f"{mode}: scores differ")
        require(loaded.classes.tolist() == model.classes.tolist(), f"{mode}: classes differ")
        require(loaded.temperature == model.temperature, f"{mode}: temperatures differ")
        require(loaded.provenance == model.provenance, f"{mode}: provenances differ")
        expected = {
            "method": name,
            "settings": settings_of(head),
            "total": stat.digest(),
            "exact": how["exact"],
            "samples": stat.samples,
        }
        for key, value in expected.items():
            actual = loaded.provenance.get(key)
            require(
                actual == value, f"{mode}: provenance: {key}: expected {value!r}, got {actual!r}"
            )


GOOD = np.arange(12.0).reshape(4, 3)
BAD: dict[str, tuple[Any, Any, str]] = {
    "nan": (np.where(GOOD == 5, np.nan, GOOD), [0, 1, 0, 1], "features"),
    "inf": (np.where(GOOD == 5, np.inf, GOOD), [0, 1, 0, 1], "features"),
    "too few labels": (GOOD, [0, 1, 0], "labels"),
    "too many labels": (GOOD, [0, 1, 0, 1, 1], "labels"),
    "one axis": (GOOD[0], [0, 1, 0], "features"),
    "three axes": (GOOD[None], [0], "features"),
    "no features": (GOOD[:, :0], [0, 1, 0, 1], "features"),
    "complex": (GOOD + 1j, [0, 1, 0, 1], "features"),
    "text features": (GOOD.astype(str), [0, 1, 0, 1], "features"),
    "object features": (GOOD.astype(object), [0, 1, 0, 1], "features"),
    "ragged features": ([[1.0, 2.0], [3.0]], [0, 1], "features"),
    "float labels": (GOOD, [0.0, 1.0, 0.0, 1.0], "labels"),
    "bool labels": (GOOD, [True, False, True, False], "labels"),
    "two axes of labels": (GOOD, [[0], [1], [0], [1]], "labels"),
    "mixed objects": (GOOD, np.array([0, "a", 0, "a"], dtype=object), "labels"),
    "missing labels": (GOOD, [0, None, 0, 1], "labels"),
    "a label of a thousand letters": (GOOD, ["a" * 1000, "b", "b", "b"], "labels"),
}


def bad_inputs(head: Head) -> None:
    """Bad features and labels are refused, and the error names the argument."""
    for name, (features, labels, argument) in BAD.items():
        for mode, how in _each_mode():
            work = functools.partial(head.measure, features, labels, **how)
            refuses(work, HeadstartError, f"{name}, {mode}", argument)


def features_beyond_the_bound(head: Head) -> None:
    """In exact mode features beyond the bound are refused, and so is a bound that is none."""
    for bound in (10.0, -1.0):
        work = functools.partial(head.measure, GOOD, [0, 1, 0, 1], exact=True, bound=bound)
        refuses(work, DataError, f"features up to 11, bound {bound:g}", "bound")


OF_ANY: tuple[Check, ...] = (
    order_of_clients_in_exact_mode,
    order_of_clients,
    unlike_statistics,
    messages_keep_their_precision,
    messages_can_be_sent_on,
    totals_can_be_saved,
    exact_messages_lose_nothing,
    retries_send_the_same_bytes,
    looking_changes_nothing,
    order_of_samples,
    awkward_clients,
    one_class,
    degenerate_features,
    nothing_from_nothing,
    saved_heads,
    bad_inputs,
    features_beyond_the_bound,
)
OF_SUMS: tuple[Check, ...] = (
    splits_in_exact_mode,
    splits,
    removal,
    removal_of_everybody,
    removal_of_an_empty_client,
    removal_of_strangers,
)


def checks_of(head: Head) -> tuple[Check, ...]:
    """What this head promises: one over sums also any split, and removal."""
    return OF_ANY + (OF_SUMS if head.statistic.is_sum else ())

"""What odd clients may not break: of one class, degenerate, empty."""

from __future__ import annotations

import functools

import numpy as np

from headstart.errors import DataError, SolveError
from headstart.heads.base import Head
from headstart.statistics.base import total
from headstart.testing.heads.comparing import (
    Client,
    each_mode,
    measure,
    solved,
)
from headstart.testing.require import refuses, require


def awkward_clients(head: Head) -> None:
    """Empty clients, one sample, one class, a class that appears later, text labels: they add."""
    rng = np.random.default_rng(6)
    labels: list[list[str]] = [[], ["a"], ["b"] * 5, ["c", "a"], [], ["a", "b", "c"] * 9]
    for mode, how in each_mode():
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
        for mode, how in each_mode():
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
    for mode, how in each_mode():
        stat = head.measure(np.zeros((0, 6)), [], **how)
        require(stat.samples == 0, f"{mode}: expected no samples")
        refuses(functools.partial(head.solve, stat), SolveError, f"{mode}, an empty client")
        both = total([stat, stat])
        refuses(functools.partial(head.solve, both), SolveError, f"{mode}, two empty clients")
    refuses(lambda: head.statistic.total([]), DataError, "a total of nobody", "total")

"""Personalizations by name, and what is told of them over clients."""

from __future__ import annotations

import numpy as np
import pytest

import headstart as hs
from headstart.evaluate import PERSONAL, Change, Personal
from headstart.personal import VARIANTS, Settings


def test_the_first_three_are_what_a_head_does():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(60, 5)), rng.integers(0, 4, 60)
    head = hs.Fed3R().solve(hs.Moments.measure(z, y)).calibrate(z, y)
    own = y[:9] % 3
    counts = dict(zip(*np.unique(own, return_counts=True), strict=True))
    expected = {
        "global": head,
        "oll": head.restrict(own),
        "prior": head.with_prior(counts, smoothing=0.2),
    }
    for name, wanted in expected.items():
        found = VARIANTS[name](head, z[:9], own, Settings(smoothing=0.2))
        assert found.to_bytes() == wanted.to_bytes()
    assert tuple(VARIANTS) == PERSONAL == (*expected, "ridge")


def rows_of(hits, counts):
    names = tuple(f"c{k}" for k in range(len(counts)))
    return Personal(names, np.array(counts, float), np.array(hits, float).reshape(-1, 4))


def test_means_weighted_and_plain():
    one = rows_of([[1, 2, 2, 2], [0, 0, 0, 0], [30, 30, 60, 90]], [2, 0, 100])
    assert one.weighted()["global"] == pytest.approx(31 / 102)
    assert one.mean() == pytest.approx({"global": 0.4, "oll": 0.65, "prior": 0.8, "ridge": 0.95})


def test_who_gains_and_who_loses():
    one = rows_of([[1, 2, 0, 2], [5, 5, 5, 5], [0, 0, 0, 0], [4, 4, 8, 6]], [2, 5, 0, 8])
    change = one.change("prior")
    assert (change.gain, change.lose, change.same) == (1, 1, 1)
    assert change.quantiles["0"] == -0.5
    assert change.quantiles["0.5"] == 0.0
    assert change.quantiles["1"] == 0.5
    assert one.change("ridge", "prior").lose == 1
    with pytest.raises(hs.DataError, match="variant: expected one of global, oll"):
        one.change("magic")


def test_nobody_tested():
    one = rows_of([], [])
    assert set(one.mean().values()) == {0.0}
    assert one.change("oll") == Change(0, 0, 0, dict.fromkeys(one.change("oll").quantiles, 0.0))

"""Personalizations by name, and their figures over clients."""

from __future__ import annotations

import numpy as np
import pytest

import headstart as hs
from headstart.evaluate import PERSONAL
from headstart.personal import VARIANTS, Settings
from headstart.results import PersonalScores


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


def scores_of(hits, tested):
    rows = np.column_stack([tested, np.reshape(hits, (-1, 4))])
    return PersonalScores.of({f"c{k}": row for k, row in enumerate(rows)}, PERSONAL)


def test_means_weighted_and_plain():
    one = scores_of([[1, 2, 2, 2], [0, 0, 0, 0], [30, 30, 60, 90]], [2, 0, 100])
    assert one.weighted("global") == pytest.approx(31 / 102)
    means = {name: one.mean(name) for name in PERSONAL}
    assert means == pytest.approx({"global": 0.4, "oll": 0.65, "prior": 0.8, "ridge": 0.95})


def test_who_gains_and_who_loses():
    """Of those that tested; the third did not."""
    one = scores_of([[1, 2, 0, 2], [5, 5, 5, 5], [0, 0, 0, 0], [4, 4, 8, 6]], [2, 5, 0, 8])
    assert one.change("prior").tolist() == [-0.5, 0.0, 0.5]
    assert one.change("ridge", "prior").tolist() == [1.0, 0.0, -0.25]


def test_nobody_tested():
    one = scores_of([], [])
    assert [one.mean(name) for name in PERSONAL] == [0.0] * 4
    assert len(one.change("oll")) == 0

"""The page of several seeds: means, deviations and paired differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headstart.report import page
from headstart.results import (
    RunResult,
)

from .helpers import (
    ONCE,
    ROUNDS,
    cells,
    check,
    headings,
    seeded,
)


def test_means_and_deviations_over_seeds(seeds):
    outline = check(seeds)
    assert "Seed by seed" in headings(seeds)
    assert "Mean ± std over 3 seeds: partition, cohorts, initialization." in outline.text
    spread = np.std([0.66, 0.67, 0.69], ddof=1)
    assert (
        cells(seeds, "Fed3R")[0] == f"{100 * np.mean([0.66, 0.67, 0.69]):.1f} ± {100 * spread:.1f}%"
    )
    assert "A band is one standard deviation over seeds." in outline.text


def test_differences_are_paired_by_seed(seeds):
    gaps = np.array([0.70, 0.72, 0.71]) - np.array([0.66, 0.67, 0.69])
    expected = f"+{100 * gaps.mean():.1f} ± {100 * gaps.std(ddof=1):.1f}"
    assert cells(seeds, "FedAvg-20(ψ)", "Seed by seed") == [expected, "3 of 3"]
    other = replace(
        seeded(ROUNDS), runs=tuple(replace(r, seed=r.seed + 9) for r in seeded(ROUNDS).runs)
    )
    assert "Seed by seed" not in headings(page([seeded(ONCE), other]))


def test_a_target_that_some_seeds_miss_says_how_many_reach_it(seeds):
    section = seeds[seeds.index("The cost of a target") :]
    assert "2 of 3 seeds" in cells(section, "Fed3R")
    assert "1 of 3 seeds" in cells(section, "Fed3R")


def test_what_varied_is_what_shows_in_the_data():
    same = RunResult(tuple(replace(run, data=ONCE.data) for run in seeded(ONCE).runs))
    assert "Mean ± std over 3 seeds." in check(page([same])).text
    outside = replace(ONCE, split=replace(ONCE.split, test_fraction=0.2, held_out=0.3))
    text = check(page([seeded(outside)])).text
    assert "over 3 seeds: test split, partition, held-out parts." in text


def test_one_seed_has_none_of_that(full, compared):
    for source in (full, compared):
        assert "Seed by seed" not in headings(source)
        assert " ± " not in check(source).text
        assert "seeds" not in check(source).text.replace("all seeds", "")

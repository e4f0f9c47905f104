"""Numbers of the report by hand: curves, targets, personal changes, formats, text tables."""

from __future__ import annotations

import csv
import io
import math
import re

import numpy as np
import pytest

from headstart import console
from headstart.report.axis import whole
from headstart.report.comparison_metrics import (
    curve,
    make_entries,
    mean_curve,
    own_models,
    reached,
    spent,
    targets,
)
from headstart.report.comparison_table import text_table
from headstart.report.curve_figures import series
from headstart.report.figures import POINTS
from headstart.report.format import plain, points, round_size, short, size, written
from headstart.report.pipeline_labels import legend
from headstart.report.tables import as_csv, as_markdown
from headstart.results import Estimate, Point, RunResult

from .helpers import ALL, LONG, ONCE, OWN, ROUNDS, alone, bare, point, seeded


def entries(*runs):
    return make_entries(alone(*runs))[0]


# -- a curve and its targets -----------------------------------------------------------------------


def test_rounds_are_counted_over_phases_and_epochs_at_home_are_none():
    assert [p.rounds for p in curve(LONG)] == [0, 1, 2, 3, 4, 5, 5]
    assert spent(LONG, "round") == 5
    assert spent(LONG, "flops") == 9e7
    assert spent(LONG, "both") == pytest.approx(1.5e6 * 1.5)


def test_what_nobody_counted_is_not_nothing():
    unknown = bare("x", [Point(0, 0, 0.5)])
    assert spent(unknown, "flops") is None
    assert spent(unknown, "up") == 0
    assert reached(unknown, 0.5, "round") == 0


def test_the_first_round_that_reaches_a_target():
    assert reached(ROUNDS, 0.40, "round") == 10
    assert reached(ROUNDS, 0.40, "up") == pytest.approx(2e6)
    assert reached(ROUNDS, 0.70, "round") == 20
    assert reached(ROUNDS, 0.71, "round") is None
    assert reached(ONCE, 0.66, "round") == 0
    wild = bare("x", [point(1, r, a, 1e3 * r) for r, a in ((1, 0.5), (2, 0.3), (3, 0.6))])
    assert reached(wild, 0.45, "round") == 1  # its first crossing, not its last


def test_targets_are_tens_and_fine_steps_below_the_best():
    assert targets(entries(ONCE, ROUNDS, LONG)) == [0.3, 0.4, 0.5, 0.6, 0.66, 0.67, 0.68, 0.69, 0.7]
    high = bare("x", [point(0, 0, 0.9731, 1.0)])
    assert targets(entries(high))[-5:] == [0.95, 0.955, 0.96, 0.965, 0.97]
    assert targets(entries(bare("x", [point(0, 0, 0.225, 1.0)]))) == [
        0.1, 0.18, 0.19, 0.2, 0.21, 0.22,
    ]  # fmt: skip
    every = make_entries([seeded(ONCE, (0.0, 0.3))])[0]
    assert max(targets(every)) == 0.66  # what all seeds reach


def test_a_curve_over_seeds_has_the_points_that_all_have():
    short_ = bare("x", [point(1, r, 0.1 * r, 1e3 * r) for r in (1, 2)])
    longer = bare("x", [point(1, r, 0.2 * r, 3e3 * r) for r in (1, 2, 3)], seed=1)
    rows = mean_curve(RunResult((short_, longer)), "up")
    deviation = [np.std([0.1 * r, 0.2 * r], ddof=1) for r in (1, 2)]
    np.testing.assert_allclose(rows[:, 0], [2e3, 4e3])
    np.testing.assert_allclose(rows[:, 1], [0.15, 0.3])
    np.testing.assert_allclose(rows[:, 2], deviation)


def test_a_long_curve_is_thinned_but_keeps_the_ends_of_phases():
    made = [point(1, r, 0.1, 10.0 * r) for r in range(1, 1501)]
    made += [point(2, r, 0.2, 15000 + 10.0 * r) for r in range(1, 1501)]
    shown = series(RunResult((bare("x", made),)), "round")
    assert len(shown) <= POINTS + 2
    assert {1500, 3000} <= set(shown[:, 0])


# -- clients ---------------------------------------------------------------------------------------


def test_personal_means_by_hand():
    assert (OWN.weighted("global"), OWN.weighted()) == (24 / 44, 24 / 44)
    assert OWN.mean("global") == pytest.approx((0.5 + 0.5 + 1) / 3)
    assert OWN.mean() == pytest.approx((0.8 + 0.4 + 1) / 3)
    (one,) = own_models(entries(ONCE, LONG))
    np.testing.assert_allclose(one.change, [-0.1, 0, 0.3])
    assert one.label == LONG.pipeline
    assert own_models(entries(ONCE)) == []


def test_clients_of_all_seeds_are_pooled():
    result = seeded(LONG)
    (one,) = own_models(make_entries([result])[0])
    assert len(one.change) == 3 * 3
    assert one.mean.values == (24 / 44,) * 3


# -- text ------------------------------------------------------------------------------------------


def test_the_table_has_a_row_per_pipeline_and_units_in_its_header():
    header, *body = text_table(make_entries(ALL)[0]).text
    assert [row[0] for row in body] == [result.pipeline for result in ALL]
    found = dict(zip(header, body[2], strict=True))
    assert found["accuracy %"] == "69.0"
    assert (found["shared %"], found["personal %"]) == ("54.5", "54.5")
    assert (found["shared, plain %"], found["personal, plain %"]) == ("66.7", "73.3")
    assert (found["gain"], found["lose"], found["rounds"]) == ("1", "1", "5")
    assert (found["MB up"], found["MB down"], found["formula MB up"]) == ("1.5", "0.75", "3")
    assert (found["GFLOPs per client"], found["seconds"]) == ("0.09", "1.5")
    assert (found["torch GFLOPs"], found["formula GFLOPs"]) == ("0.012", "0.045")
    assert dict(zip(header, body[0], strict=True))["personal %"] == "–"
    alone_ = text_table(entries(ONCE)).text[0]
    assert "personal %" not in alone_
    assert "gain" not in alone_


def test_deviations_stand_in_the_cells_of_a_terminal_and_in_columns_of_a_file():
    every = make_entries([seeded(ONCE)])[0]
    header, row = text_table(every).text
    found = dict(zip(header, row, strict=True))
    assert (found["accuracy %"], found["accuracy % std"]) == ("67.3", "1.5")
    header, row = text_table(every, brief=True).text
    assert dict(zip(header, row, strict=True))["accuracy %"] == "67.3 ± 1.5"


def test_csv_is_read_back_with_what_is_missing_empty():
    lines = text_table(make_entries(ALL)[0]).text
    header, *body = csv.reader(io.StringIO(as_csv(lines)))
    assert header == lines[0]
    assert body[0][header.index("personal %")] == ""
    assert float(body[2][header.index("MB up")]) == 1.5


def test_markdown_keeps_its_columns():
    lines = as_markdown(text_table(entries(ONCE, bare("a | b"))).text).splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("| --- | ---: |")
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


@pytest.mark.parametrize("width", [40, 80, 200])
def test_in_a_terminal(capsys, monkeypatch, width):
    """A pipeline is no markup, and where there is no room it stands above the table."""
    monkeypatch.setattr(console.out(), "_width", width)
    odd = bare("Fed3R(x=[red]) + FedAvg-20(ψ)", LONG.curve, personal=OWN, seconds=1.5)
    header, *rows = text_table(entries(ONCE, odd), brief=True).text
    console.show_rows(header, rows, title="Costs")
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line for line in lines if "69.0" in line]
    (named,) = [line for line in lines if "Fed3R(x=[red]) + FedAvg-20(ψ)" in line]
    assert (row == named) is (width == 200)
    assert row.startswith("Fed3R" if width == 200 else "2.")
    assert not any("…" in line for line in lines)
    assert all("formula" not in line for line in lines)
    assert row.rstrip().endswith("1.5")  # nothing is cut off
    assert "accuracy" in " ".join(lines)
    assert "seconds" in " ".join(lines)


def test_pipelines_in_a_legend_can_be_told_apart():
    assert legend(["a", "b"]) == ["a", "b"]
    long = ["Fed3R + " * 20 + end for end in "ab"]
    assert len(set(legend(long))) == 2
    assert max(map(len, legend(long))) <= 64
    assert legend(["a", "a"]) == ["1. a", "2. a"]


def test_values_read_well():
    assert [size(n) for n in (0, 12, 999.6, 7336, 11000, 123456, 5e9)] == [
        "0 B", "12 B", "1.00 kB", "7.34 kB", "11.0 kB", "123 kB", "5.00 GB",
    ]  # fmt: skip
    assert size(404_000, 12_000) == "404 ± 12 kB"
    assert round_size(20000) == "20 kB"
    assert plain(1437) == "1,437"
    assert plain(0.00027) == "2.70 × 10⁻⁴"
    assert plain(None) == plain(math.nan) == plain(math.inf) == "–"
    assert plain(True) == "yes"
    assert plain(" and\n\x00") == " and �"
    assert short(2.8345) == "2.83"
    assert (points(0.014), points(-0.0101), points(0.0)) == ("+1.4", "−1.0", "±0.0")
    assert points(0.014, 0.002) == "+1.4 ± 0.2"
    assert written(Estimate([1.0, 3.0]), size) == "2 ± 1 B"
    assert written(Estimate([2.0]), size) == "2 B"
    assert written(None, size) == written(math.nan, size) == "–"


@pytest.mark.parametrize("rounds", [[1], [3, 3], [1, 2], [0, 50], [1, 12_000]])
def test_an_axis_of_rounds_says_each_whole_number_once(rounds):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.plot(rounds, rounds)
    whole(axes.xaxis)
    at = axes.get_xticks()
    said = axes.xaxis.get_major_formatter().format_ticks(at)
    shown = [int(text.replace(",", "")) for text in said if text]
    assert shown == [value for value in at.tolist() if value == int(value)]
    assert len(set(shown)) == len(shown) >= 1

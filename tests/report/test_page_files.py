"""The files of a page: the same bytes every time, and numbers that agree with the results."""

from __future__ import annotations

import pytest

from headstart.report import page, write_report
from headstart.results import (
    RunResult,
    SeedResult,
)

from .helpers import (
    ALL,
    LONG,
    ONCE,
    alone,
    check,
    fitted,
    read_csv,
    seeded,
)


def test_the_same_bytes_each_time_and_from_results_read_back(tmp_path):
    results = [seeded(fitted()), seeded(LONG)]
    again = [
        RunResult(tuple(SeedResult.from_json(run.to_json()) for run in result.runs))
        for result in results
    ]
    assert again == results
    write_report(results, tmp_path / "one")
    write_report(again, tmp_path / "two")
    assert (tmp_path / "one" / "report.html").read_text(encoding="utf-8") == page(results)
    paths = [p for p in (tmp_path / "one").rglob("*") if p.is_file()]
    assert {"table.csv", "targets.csv", "curves.csv", "clients.csv", "arrivals.csv"} < {
        p.name for p in paths
    }
    for path in paths:
        other = tmp_path / "two" / path.relative_to(tmp_path / "one")
        assert other.read_bytes() == path.read_bytes(), path.name


def test_every_figure_is_a_file_and_no_older_one_stays(tmp_path, compared):
    write_report(ALL, tmp_path)
    names = sorted(p.name for p in (tmp_path / "figures").iterdir())
    svg = [name for name in names if name.endswith(".svg")]
    assert [name.replace(".svg", ".pdf") for name in svg] == [n for n in names if ".pdf" in n]
    assert len(svg) == check(compared).names.count("svg")
    for name in svg:
        text = (tmp_path / "figures" / name).read_text(encoding="utf-8")
        assert text.startswith("<?xml")
        assert "<dc:date>" not in text
    for name in names:
        if name.endswith(".pdf"):
            data = (tmp_path / "figures" / name).read_bytes()
            assert data.startswith(b"%PDF")
            assert b"CreationDate" not in data
    (tmp_path / "figures" / "notes.txt").write_text("mine")
    (tmp_path / "arrivals.csv").write_text("of an earlier report")
    write_report(alone(ONCE), tmp_path)
    assert [p.name for p in (tmp_path / "figures").iterdir()] == ["notes.txt"]
    assert not (tmp_path / "arrivals.csv").exists()


def test_the_files_agree_with_the_results(tmp_path):
    results = [seeded(LONG), seeded(fitted("Fed3R", 0.9))]
    write_report(results, tmp_path)
    runs = [run for result in results for run in result.runs]
    curves = read_csv(tmp_path / "curves.csv")
    points = [(run, p) for run in runs for p in run.curve]
    assert len(curves) == len(points)
    for row, (run, p) in zip(curves, points, strict=True):
        assert (row["pipeline"], int(row["seed"])) == (run.pipeline, run.seed)
        assert (int(row["phase"]), int(row["round"])) == (p.phase, p.round)
        assert row["accuracy"] == ("" if p.accuracy is None else str(p.accuracy))
        assert float(row["formula_flops"]) == p.formula_flops
    clients = read_csv(tmp_path / "clients.csv")
    assert len(clients) == 3 * 6  # a row per client and seed; LONG knows none
    assert clients[1]["client"] == "c01"
    assert (clients[1]["up"], clients[1]["tested"]) == ("850", "1.0")
    assert (clients[1]["accuracy_global"], clients[1]["accuracy_ridge"]) == ("0.5", "1.0")
    assert (clients[0]["tested"], clients[0]["accuracy_oll"]) == ("0.0", "")
    table = read_csv(tmp_path / "table.csv")
    assert [row["pipeline"] for row in table] == [LONG.pipeline, "Fed3R"]
    assert float(table[0]["accuracy %"]) == pytest.approx(100 * results[0].accuracy, abs=0.05)
    assert float(table[0]["accuracy % std"]) == pytest.approx(
        100 * results[0].accuracy.std, abs=0.05
    )
    aims = read_csv(tmp_path / "targets.csv")
    assert {row["seed"] for row in aims} == {"0", "1", "2"}
    arrivals = read_csv(tmp_path / "arrivals.csv")
    assert len(arrivals) == 3 * 6
    assert float(arrivals[-1]["accuracy"]) == runs[-1].head.arrivals[-1].accuracy

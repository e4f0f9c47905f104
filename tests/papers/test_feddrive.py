"""FedDrive's tables: the thesis's numbers without the data, ours beside them with some."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.papers import by_name, feddrive_table5_2, reproduce
from headstart.papers.feddrive_study import KINDS, configured, fedavg, silobn
from headstart.papers.feddrive_study import Settings as Schedule
from headstart.papers.table import find_row
from headstart.pipeline.config import make_config

from ..pipeline.scenes import painted_scenes

TABLES = [f"feddrive-table5.{number}" for number in range(2, 9)]


@pytest.mark.parametrize("name", TABLES)
def test_without_the_data_a_table_is_the_papers_and_says_where_they_are(name):
    table = reproduce(name, {})
    assert all(row.ours == () for row in table.rows)
    assert any(row.paper for row in table.rows)
    text = table.markdown()
    assert "Nothing was run: it needs --data" in text
    assert ("cityscapes-dataset.com" in text) or ("idda-dataset.github.io" in text)
    assert "nan" not in text


def test_the_numbers_are_where_the_thesis_has_them():
    rows = reproduce("feddrive-table5.4", {}).rows
    assert find_row(rows, "SiloBN + LAB", "rainy, heterogeneous, unseen, standard").paper == 54.0
    assert find_row(rows, "SiloBN", "rainy, heterogeneous, seen, by-domain").paper == 62.5
    rows = reproduce("feddrive-table5.7", {}).rows
    assert len(rows) == 3 * 3 * 4 * 2
    assert find_row(rows, "FedAvg + FedAvgM", "bus, uniform, seen, averaged").paper == 71.8
    rows = reproduce("feddrive-table5.2", {}).rows
    assert find_row(rows, "FedAvg + CFSI", "class imbalance, unseen, averaged").paper == 48.3


def test_every_line_is_a_run_that_can_be_made():
    """FedDrive's form: constant rate, two epochs of 16, the hardest quarter, 5 clients."""
    for need in ("cityscapes", *KINDS):
        for line in feddrive_table5_2.LINES:
            config = make_config(configured(need, "somewhere", line, Schedule()))
            assert config.cohort == 5
            assert config.batch_norm == ("local" if line.silo else "average")
            (text,) = [str(phase) for phase in config.pipeline if "1600" in str(phase)]
            assert "'hardest': 0.25" in text
    plain = configured("cityscapes", "somewhere", silobn("heterogeneous", 52.9), Schedule())
    assert plain["partition"] == {"name": "runs", "frames": 20}


@pytest.mark.long
def test_a_table_runs_on_data_that_are_given(tmp_path, monkeypatch):
    """Two lines of the first, small: the command, its folders, and the same again from them."""
    few = (fedavg("uniform", 45.6), silobn("heterogeneous", 52.9))
    monkeypatch.setattr(feddrive_table5_2, "LINES", few)
    data = painted_scenes(tmp_path / "scenes", drives=2, frames=6)["data"]
    changes = ["rounds=2", "epochs=1", "batch=3", "network=bisenetv2_quarter", "pixels=32x64"]
    changes += ["partition={name: runs, frames: 3}", "cohort=2", "evaluate_every=1"]
    out = tmp_path / "out"
    said = ["reproduce", "feddrive-table5.2", "--data", data, "--out", str(out)]
    said += [part for change in changes for part in ("-s", change)]
    done = CliRunner().invoke(app, said)
    assert done.exit_code == 0, done.output
    table = reproduce("feddrive-table5.2", {"cityscapes": data}, changes=changes, folder=out)
    assert [len(row.ours) for row in table.rows] == [1, 1]
    assert all("in 1, rounds 2–2" in row.note for row in table.rows)
    assert (out / "cityscapes" / "report.html").exists()
    assert "The largest difference is" in table.conclusion
    assert by_name("feddrive-table5.2").resumes

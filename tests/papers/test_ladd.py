"""LADD's tables: the thesis's numbers without the data, and every row a run that can be made."""

import pytest

from headstart.papers import ladd_table5_10, ladd_table5_11, ladd_table5_12, reproduce
from headstart.papers.ladd_study import configured
from headstart.papers.reproduction import Task
from headstart.papers.table import find_row
from headstart.pipeline.config import make_config

from ..pipeline.scenes import painted_scenes

TABLES = (ladd_table5_10, ladd_table5_11, ladd_table5_12)


@pytest.mark.parametrize("module", TABLES, ids=lambda module: module.REPRODUCTION.name)
def test_without_the_data_a_table_is_the_papers_and_says_where_they_are(module):
    table = reproduce(module.REPRODUCTION.name, {})
    assert all(row.ours == () for row in table.rows)
    assert "download.visinf.tu-darmstadt.de" in table.markdown()
    assert "nan" not in table.markdown()


def test_the_numbers_are_where_the_thesis_has_them():
    rows = reproduce("ladd-table5.12", {}).rows
    assert find_row(rows, "LADD (all)", "mapillary").paper == 38.8
    assert find_row(rows, "oracle, federated", "mapillary").paper == 49.9
    assert find_row(reproduce("ladd-table5.10", {}).rows, "DAFormer", "cityscapes").paper == 42.3


@pytest.mark.parametrize("module", TABLES, ids=lambda module: module.REPRODUCTION.name)
def test_every_line_is_a_run_that_can_be_made(module):
    task = Task(dict.fromkeys(module.TARGET.needs, "somewhere"))
    for line in filter(lambda line: line.how, module.LINES):
        config = make_config(configured(task, module.TARGET, line.how))
        assert config.source == "somewhere"
        assert config.cohort == module.TARGET.cohort


@pytest.mark.long
def test_a_table_runs_on_data_that_are_given(tmp_path, monkeypatch):
    """Two lines, small; the rounds and the source's epochs are the row's own."""
    small = {"rounds": 1, "start": 0}
    monkeypatch.setattr(
        ladd_table5_10,
        "TARGET",
        type(ladd_table5_10.TARGET)(**{**vars(ladd_table5_10.TARGET), **small}),
    )
    monkeypatch.setattr("headstart.papers.ladd_study.EPOCHS", 1)
    lines = [line for line in ladd_table5_10.LINES if line.how in ("source", "all")]
    monkeypatch.setattr(ladd_table5_10, "LINES", lines)
    places = (("target", 0), ("test", 0), ("source", 2))
    paths = [
        painted_scenes(tmp_path / name, drives=2, frames=4, unseen=count)["data"]
        for name, count in places
    ]
    needs = ("cityscapes", "cityscapes-test", "gta5")
    changes = ["network=bisenetv2_quarter", "pixels=32x64", "cohort=2"]
    changes += ["partition={name: runs, frames: 2}"]
    data = dict(zip(needs, paths, strict=True))
    table = reproduce("ladd-table5.10", data, changes=changes, folder=tmp_path / "out")
    assert [len(row.ours) for row in table.rows] == [1, 1]
    assert (tmp_path / "out" / "cityscapes" / "report.html").exists()

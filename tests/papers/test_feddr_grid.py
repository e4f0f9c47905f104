"""Grids of runs: one folder per cell, what is done only once, and the command."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from headstart import HeadstartError
from headstart.cli import app
from headstart.data.datasets import Dataset
from headstart.data.samples import ArraySamples
from headstart.federation.protocol import ClientData
from headstart.gradient.engine import Training
from headstart.papers import feddr_grid, feddr_table4, reproduce
from headstart.papers import feddr_paper as paper
from headstart.papers.feddr_grid import Cell, paper_split, rows_of, run_grid
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import Experiment, prepare
from headstart.pipeline.folder import RunFolder

from .feddr_runs import SHORT, settings, table_2


def as_the_paper(split="shards", images=(500, 100), **more):
    """CIFAR-100 by its numbers: labels, and nothing to see."""
    train, test = (np.repeat(np.arange(100), count) for count in images)
    partition = paper.SPLITS[split]
    config = {"data": "cifar100", **paper.SETTING, "partition": partition, **more}
    parts = enumerate(np.split(train, 100))
    data = {f"c{k}": ClientData(ArraySamples(own[:, None] * 0, own)) for k, own in parts}
    made = [Dataset("cifar100", y[:, None] * 0, y) for y in (train, test)]
    return Experiment(make_config(config), *made, None, None, data, None)


def test_the_papers_numbers_belong_to_its_split_network_and_data():
    for split in paper.SPLITS:
        assert paper_split(as_the_paper(split)) == split
    assert paper_split(as_the_paper(matched=True, cohort=5)) == "shards"
    for other in (
        {"network": "small_cnn"},
        {"network": None},
        {"pixels": 64},
        {"batch_norm": "local"},
        {"shift": 1.5},
        {"augment": "fedrdn"},
        {"images": (250, 100)},
        {"images": (500, 50)},
        {"partition": {**paper.SPLITS["shards"], "clients": 50}},
        {"partition": {**paper.SPLITS["shards"], "shards_per_client": 2}},
        {"partition": {**paper.SPLITS["dirichlet"], "alpha": 0.5}},
        {"partition": None},
    ):
        assert paper_split(as_the_paper(**other)) is None, other


@pytest.mark.parametrize("split", ["shards", "dirichlet", None])
def test_a_papers_number_stands_beside_ours_in_its_own_setting_only(
    pictures, tmp_path, monkeypatch, split
):
    shown = split == "shards"
    for module in (feddr_grid, feddr_table4):
        monkeypatch.setattr(module, "paper_split", lambda experiment: split)
    cells = table_2(**SHORT, algorithms=["Dot-Regression"], terms=["fd"])
    cells += [Cell("personal shards", "plus", "home", cells[0].pipeline, 84.23, "shards", True)]
    cells += [Cell("other", "plus", "home", cells[0].pipeline, 12.34)]  # of no split
    for _ in range(2):  # the second time they are read
        found = run_grid(cells, settings(pictures, matched=True), tmp_path, "A grid")
        assert [one.paper for one in found] == [*([48.69, 84.23] if shown else [None] * 2), None]
    for name in ("grid.md", "grid.csv", "report.html"):
        text = (tmp_path / name).read_text()
        assert ("48.69" in text) == ("84.23" in text) == shown
    assert ("that of the paper" in (tmp_path / "report.html").read_text()) == shown
    times = feddr_table4.time_rounds(
        prepare(settings(pictures)), Training(0.01), 1, ("fedavg", "feddr-plus")
    )
    assert times[1].paper == (pytest.approx(24.9 / 20.4) if shown else None)


def test_a_grid_is_resumed_and_finished_cells_are_read(pictures, tmp_path, monkeypatch):
    cells = table_2(**SHORT, algorithms="FedBABU,Dot-Regression", terms="none, fd")
    runs = []
    real = feddr_grid.load_or_run

    def counted(*args):
        runs.append(args[2].name)
        if len(runs) == 3:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(feddr_grid, "load_or_run", counted)
    with pytest.raises(KeyboardInterrupt):
        run_grid(cells, settings(pictures), tmp_path, "A grid")
    assert (tmp_path / "grid.csv").read_text().count("\n") == 3
    monkeypatch.setattr(feddr_grid, "load_or_run", real)
    before = (tmp_path / cells[0].folder / "results.json").stat().st_mtime_ns
    shown = run_grid(cells, settings(pictures), tmp_path, "A grid")
    assert (tmp_path / cells[0].folder / "results.json").stat().st_mtime_ns == before
    assert [one.accuracy is not None for one in shown] == [True] * 4
    table = (tmp_path / "grid.md").read_text()
    assert "| Dot-Regression |" in table
    assert "(48.69)" not in table  # another network, split and data than the paper's
    assert "Dot-Regression" in (tmp_path / "report.html").read_text()
    assert len((tmp_path / "grid.csv").read_text().splitlines()) == 5


def test_a_cell_that_diverges_says_so_and_the_others_go_on(pictures, tmp_path):
    pipeline = "none + fedavg-3(lr=1e20)"
    cells = [Cell("t", "wild", "x", pipeline), Cell("t", "calm", "x", "none + fedavg-1")]
    wild, calm = run_grid(cells, settings(pictures), tmp_path, "A grid")
    assert wild.text() == "diverged"
    assert calm.accuracy is not None
    mark = tmp_path / "t-wild-x" / "diverged.json"
    assert "no longer finite" in json.loads(mark.read_text())["failed"]
    again, _ = run_grid(cells, settings(pictures), tmp_path, "A grid")
    assert again.text() == "diverged"
    first, second = rows_of([again, calm])
    assert (first.what, first.ours, first.cells()[3]) == ("wild / x", (), "–")
    assert first.note.startswith("diverged: ")
    assert second.ours == (100 * calm.accuracy,)
    with pytest.raises(HeadstartError, match="holds another run"):
        run_grid(cells[:1], settings(pictures, seed=3), tmp_path, "A grid")


def test_tables_keep_what_other_commands_have_finished(pictures, tmp_path):
    def run(algorithms, **more):
        cells = table_2(**SHORT, algorithms=algorithms, terms=["none"])
        return [one.row for one in run_grid(cells, settings(pictures, **more), tmp_path, "A grid")]

    assert run(["FedAvg"]) == ["FedAvg"]
    assert run(["FedBABU"]) == ["FedAvg", "FedBABU"]
    assert "FedBABU / none" in (tmp_path / "report.html").read_text()  # in legends, by its place
    before = (tmp_path / "grid.csv").read_bytes()
    assert len(before.splitlines()) == 3
    with pytest.raises(HeadstartError, match="holds another run"):
        run(["FedETF", "FedAvg"], seed=3)
    assert (tmp_path / "grid.csv").read_bytes() == before
    assert not (tmp_path / "shards-fedetf-none").exists()
    for damaged in ("[", "[1]", '[{"row": 1}]'):
        (tmp_path / "cells.json").write_text(damaged)
        with pytest.raises(HeadstartError, match=r"cells\.json is damaged"):
            run(["FedAvg"])


def test_personal_accuracy_is_the_plain_mean_with_its_deviation(pictures, tmp_path):
    pipeline = "etf + feddr-plus-1 + FP-1(like=dot-regression, lr=0.1)"
    cells = [Cell("t", "plus", "home", pipeline, personal=True)]
    (shown,) = run_grid(cells, settings(pictures, matched=True), tmp_path, "A grid")
    each = RunFolder(tmp_path / "t-plus-home").result().personal.shares()
    assert shown.accuracy == pytest.approx(each.mean())
    assert shown.deviation == pytest.approx(each.std())
    assert "±" in shown.text()


def test_time_is_relative_to_the_first_and_flops_are_counted(pictures):
    prepared = prepare(settings(pictures))
    names = ("fedavg", "fedbabu", "feddr-plus", "moon")
    found = feddr_table4.time_rounds(prepared, Training(0.01), 1, names)
    assert [one.method for one in found] == list(names)
    assert found[0].ratio == 1
    assert all(one.seconds > 0 for one in found)
    assert [one.flops for one in found] == pytest.approx([1, 1, 4 / 3, 5 / 3])
    with pytest.raises(HeadstartError, match="network: expected one to train on images, got none"):
        feddr_table4.time_rounds(
            prepare(make_config({"data": "digits", "partition": {"name": "iid", "clients": 3}})),
            Training(),
            1,
            names,
        )


def command(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


SMALL = [f"-s{change}" for change in ("network=small_cnn", "pixels=8", "epochs=1")]


SMALL += ["-spartition.clients=6", "-spartition.shards_per_client=2"]
ONE_CELL = ["-salgorithms=Dot-Regression", "-sterms=fd", "-srounds=1"]


def test_the_command_runs_a_cell_and_keeps_it(pictures, tmp_path):
    arguments = ("feddr-table2", "--data", pictures, "--out", tmp_path / "grid", *ONE_CELL, *SMALL)
    for data in (pictures, f"cifar100={pictures}"):  # the second time it is read
        done = command("feddr-table2", "--data", data, *arguments[3:])
        assert done.exit_code == 0, done.output
        assert "| Dot-Regression / fd | shards |" in done.output
    names = {path.name for path in (tmp_path / "grid").iterdir()}
    assert {"feddr-table2.json", "grid.md", "grid.csv", "report.html"} <= names
    assert "shards-dot-regression-fd" in names


@pytest.mark.parametrize("name", ["feddr-figure7", "feddr-table5"])
def test_every_study_begins_with_its_cells(name, pictures, tmp_path, monkeypatch):
    """What is run, not the runs: they take minutes."""
    asked = []
    monkeypatch.setattr(
        feddr_grid, "run_grid", lambda cells, config, *_: asked.append((cells, config)) or []
    )
    changes = ["-srounds=4", *(SMALL if name == "feddr-table5" else SMALL[:-1])]
    done = command(name, "--data", pictures, "--out", tmp_path / "out", *changes)
    assert done.exit_code == 0, done.output
    ((cells, config),) = asked
    assert config.cohort == 1  # a tenth of six clients
    assert config.matched == (name == "feddr-table5")
    assert config.partition.name == ("shards" if name == "feddr-table5" else "dirichlet")
    assert {parsed(cell.pipeline).phases[1].rounds for cell in cells} <= {1, 4}


def test_the_command_times_rounds(pictures):
    changes = ["-smethods=fedavg,FedDr+", "-srepeats=1", *SMALL]
    done = command("feddr-table4", "--data", pictures, *changes)
    assert done.exit_code == 0, done.output
    assert "| fedavg | to fedavg |  | 1 |" in done.output
    assert "| feddr-plus | FLOPs to fedavg |  | 1.33 |" in done.output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("pipeline=none", "pipeline: expected none, for each cell has its own"),
        ("network=mobilnet", "network: expected one of .*, got 'mobilnet'"),
        ("partition=iid", "partition: expected one of shards, dirichlet, got 'iid'"),
        ("rounds=0", "rounds: expected a whole number of at least 1, got 0"),
        ("terms=3", "terms: expected names with commas between them, got 3"),
        ("rounds", "change: expected key=value, got 'rounds'"),
        ("colour=3", "config: unknown key 'colour'"),
        ("partition.clients=[]", "partition: expected a number of clients, got "),
    ],
)
def test_a_wrong_setting_is_one_line(pictures, tmp_path, change, said):
    out = tmp_path / "grid"
    done = command("feddr-table2", "--data", pictures, "--out", out, *SMALL, f"-s{change}")
    assert isinstance(done.exception, HeadstartError)
    assert re.search(said, str(done.exception))
    assert not out.exists()


def test_studies_have_one_seed_and_others_no_settings(pictures):
    done = command("feddr-table2", "--data", pictures, "--seeds", "3")
    assert "seeds: expected 1 for feddr-table2, got 3" in str(done.exception)
    done = command("thesis-table3.6", "-srounds=3")
    assert "thesis-table3.6: expected no settings, got 'rounds=3'" in str(done.exception)
    with pytest.raises(HeadstartError, match="folder: expected a folder"):
        reproduce("feddr-table2", {"cifar100": str(pictures)}, changes=[c[2:] for c in SMALL])

"""Grids of runs: the cells of the paper's tables, one folder each, and what is done only once."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from headstart import HeadstartError, gradient
from headstart.cli import app
from headstart.data.datasets import Dataset
from headstart.data.samples import ArraySamples
from headstart.federation.protocol import ClientData
from headstart.gradient import diagnose
from headstart.gradient.engine import Training
from headstart.papers import feddr_grid, feddr_table2, feddr_table4, feddr_table5, reproduce
from headstart.papers import feddr_paper as paper
from headstart.papers.feddr_figure7 import figure_cells
from headstart.papers.feddr_grid import Cell, Schedule, paper_split, rows_of, run_grid
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import Experiment, prepare
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.run import simulate
from headstart.report import page
from headstart.results import RunResult

SHORT = {"rounds": 2, "epochs": 1}


def table_2(split="shards", **settings):
    return feddr_table2.table_cells(feddr_table2.Settings(**settings), split)


def table_5(split, clients, cohort, **settings):
    return feddr_table5.table_cells(feddr_table5.Settings(**settings), split, clients, cohort)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Four classes of coloured squares, 16 of each."""
    root, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for name, colour in zip("abcd", rng.integers(40, 216, (4, 3)), strict=True):
        (root / name).mkdir()
        for number in range(16):
            noise = rng.normal(0, 30, (8, 8, 3))
            pixels = np.clip(colour + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


def settings(pictures, **more):
    return make_config(
        {
            "data": str(pictures),
            "network": "small_cnn",
            "pixels": 8,
            "cohort": 3,
            "partition": {"name": "shards", "clients": 6, "shards_per_client": 2},
            **more,
        }
    )


def told(experiment, text):
    return simulate(experiment, parsed(text))[0]


def model_of(experiment, text):
    return simulate(experiment, parsed(text))[1]


# -- which cells -----------------------------------------------------------------------------------


def test_table_2_is_six_algorithms_by_seven_terms_with_the_betas_of_table_12():
    for split in paper.SPLITS:
        cells = table_2(split)
        assert len(cells) == 42 == len({cell.folder for cell in cells})
        found = {(cell.row, cell.column): cell for cell in cells}
        plus = parsed(found["Dot-Regression", "fd"].pipeline).phases[1]
        assert (plus.name, plus.rounds) == ("dot-regression", 320)
        assert plus.settings["mix"] == 0.9
        assert plus.settings["lr"] == 5.0
        assert plus.settings["drops"] == "160,240"
        base = parsed(found["SphereFed", "none"].pipeline)
        assert base.init.name == "orthonormal"
        assert "mix" not in base.phases[1].settings
    shards = {(c.row, c.column): c for c in table_2()}
    assert shards["Dot-Regression", "fd"].paper == 48.69
    assert parsed(shards["FedETF", "moon"].pipeline).phases[1].settings["mix"] == 0.3
    nines = {(c.row, c.column): c for c in table_2("dirichlet", beta=0.9)}
    assert nines["SphereFed", "prox"].paper == 1.46
    assert parsed(nines["FedAvg", "kd"].pipeline).phases[1].settings["mix"] == 0.9
    assert all(cell.paper is None for cell in table_2(beta=0.3))


def test_what_no_table_has_is_named():
    with pytest.raises(HeadstartError, match=r"algorithms: expected .*, got 'FedSGD'"):
        table_2(algorithms=["FedSGD"])
    with pytest.raises(HeadstartError, match=r"terms: expected one of none, prox, .*, got 'l2'"):
        table_2(terms="none,l2")


def test_the_usual_setting_of_the_sensitivity_study_is_one_run():
    cells = figure_cells(Schedule(**SHORT), 100, 10)
    assert len({cell.folder for cell in cells}) == len(cells) == 4 * 4 + 4 * 4 + 7
    usual = {str(parsed(c.pipeline)) for c in cells if c.row == "FedDr+" and c.column == "0.9"}
    ratio = {str(parsed(c.pipeline)) for c in cells if c.row == "FedDr+" and c.column == "0.1"}
    assert usual & ratio
    few = figure_cells(Schedule(**SHORT), 4, 3)
    ratios = [c for c in few if c.row == "FedAvg" and c.table == "client ratio"]
    assert [c.column for c in ratios] == ["0.05", "0.5"]  # one client, or two
    others = [parsed(c.pipeline).phases[1] for c in few if c.table != "client ratio"]
    assert all(phase.settings["clients"] == 3 for phase in others)


def test_every_pipeline_of_the_personal_tables_is_one():
    cells = table_5("dirichlet", 100, 10)
    assert len({cell.folder for cell in cells}) == len(cells) == 16
    found = {cell.row: parsed(cell.pipeline) for cell in cells}
    assert found["FedDr+FT (DR)"].phases[2].settings["like"] == "dot-regression"
    assert found["FedDr+FT (DR)"].phases[2].settings["lr"] == pytest.approx(0.05)
    assert found["Local only (CE)"].phases[1].rounds == 32
    assert {cell.row: cell.paper for cell in cells}["FedDr+FT (Dr+)"] == 74.75
    assert found["Local only (DR)"].phases[1].settings["lr"] == 5.0
    assert found["Local only (CE)"].phases[1].settings["lr"] == 0.1
    assert found["FedAvg-FT"].phases[2].settings["momentum"] == 0.9
    fifth = {c.row: parsed(c.pipeline) for c in table_5("shards", 100, 50, **SHORT)}
    assert fifth["Local only (CE)"].phases[1].rounds == 1


@pytest.mark.parametrize(
    ("rounds", "drops"), [(1, None), (2, "1"), (3, "1,2"), (4, "2,3"), (320, "160,240")]
)
def test_the_rate_drops_within_the_rounds_and_not_twice_at_once(rounds, drops):
    text = f"none + {Schedule(rounds).phrase('fedavg')}"
    assert str(parsed(text).phases[1].settings.get("drops", "None")) == str(drops)


def test_a_rate_of_nothing_is_no_rate(pictures, tmp_path):
    cells = table_2(rounds=2, lr=0.0, algorithms="fedavg", terms=["FD"])
    assert [(cell.row, cell.column) for cell in cells] == [("FedAvg", "fd")]
    with pytest.raises(HeadstartError, match=r"rate: expected .*, got 0"):
        run_grid(cells, settings(pictures), tmp_path, "A grid")
    with pytest.raises(HeadstartError, match="beta: expected"):
        table_2(beta=1.5)


# -- carried out -----------------------------------------------------------------------------------


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


def command(*words):
    return CliRunner().invoke(app, ["reproduce", *map(str, words)])


SMALL = [f"-s{change}" for change in ("network=small_cnn", "pixels=8", "epochs=1")]
SMALL += ["-spartition.clients=6", "-spartition.shards_per_client=2"]
ONE_CELL = ["-salgorithms=Dot-Regression", "-sterms=fd", "-srounds=1"]


def test_the_command_runs_a_cell_and_keeps_it(pictures, tmp_path):
    words = ("feddr-table2", "--data", pictures, "--out", tmp_path / "grid", *ONE_CELL, *SMALL)
    for data in (pictures, f"cifar100={pictures}"):  # the second time it is read
        done = command("feddr-table2", "--data", data, *words[3:])
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


# -- frozen heads in pipelines ---------------------------------------------------------------------


def test_directions_are_what_predicts(pictures):
    """A loss of directions makes a head's rows unit and takes its bias away."""
    prepared = prepare(settings(pictures))
    stage = model_of(prepared, "none + dot-regression-1(lr=1e-9)")
    np.testing.assert_allclose(np.linalg.norm(stage.params["head.weight"], axis=1), 1, rtol=1e-6)
    assert not stage.params["head.bias"].any()
    kept = model_of(prepared, "none + FedBABU-1")
    start = model_of(prepared, "none")
    for name in ("head.weight", "head.bias"):
        assert np.array_equal(kept.params[name], start.params[name])
    assert kept.last.train == "extractor"


def test_a_closed_form_head_can_be_a_target(pictures):
    prepared = prepare(settings(pictures))
    start, stage = (model_of(prepared, text) for text in ("Fed3R", "Fed3R + dot-regression-1(φ)"))
    np.testing.assert_allclose(stage.params["head.weight"], start.params["head.weight"], atol=1e-6)
    moved = [n for n in start.params if not np.array_equal(stage.params[n], start.params[n])]
    assert any(name.startswith("extractor.") for name in moved)
    assert stage.last.training.rate == pytest.approx(0.5)  # a tenth of its own


def test_frames_are_not_calibrated_and_what_trains_towards_them_begins_anew(pictures):
    prepared = prepare(settings(pictures))
    for text, rate in (("ETF + FedDr+-1", 5.0), ("Orthonormal + SphereFed-1", 6.5)):
        stage = model_of(prepared, text)
        assert stage.spec.temperature == 1
        assert stage.last.training.rate == rate


def test_at_home_clients_go_on_with_the_objective_they_trained_with(pictures):
    prepared = prepare(settings(pictures, held_out=0.3))
    texts = ("", "(like=dot-regression)", "(like=FedDr+)", "(like=fedavg, φ)")
    found = [told(prepared, f"ETF + FedDr+-1(lr=0.1) + FP-2{text}").personal for text in texts]
    assert found[0] == found[2]
    assert all(own.clients == found[0].clients for own in found)
    with pytest.raises(HeadstartError, match=r"like: expected one of .*, got 'fedsgd'"):
        told(prepared, "ETF + FP-1(like=fedsgd)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ETF + FedDr+-1(ψ)", "expected to train the extractor alone"),
        ("none + FedBABU-1(f)", "expected to train the extractor alone"),
        ("none + FedAvg-1(term=l2)", "term: expected one of none, prox, fd, kd, ld, moon, ntd"),
        ("none + FedAvg-1(mix=0.5)", "mix: expected a term to mix with, got none"),
        ("ETF + FedDr+-1(term=fd)", "term: expected another than fd, which this method has"),
        ("none + FedProx-1(term=prox)", "term: expected another than prox, which this method"),
    ],
)
def test_what_cannot_be_trained_is_said(pictures, text, said):
    with pytest.raises(HeadstartError, match=said):
        told(prepare(settings(pictures)), text)


def test_features_have_no_extractor_to_train_and_random_networks_no_statistics(pictures):
    digits = {"data": "digits", "partition": {"name": "iid", "clients": 3}}
    with pytest.raises(HeadstartError, match="expected an extractor that trains"):
        told(prepare(make_config(digits)), "ETF + FedDr+-1")
    config = settings(pictures, network="mobilenet")
    with pytest.raises(HeadstartError, match="batch_norm: expected average or local for mobilenet"):
        told(prepare(config), "ETF + FedDr+-1")


def test_matched_tests_and_held_out_parts_exclude_each_other(pictures):
    with pytest.raises(HeadstartError, match="held_out: with matched"):
        settings(pictures, matched=True, held_out=0.3)
    prepared = prepare(settings(pictures, matched=True))
    for client in prepared.clients.values():
        assert set(client.test.labels) <= set(client.samples.labels)
        assert len(client.test.labels)


# -- diagnostics -----------------------------------------------------------------------------------


def test_diagnostics_are_off_unless_asked_for_and_change_no_model(pictures):
    text = "ETF + FedDr+-2(lr=0.5)"
    plain, first, _ = simulate(prepare(settings(pictures)), parsed(text))
    asked, second, _ = simulate(prepare(settings(pictures, diagnostics=True)), parsed(text))
    assert {point.diagnosis for point in plain.curve} == {None}
    assert all(set(point.diagnosis) == set(diagnose.NAMES) for point in asked.curve[1:])
    assert [p.accuracy for p in plain.curve] == [p.accuracy for p in asked.curve]
    assert [p.down for p in plain.curve] == [p.down for p in asked.curve]
    for name, array in first.params.items():
        assert np.array_equal(array, second.params[name])
    assert "Features and the head" in page([RunResult((asked,))])
    assert "Features and the head" not in page([RunResult((plain,))])


def test_a_rate_of_almost_nothing_moves_no_feature(pictures):
    still = told(prepare(settings(pictures, diagnostics=True)), "ETF + FedDr+-1(lr=1e-20)")
    point = still.curve[-1].diagnosis
    for kind in diagnose.KINDS:
        assert point[f"{kind}_gap"] == pytest.approx(0, abs=1e-6)
        assert point[f"{kind}_distance"] == pytest.approx(0, abs=1e-6)
        assert -1 <= point[f"{kind}_alignment"] <= 1
    moved = told(prepare(settings(pictures, diagnostics=True)), "ETF + FedDr+-1(lr=1.0)")
    assert moved.curve[-1].diagnosis["observed_gap"] > 0
    assert moved.curve[-1].diagnosis["observed_angle"] > 1


def test_every_method_of_table_4_is_one():
    assert set(paper.TABLE_4) <= set(gradient.METHODS)

"""Clients come and go: every file of the folder is as if the run had had these clients."""

import itertools
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import headstart as hs
from headstart import files
from headstart.data.datasets import load
from headstart.errors import SkippedWarning
from headstart.pipeline.change import add, forget
from headstart.pipeline.config import make_config
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.run import compare, run_config

GONE = "clinic-Zürich-77"
NAMES = ("alder", "birch", GONE, "dogwood", "elm")
PIPELINE = "Fed3R(ridge=1.0)"


def table(folder, names=NAMES):
    """Digits of these clients, and the outside test samples, in a file `mine.npz`."""
    digits = load("digits")
    owner = np.array(NAMES)[np.arange(len(digits)) % len(NAMES)]
    kept = digits.test | np.isin(owner, names)
    folder.mkdir(exist_ok=True)
    np.savez(
        folder / "mine.npz",
        features=digits.features[kept],
        label=digits.labels[kept],
        client=owner[kept],
        is_test=digits.test[kept],
    )
    return str(folder / "mine.npz")


def samples(folder, name):
    """What one of them brings if it comes later."""
    digits = load("digits")
    own = ~digits.test & (np.array(NAMES)[np.arange(len(digits)) % len(NAMES)] == name)
    np.savez(folder / f"{name}.npz", X=digits.features[own], y=digits.labels[own])
    return str(folder / f"{name}.npz")


def fitted(data, path, **more):
    settings = {"data": data, "pipeline": PIPELINE, "bound": 1.0, **more}
    run_config(make_config(settings), path)
    return RunFolder(path)


def quick_report(results, folder):
    """All that a report may show, without the seconds that its pictures take."""
    (result,) = results
    for path in folder.glob("*.csv"):
        path.unlink()
    files.write_text(folder / "report.html", result.runs[0].to_json())


@pytest.fixture
def quick(monkeypatch):
    for module in ("run", "renew"):
        monkeypatch.setattr(f"headstart.pipeline.{module}.write_report", quick_report)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole")
    return fitted(table(root), root / "run", held_out=0.3)


@pytest.fixture
def mine(whole, tmp_path):
    """A copy of a run of five clients."""
    shutil.copytree(whole.path, tmp_path / "mine")
    return RunFolder(tmp_path / "mine")


def naming(folder, name):
    """The files below a folder that have a name in them, or in their own, however it is written."""
    spelled = [name.encode(), json.dumps(name)[1:-1].encode(), name.encode("utf-16-le")]
    return [
        path.relative_to(folder.path)
        for path in sorted(folder.path.rglob("*"))
        if name in path.name
        or path == folder.upload_path(name)
        or (path.is_file() and any(word in path.read_bytes() for word in spelled))
    ]


def plain(folder):
    """The result of a run, but for times and the digest of all that its data hold."""
    found = folder.result()
    return replace(found, created="", seconds=None, data=replace(found.data, digest=""))


def same(one, two):
    """Results, model and list of clients."""
    assert plain(one) == plain(two)
    for name in ("model.safetensors", "total.safetensors"):
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes()
    assert one.members() == two.members()


def test_nothing_names_a_client_that_was_forgotten(mine):
    before = {str(path) for path in naming(mine, GONE)}
    assert {"results.json", "clients.csv", "events.jsonl", "clients.json"} <= before
    forget(mine.path, GONE)
    assert naming(mine, GONE) == []
    assert "4 clients" in (mine.path / "report.html").read_text()
    assert naming(mine, "birch")
    last = json.loads((mine.path / "events.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "forget"
    assert set(last) == {"time", "event", "upload", "total", "superseded"}


def test_a_forgotten_client_might_never_have_joined(tmp_path, quick):
    """The folder is that of a run on data without the client: every test and cost.

    (But for which samples the others hold out, were there any, and a first head's bandwidth.)
    """
    five = fitted(table(tmp_path / "all"), tmp_path / "five")
    rest = [name for name in NAMES if name != GONE]
    four = fitted(table(tmp_path / "rest", rest), tmp_path / "four")
    forget(five.path, GONE)
    same(five, four)


def test_who_joins_later_might_have_been_there_from_the_beginning(tmp_path, quick):
    late = NAMES[-1]
    four = fitted(table(tmp_path / "four", NAMES[:-1]), tmp_path / "run")
    five = fitted(table(tmp_path / "five"), tmp_path / "whole")
    add(four.path, late, samples(tmp_path, late))
    same(four, five)
    assert NAMES[-1] in (four.path / "report.html").read_text()
    forget(four.path, late)
    assert naming(four, late) == []
    same(four, fitted(table(tmp_path / "four", NAMES[:-1]), tmp_path / "again"))


def test_another_client_may_go_while_one_that_joined_later_stays(mine, tmp_path, quick):
    add(mine.path, "fir", samples(tmp_path, "elm"))
    forget(mine.path, GONE)
    assert naming(mine, GONE) == []
    found = plain(mine)
    assert [row.client for row in found.clients] == ["alder", "birch", "dogwood", "elm", "fir"]
    assert found.head.digest == found.pooled.digest


@pytest.mark.parametrize("kept", [True, False], ids=["uploads", "no uploads"])
def test_without_the_data_the_uploads_tell_what_they_can(tmp_path, kept):
    data = table(tmp_path / "data")
    folder = fitted(data, tmp_path / "run", keep_uploads=kept)
    rows = {row.client: row for row in plain(folder).clients}
    own = samples(tmp_path, GONE)
    table(tmp_path / "data", [name for name in NAMES if name != GONE])  # its rows were deleted
    with pytest.warns(SkippedWarning, match="accuracies, for .*holds other samples than those of"):
        model = forget(folder.path, GONE, None if kept else own)
    assert naming(folder, GONE) == []
    assert model.temperature is None  # its samples had a part in it, and cannot be taken out
    found = plain(folder)
    assert found.accuracy is None
    assert found.data.samples == model.provenance["samples"]
    for row in found.clients:
        before = rows[row.client]
        assert (row.samples, row.classes, row.up) == (before.samples, before.classes, before.up)
    assert "4 clients" in (folder.path / "report.html").read_text()


class Stop(Exception):
    pass


def stopped(monkeypatch, number):
    """The writing of the file of this number is cut short."""
    count = itertools.count()
    replaced = os.replace

    def stop(*paths):
        if next(count) == number:
            raise Stop
        replaced(*paths)

    monkeypatch.setattr(files.os, "replace", stop)


def test_a_forgetting_that_is_cut_short_anywhere_is_finished_by_the_next(
    whole, tmp_path, monkeypatch, quick
):
    done = RunFolder(tmp_path / "done")
    shutil.copytree(whole.path, done.path)
    forget(done.path, GONE)
    for number in range(20):
        mine = RunFolder(tmp_path / f"cut-{number}")
        shutil.copytree(whole.path, mine.path)
        with monkeypatch.context() as patched:
            stopped(patched, number)
            try:
                forget(mine.path, GONE)
            except Stop:
                pass
            else:
                break
        forget(mine.path, GONE)
        assert naming(mine, GONE) == []
        same(mine, done)
    assert 5 < number < 20
    with pytest.raises(hs.HeadstartError, match="expected one of this run"):
        forget(mine.path, GONE)


def test_the_next_change_finishes_a_forgetting_of_another(mine, tmp_path, monkeypatch, quick):
    with monkeypatch.context() as patched:
        stopped(patched, 3)  # after the total, its list and the model
        with pytest.raises(Stop):
            forget(mine.path, GONE)
    assert naming(mine, GONE)
    add(mine.path, "fir", samples(tmp_path, "elm"))
    assert naming(mine, GONE) == []


def test_names_that_begin_alike_are_told_apart(tmp_path, quick):
    data = table(tmp_path)
    with np.load(data) as arrays:
        told = dict(arrays)
    told["client"] = np.where(told["client"] == "elm", f"{GONE}-b", told["client"])
    np.savez(Path(data), **told)
    folder = fitted(data, tmp_path / "run")
    forget(folder.path, GONE)
    assert f"{GONE}-b" in folder.members()
    assert f"{GONE}-b" in [row.client for row in plain(folder).clients]
    assert len(list((folder.path / "uploads").iterdir())) == 4


def test_who_is_forgotten_leaves_all_runs_of_a_comparison(tmp_path):
    settings = {"data": table(tmp_path / "data"), "bound": 1.0}
    compare(
        ["Fed3R", "Fed3R-RF(bandwidth=auto, dimension=40)"],
        make_config(settings),
        tmp_path / "both",
    )
    forget(tmp_path / "both", GONE)
    assert naming(RunFolder(tmp_path / "both"), GONE) == []
    for number in ("01", "02"):
        assert GONE not in RunFolder(tmp_path / "both" / number).members()

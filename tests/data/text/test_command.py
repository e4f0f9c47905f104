"""Sentences on the command line: from a table to predictions."""

import csv
import json

import pytest

from .small_model import SMALL, store, tensors, write_model


@pytest.fixture
def cli(small, tmp_path, monkeypatch, capsys):
    """A command on a small network; its exit code is 0 unless `fails`, which is one line."""
    from headstart.cli import main

    monkeypatch.chdir(tmp_path)
    weights = write_model(tmp_path / "model")

    def run(*arguments, fails=False):
        monkeypatch.setattr("sys.argv", ["headstart", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        assert end.value.code == (2 if fails else 0), said.err
        assert not fails or "\n" not in said.err.strip(), said.err
        return said.err if fails else said.out

    run.options = ("--text", "text", "--extractor", "tiny", "--weights", weights)
    run.weights = weights
    return run


def test_from_a_csv_to_predictions(cli, table, tmp_path):
    cli("fit", "--data", table, *cli.options, "--out", "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["head"]["digest"] == results["pooled"]["digest"] != ""
    new = store(tmp_path / "new.csv", [("my lost card",), ("where, pay?",)], ("text",))
    lines = list(
        csv.reader(cli("predict", "run", "--data", new, "--weights", cli.weights).split("\n"))
    )
    assert lines[0][:2] == ["sample", "class"]
    assert [line[0] for line in lines[1:3]] == ["my lost card", "where, pay?"]
    assert {line[1] for line in lines[1:3]} <= {"c0", "c1"}
    said = cli("features", "--data", table, *cli.options, "--out", "table.npz")
    assert f"75 samples of dimension {SMALL.dimension} in table.npz" in said
    by_text = cli("evaluate", "run", "--data", table, "--weights", cli.weights)
    assert "accuracy" in by_text
    assert cli("evaluate", "run", "--data", "table.npz") == by_text
    pytest.importorskip("onnx")
    assert "features to classes" in cli("export", "run", "--out", "head.onnx")
    late = store(tmp_path / "late.csv", [("lost", "c0"), ("my card", "c1")], ("text", "label"))
    assert "late is in" in cli("add", "run", "--data", late, "--client", "late")
    assert "late is out" in cli("forget", "run", "late")


def test_mistakes_are_one_line(cli, table, tmp_path):
    npz, out = tmp_path / "table.npz", ("--out", "x.npz")
    cli("features", "--data", table, *cli.options, "--out", npz)
    cli("fit", "--data", npz, "--out", "plain")
    cli("fit", "--data", table, *cli.options, "--out", "run")
    other = write_model(tmp_path / "other", tensors=tensors(seed=7))
    mistakes = {
        "name the column (--text)": ("features", "--data", table, "--extractor", "tiny", *out),
        "expected one of": (
            "features",
            "--data",
            table,
            "--text",
            "text",
            "--extractor",
            "x",
            *out,
        ),
        "engine: sentences run on NumPy": (
            *("features", "--data", table, *cli.options, "--engine", "torch", *out),
        ),
        "expected a .csv or .tsv file": ("features", "--data", npz, *cli.options, *out),
        "fitted to features": ("predict", "plain", "--data", table, "--text", "text"),
        "expected a column 'text'": (
            *("predict", "run", "--data", store(tmp_path / "n.csv", [("1",)], ("body",))),
            *("--weights", cli.weights),
        ),
        "(other weights)": ("predict", "run", "--data", table, "--weights", other),
        "tiny is not here": ("predict", "run", "--data", table),
    }
    for said, arguments in mistakes.items():
        assert said in cli(*arguments, fails=True)

"""The command line as a user meets it: what it prints, and one line for every mistake."""

import subprocess
import sys

import numpy as np
import pytest

from headstart.data.datasets import load


@pytest.fixture
def headstart(tmp_path):
    def call(*words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "headstart", *map(str, words)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr.strip()

    return call


@pytest.fixture
def table(tmp_path):
    """A CSV of a user's own: string labels, a client column, a split."""
    data = load("digits")
    kept = np.arange(0, len(data), 4)
    with open(tmp_path / "mine.csv", "w") as file:
        names = ",".join(f"f{j}" for j in range(data.dimension))
        file.write(f"who,what,part,{names}\n")
        for i in kept:
            part = "test" if data.test[i] else "train"
            numbers = ",".join(f"{v:g}" for v in data.features[i])
            file.write(f"site{i % 5},digit-{data.labels[i]},{part},{numbers}\n")
    return "mine.csv"


def test_the_demo_says_that_the_bits_are_the_same(headstart, tmp_path):
    said = headstart("demo", "--clients", "12")
    assert "the same bits" in said
    for head in ("Fed3R", "Fed3R-RF", "FedNCM", "FedCOF", "LDA", "pooled ridge"):
        assert head in said
    assert (tmp_path / "runs" / "demo-1" / "report.html").exists()
    accuracies = {line.split()[0]: line.split() for line in said.splitlines() if line.strip()}
    assert accuracies["Fed3R"][1] == accuracies["pooled"][2]


def test_from_ones_own_csv_to_predictions(headstart, table, tmp_path):
    columns = ("--label", "what", "--client", "who", "--split", "part")
    said = headstart("fit", "--data", table, *columns, "--out", "out")
    assert "the same bits" in said
    assert "5 clients" in said
    scored = headstart(
        "evaluate", "out", "--data", table, "--label", "what", "--split", "part", "--client", "who"
    )
    assert float(scored.split("accuracy")[1].split()[0]) > 0.7
    headstart("predict", "out", "--data", table, *columns, "--out", "guess.csv")
    lines = (tmp_path / "guess.csv").read_text().splitlines()
    assert lines[0] == "sample,class,probability"
    assert lines[1].split(",")[1].startswith("digit-")


def test_add_and_forget(headstart):
    headstart("fit", "--data", "digits", "--clients", "6", "--alpha", "0.5", "--out", "out")
    before = headstart("evaluate", "out", "--data", "digits")
    said = headstart("add", "out", "--data", "digits", "--client", "late")
    total = said.rsplit("total", 1)[1]
    assert headstart("forget", "out", "late").rsplit("total", 1)[1] != total
    assert headstart("evaluate", "out", "--data", "digits") == before


def test_run_takes_a_file_and_changes(headstart, tmp_path):
    (tmp_path / "c.yaml").write_text("data: digits\npartition: {name: iid, clients: 4}\n")
    assert "7 clients" in headstart("run", "c.yaml", "partition.clients=7", "heads=fedncm")


def test_list_names_everything(headstart):
    from headstart.data.partition import PARTITIONERS
    from headstart.heads import catalogue

    said = headstart("list")
    for name in [*catalogue(), *PARTITIONERS, "digits", "int8"]:
        assert name in said


def test_doctor_and_version(headstart):
    assert "numpy" in headstart("doctor")
    assert headstart("--version").strip() == __import__("headstart").__version__


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("fit", "--data", "nothing.csv"), "no such file"),
        (("fit", "--data", "digits", "--head", "fed4r"), "did you mean 'fed3r'"),
        (("fit", "--data", "digits", "--ridge", "lots"), "ridge"),
        (("fit", "--data", "digits", "--partition", "dirichlet"), "clients, alpha"),
        (("run", "nothing.yaml"), "cannot read"),
        (("evaluate", "nothing", "--data", "digits"), "cannot read"),
        (("predict", "bad.safetensors", "--data", "digits"), "malformed"),
        (("add", "nowhere", "--data", "digits", "--client", "x"), "no run folder"),
        (("forget", "nowhere", "x"), "no run folder"),
        (("fit", "--data", "bad.safetensors"), "expected a .csv"),
        (("fit", "--data", "digits", "--out", "bad.safetensors/x"), "output"),
    ],
)
def test_a_mistake_is_one_clear_line(headstart, tmp_path, words, hint):
    (tmp_path / "bad.safetensors").write_bytes(b"\x00" * 64)
    said = headstart(*words, code=2)
    assert said.startswith("error: ")
    assert hint in said
    assert len(said.splitlines()) == 1

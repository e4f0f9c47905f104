"""The command line with few extras installed: it does what it can, and says what the rest needs.

`make test-extras` tries the same in real installations of the wheel.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from PIL import Image

from headstart import HeadstartError
from headstart.federation.protocol import STEPS, step_kind
from headstart.optional import EXTRAS
from headstart.pipeline.config import make_config
from headstart.pipeline.costs import Meter
from headstart.pipeline.experiment import prepare

PILLOW = {"PIL"}  # which matplotlib brings
PACKAGES = {package for packages in EXTRAS.values() for package in packages} - PILLOW
DIGITS = ("--data", "digits", "partition.clients=5")
START = """
import sys
from importlib.machinery import PathFinder

class Installed:
    @staticmethod
    def find_spec(name, path=None, target=None):
        hidden = name.partition(".")[0] in absent
        return None if hidden else PathFinder.find_spec(name, path, target)

absent = sys.argv.pop(1).split(",")
sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
sys.argv[0] = "headstart"
from headstart.cli import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=open("modules.txt", "w"))
"""


@pytest.fixture
def headstart(tmp_path):
    """The command line as if only the core and these extras were installed."""

    def call(*arguments, extras=(), code=0):
        there = {package for extra in extras for package in EXTRAS[extra]}
        absent = ",".join(sorted(PACKAGES - there))
        done = subprocess.run(
            [sys.executable, "-c", START, absent, *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "HEADSTART_CACHE": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr.strip()

    return call


def imported(tmp_path):
    return set((tmp_path / "modules.txt").read_text().split())


def results(folder):
    return {**json.loads((folder / "results.json").read_text()), "seconds": 0, "created": ""}


@pytest.mark.parametrize(
    "pipeline", ["Fed3R", "OLL(FedNCM)", "Fed3R + prior", "LDA + ridge", "Fed3R-RF(dimension=80)"]
)
def test_closed_forms_need_no_torch_and_do_not_import_it(headstart, tmp_path, pipeline):
    headstart("run", pipeline, *DIGITS, "--out", "core")
    headstart("run", pipeline, *DIGITS, "--out", "torch", extras=["torch"])
    assert "torch" not in imported(tmp_path)
    assert results(tmp_path / "core") == results(tmp_path / "torch")
    assert results(tmp_path / "core")["accuracy"] > 0.7
    assert (tmp_path / "core" / "report.html").exists()
    assert "accuracy" in headstart("evaluate", "core", "--data", "digits")


def test_closed_forms_are_compared_without_torch(headstart, tmp_path):
    said = headstart("compare", "Fed3R", "OLL(LDA)", "--data", "digits", "--out", "both")
    assert "OLL(LDA)" in said
    assert (tmp_path / "both" / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "phase"),
    [
        (("run", "Fed3R + FedAvg-3(head)", "--data", "nothing.csv"), "FedAvg-3"),
        (("run", "none", "--data", "nothing.csv"), "none"),
        (("run", "OLL(Fed3R) + FP(head)", "--data", "nothing.csv"), "FP(ψ)"),
        (("compare", "Fed3R", "Fed3R + Ditto-3", "--data", "nothing.csv"), "Ditto-3"),
    ],
)
def test_training_names_its_extra_before_anything_is_done(headstart, tmp_path, arguments, phase):
    said = headstart(*arguments, "--out", "out", code=2)
    assert said.startswith(f"error: {phase}")
    assert said.endswith(': torch is needed and not installed: pip install "headstart[torch]"')
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "what", "extra"),
    [
        (("run", "Fed3R", "--data", "x.csv", "network=small_cnn"), "network: torch", "vision"),
        (("reproduce", "feddr-table2", "--data", "x", "--out", "o"), "network: torch", "vision"),
        (("reproduce", "feddr-table4", "--data", "x"), "network: torch", "vision"),
        (
            ("run", "Fed3R", "--data", "x", "writers=[mlflow]"),
            "writers: mlflow-skinny",
            "mlflow",
        ),
        (("fit", "--data", "x.parquet"), "x.parquet: pyarrow", "parquet"),
        (("fit", "--data", "images"), "torch", "vision"),
        (("deploy", "init", "fed", "--node", "a", "--dimension", "4"), "cryptography", "flower"),
    ],
)
def test_every_other_hint_is_one_line(headstart, tmp_path, arguments, what, extra):
    (tmp_path / "x.parquet").write_bytes(b"")
    (tmp_path / "images" / "ann" / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "ann" / "cat" / "1.png")
    said = headstart(*arguments, code=2)
    hint = f'{what} is needed and not installed: pip install "headstart[{extra}]"'
    assert said == f"error: {hint}"


def test_export_names_the_extra_that_helps(headstart):
    headstart("run", "Fed3R", *DIGITS, "--out", "run")
    for extras in ((), ("torch",)):
        said = headstart("export", "run", "--out", "head.onnx", extras=extras, code=2)
        assert said.endswith('onnx is needed and not installed: pip install "headstart[vision]"')
    headstart("export", "run", "--out", "head.onnx", extras=["vision"])


def test_torch_alone_trains_keeps_checkpoints_and_predicts(headstart, tmp_path):
    pipeline = "Fed3R + FedAvg-3(head)"
    arguments = ("run", pipeline, *DIGITS, "checkpoint_every=1", "--out", "run")
    headstart(*arguments, extras=["torch"])
    assert results(tmp_path / "run")["curve"][-1]["round"] == 3
    assert "safetensors" not in imported(tmp_path)
    said = headstart("predict", "run", "--data", "digits")
    assert said.splitlines()[0] == "sample,class,probability"


def test_doctor_says_yes_where_all_of_an_extra_is_there(headstart):
    said = headstart("doctor", extras=["torch", "flower"])
    lines = {" ".join(line.split()[:2]): " ".join(line.split()[2:]) for line in said.splitlines()}
    found = {extra: lines[f"extra {extra}"] for extra in EXTRAS}
    assert {extra for extra, line in found.items() if line.startswith("yes")} == {
        "torch",
        "secure",
        "flower",
    }
    assert found["vision"].startswith("no (without onnxruntime, onnx, onnxscript,")
    assert found["mlflow"] == "no (without mlflow-skinny)"


def test_a_node_without_torch_says_so_when_it_is_asked_to_train(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    step_kind("measure")
    monkeypatch.setattr(STEPS, "_entries", STEPS._listed())  # nobody has asked for it before
    with pytest.raises(HeadstartError, match=r"^step update: torch is needed .*headstart\[torch\]"):
        step_kind("update")


def test_the_cost_of_an_extractor_is_counted_where_torch_is(monkeypatch):
    config = make_config({"data": "digits", "partition": {"name": "iid", "clients": 3}})
    made = {"name": "squeezenet1_1", "preprocess": {"size": 64}}
    context = replace(prepare(config), extractor=made).context()
    assert Meter.of(context).forward > 1e6
    monkeypatch.setitem(sys.modules, "torch", None)
    assert Meter.of(context).forward == 0

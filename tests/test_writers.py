"""Metric writers: the calls that each makes, on a recorded module and, if there, the real one."""

import importlib.util
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from headstart import HeadstartError
from headstart.writers import WRITERS, writer

MODULES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
SENTENCE = "fed3r + fedavg-50(ψ)"
QUIET = ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_ALLOW_FILE_STORE", "WANDB_ERROR_REPORTING")


class Recorded(ModuleType):
    """A module whose every call is written down, and answers with `answers`."""

    def __init__(self, name: str, **answers: Any) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*values: Any, **named: Any) -> Any:
            self.calls.append((name, values, named))
            return self.answers.get(name, self)

        return call

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.calls]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in QUIET:
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)


def write(name, folder):
    metrics = writer(name, folder)
    for step in (1, 2):
        metrics.scalar(f"{SENTENCE}/accuracy", 0.3 * step, step)
    metrics.text("sentence", SENTENCE)
    metrics.close()


def test_tensorboard(monkeypatch, tmp_path):
    fake = Recorded("tensorboardX")
    monkeypatch.setitem(sys.modules, "tensorboardX", fake)
    write("tensorboard", tmp_path)
    assert fake.calls == [
        ("SummaryWriter", (str(tmp_path.resolve() / "tensorboard"),), {}),
        ("add_scalar", ("fed3r _ fedavg-50_ψ_/accuracy", 0.3, 1), {}),
        ("add_scalar", ("fed3r _ fedavg-50_ψ_/accuracy", 0.6, 2), {}),
        ("add_text", ("sentence", SENTENCE), {}),
        ("close", (), {}),
    ]


@pytest.mark.parametrize("known", [True, False])
def test_mlflow(monkeypatch, tmp_path, known):
    run = SimpleNamespace(info=SimpleNamespace(run_id="r1"))
    found = SimpleNamespace(experiment_id="e1") if known else None
    fake = Recorded("mlflow", get_experiment_by_name=found, create_experiment="e1", create_run=run)
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    write("mlflow", tmp_path)
    place = (tmp_path.resolve() / "mlflow").as_uri()
    assert place.startswith("file:///")
    assert fake.calls[0] == ("MlflowClient", (), {"tracking_uri": place})
    assert ("create_experiment" in fake.names) is not known
    assert fake.calls[-5:] == [
        ("create_run", ("e1",), {}),
        ("log_metric", ("r1", "fed3r _ fedavg-50_ψ_/accuracy", 0.3), {"step": 1}),
        ("log_metric", ("r1", "fed3r _ fedavg-50_ψ_/accuracy", 0.6), {"step": 2}),
        ("log_text", ("r1", SENTENCE, "sentence.txt"), {}),
        ("set_terminated", ("r1",), {}),
    ]
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_wandb(monkeypatch, tmp_path):
    run = Recorded("run")
    run.summary = {}
    fake = Recorded("wandb", init=run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    write("wandb", tmp_path)
    (made,) = [named for name, _, named in fake.calls if name == "init"]
    assert made["mode"] == "offline"
    assert made["dir"] == str(tmp_path.resolve())
    assert run.calls == [
        ("define_metric", ("*",), {"step_metric": "step"}),
        ("log", ({"fed3r _ fedavg-50_ψ_/accuracy": 0.3, "step": 1},), {}),
        ("log", ({"fed3r _ fedavg-50_ψ_/accuracy": 0.6, "step": 2},), {}),
        ("finish", (), {}),
    ]
    assert run.summary == {"sentence": SENTENCE}
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"


def test_what_the_environment_says_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "true")
    monkeypatch.setitem(sys.modules, "wandb", Recorded("wandb"))
    writer("wandb", tmp_path)
    assert os.environ["WANDB_ERROR_REPORTING"] == "true"


@pytest.mark.parametrize("name", list(WRITERS))
def test_a_missing_package_is_named_with_the_command(monkeypatch, tmp_path, name):
    monkeypatch.setitem(sys.modules, MODULES[name], None)  # importing it fails
    with pytest.raises(HeadstartError, match=r"^writer: ") as error:
        writer(name, tmp_path / "run")
    assert f'pip install "headstart[{name}]"' in str(error.value)
    assert not (tmp_path / "run").exists()


def test_an_unknown_writer():
    with pytest.raises(HeadstartError, match="tensorboard, mlflow, wandb, got 'csv'"):
        writer("csv", "nowhere")


@pytest.mark.parametrize("name", list(WRITERS))
def test_the_real_one_leaves_its_files(tmp_path, name):
    """In a process of its own: these packages leave threads and warnings behind."""
    if importlib.util.find_spec(MODULES[name]) is None:
        pytest.skip(f"{MODULES[name]} is not installed")
    code = (
        "import sys; from pathlib import Path; from headstart.writers import writer\n"
        "w = writer(sys.argv[1], Path(sys.argv[2]))\n"
        "w.scalar('a b(ψ)/accuracy', 0.25, 3); w.text('sentence', 'words of it'); w.close()\n"
    )
    subprocess.run([sys.executable, "-c", code, name, str(tmp_path)], check=True)
    found = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
    data = b"".join(path.read_bytes() for path in found)
    assert b"words of it" in data
    assert any("accuracy" in str(path) for path in found) or b"_/accuracy" in data

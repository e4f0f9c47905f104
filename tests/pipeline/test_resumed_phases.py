"""A killed run goes on to the same bits, in whatever phase it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from headstart import LinearHead
from headstart.pipeline.checkpoint import Checkpoint
from headstart.pipeline.config import dump_config, make_config
from headstart.pipeline.experiment import prepare
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.run import run_config

from .helpers import DIGITS, result_of, run, timeless


def load(path):
    return RunFolder(path).result()


def test_the_yaml_form_says_the_same(tmp_path):
    text = "Fed3R(ridge=0.1) + FedAvg-2(head)"
    phases = [{"init": "fed3r", "ridge": 0.1}, {"train": "fedavg", "part": "head", "rounds": 2}]
    one, two = (make_config({**DIGITS, "pipeline": given}) for given in (text, phases))
    assert dump_config(one) == dump_config(two)
    (results,) = run_config(one, tmp_path / "run").runs
    assert load(tmp_path / "run") == results
    head = LinearHead.load(tmp_path / "run" / "model.safetensors")
    prepared = prepare(one)
    found = head.accuracy(prepared.test.features, prepared.test.labels)
    assert found == pytest.approx(results.accuracy)
    assert (tmp_path / "run" / "report.html").exists()
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    """kill -9 in the middle of a training with client memories; the end is the undisturbed one."""
    args = ["Fed3R + Scaffold-120(head) + Ditto-3", "--data", "digits", "checkpoint_every=3"]
    command = [sys.executable, "-m", "headstart", "run", *args, "--out"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    path = tmp_path / "killed" / "checkpoint.safetensors"
    process = subprocess.Popen([*command, str(tmp_path / "killed")], **quiet)
    deadline = time.monotonic() + 120
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    assert path.exists()
    assert not (tmp_path / "killed" / "results.json").exists()
    for name in ("killed", "undisturbed"):
        subprocess.run([*command, str(tmp_path / name)], check=True, **quiet)
    models = [tmp_path / name / "model.safetensors" for name in ("killed", "undisturbed")]
    assert models[0].read_bytes() == models[1].read_bytes()
    one, two = (load(model.parent) for model in models)
    assert timeless(one) == timeless(two)


def test_a_run_stopped_in_a_later_phase_goes_on_as_if_it_had_not_been(digits, tmp_path):
    text = "OLL(Fed3R + FedAvg-3(head)) + Ditto-6"
    whole = result_of(digits, text)
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", every=2)

    def stop(point):
        if (point.phase, point.round) == (3, 5):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(digits, text, checkpoint=checkpoint, watch=stop)
    again = run(digits, text, checkpoint=checkpoint)[0]
    assert timeless(again) == timeless(whole)

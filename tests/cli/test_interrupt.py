"""Ctrl-C: one line with the command that goes on, exit code 130, and what is done is kept."""

import hashlib
import shlex
import signal
import subprocess
import sys
import time
import warnings

import pytest

TOGO = "interrupted; what is done is kept, to go on: "


def start(folder, arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "headstart", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupted(folder, arguments, begun):
    """Begin, send SIGINT once there is a file like `begun`; the one line that is said."""
    process = start(folder, arguments)
    until = time.monotonic() + 120
    while not list(folder.glob(begun)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    (line,) = [line for line in said.splitlines() if line.strip()]
    return line


def finished(folder, arguments):
    process = start(folder, arguments)
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return said


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("arguments", "begun", "model"),
    [
        pytest.param(
            ["fit", "--data", "digits", "--partition", "iid", "--clients", "1400"],
            "runs/digits-1/uploads/*",
            "model.safetensors",
            marks=pytest.mark.long,
        ),
        pytest.param(
            ["run", "Fed3R + FedAvg-200(head)", "--data", "digits"],
            "runs/run-1/checkpoint.safetensors",
            "model.safetensors",
            marks=pytest.mark.long,
        ),
        (
            ["compare", "FedNCM", "Fed3R + FedAvg-200(head)", "--data", "digits"],
            "runs/compare-1/02/checkpoint.safetensors",
            "02/model.safetensors",
        ),
    ],
    ids=["fit", "run", "compare"],
)
def test_the_line_says_the_command_that_goes_on(tmp_path, arguments, begun, model):
    line = interrupted(tmp_path, arguments, begun)
    assert line.startswith(TOGO)
    again = shlex.split(line.removeprefix(TOGO))
    folder = begun.split("/")[1]
    assert again == ["headstart", *arguments, "--out", f"runs/{folder}"]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/uploads/*")}
    finished(tmp_path, again[1:])
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    finished(tmp_path, [*arguments, "--out", "whole"])
    assert digest(tmp_path / "runs" / folder / model) == digest(tmp_path / "whole" / model)


def test_a_folder_that_was_named_is_named_once(tmp_path):
    arguments = [
        "fit",
        "--data",
        "digits",
        "--partition",
        "iid",
        "--clients",
        "1400",
        "--out",
        "my run",
    ]
    line = interrupted(tmp_path, arguments, "my run/uploads/*")
    assert shlex.split(line.removeprefix(TOGO)) == ["headstart", *arguments]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("reproduce", "thesis-table3.6"), "this table begins again with: headstart reproduce"),
        (
            ("reproduce", "feddr-table2", "--data", "photos"),
            "to go on: headstart reproduce feddr-table2 --data photos --out",
        ),
        (("doctor",), "interrupted"),
    ],
)
def test_an_interruption_anywhere_is_one_line(monkeypatch, capsys, arguments, said):
    """Whatever a command was doing: here each is interrupted at its first step."""
    from headstart import cli
    from headstart.pipeline import doctor

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("headstart.papers.reproduce", stop)
    monkeypatch.setattr("headstart.papers.sources.find", lambda *_: {})
    monkeypatch.setattr(doctor, "findings", stop)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main has its own
    monkeypatch.setattr(sys, "argv", ["headstart", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.strip()]
    assert line.startswith("interrupted")
    assert said in line

"""What every command has: examples that it understands, `--quiet`, `--json`; and completion."""

import json
import os
import shlex
import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from headstart.cli import app
from headstart.cli.common import plain
from headstart.cli.examples import EXAMPLES, FIRST
from headstart.errors import HeadstartError

GROUP = typer.main.get_command(app)
SILENT = {"watch"}  # it serves, and has no results to print


def commands(group=GROUP, before=""):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


COMMANDS = dict(commands())


def call(*words):
    result = CliRunner().invoke(app, [*map(str, words)])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def parsed(example):
    """What the command line makes of it, up to running it."""
    words = shlex.split(example, comments=True)
    assert words.pop(0) == "headstart"
    command, context = GROUP, None
    while hasattr(command, "commands"):
        name = words.pop(0)
        command = command.commands[name]
        context = f"{context or ''} {name}".strip()
    return context, command.make_context(context, words).params


def test_every_command_has_examples_and_no_other_name_has():
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_understood_and_shown_line_by_line(name):
    shown = CliRunner().invoke(app, [*name.split(), "--help"]).stdout
    assert shown.rstrip().endswith(f"  {EXAMPLES[name][-1]}")
    for example in EXAMPLES[name]:
        assert f"  {example}\n" in shown
        assert parsed(example)[0] == name


def test_the_help_begins_with_three_commands_to_try():
    lines = [line.strip() for line in call("--help").splitlines() if line.strip()]
    usage, title, *rest = lines
    assert usage.startswith("Usage:")
    assert title == "Try:"
    assert rest[:3] == list(FIRST)
    assert [parsed(example)[0] for example in FIRST] == ["demo", "fit", "compare"]


def test_every_command_is_quiet_on_demand_and_those_with_results_speak_json():
    for name, command in COMMANDS.items():
        options = {flag for parameter in command.params for flag in parameter.opts}
        assert {"--quiet", "--plugin"} <= options, name
        assert ("--json" in options) == (name not in SILENT), name


def test_a_model_from_fit_to_forgetting_in_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted = json.loads(call("fit", "--data", "digits", "--clients", 6, "--out", "run", "--json"))
    (row,) = fitted["runs"]
    assert fitted["folder"] == "run"
    assert 0.8 < row["accuracy"] < 1
    scored = json.loads(call("evaluate", "run", "--data", "digits", "--json"))
    assert scored["accuracy"] == pytest.approx(row["accuracy"])
    guesses = json.loads(call("predict", "run", "--data", "digits", "--json"))
    assert {"sample", "class", "probability"} == set(guesses[0])
    assert 0 < guesses[0]["probability"] <= 1
    left = json.loads(call("forget", "run", "client-0", "--json"))
    assert left["samples"] < 1438
    assert json.loads(call("export", "run", "--out", "head.onnx", "--json"))["out"] == "head.onnx"


def test_lists_and_projects_in_json(tmp_path):
    names = {row["name"] for row in json.loads(call("list", "--json"))}
    assert {"fed3r", "fedavg", "dirichlet"} <= names
    assert json.loads(call("doctor", "--json"))["headstart"]
    assert {"name", "paper", "title"} == set(json.loads(call("reproduce", "--json"))[0])
    words = ["--node", "a", "--node", "b", "--dimension", "3"]
    made = json.loads(call("deploy", "init", tmp_path / "fed", *words, "--json"))
    assert any("register.sh" in step for step in made["steps"])


def test_quiet_says_nothing_but_mistakes(tmp_path):
    run = tmp_path / "run"
    assert call("fit", "--data", "digits", "--clients", 3, "--out", run, "--quiet") == ""
    assert call("evaluate", run, "--data", "digits", "-q") == ""
    with pytest.raises(HeadstartError, match="cannot read"):
        call("evaluate", tmp_path / "nothing", "--data", "digits", "-q")
    assert "accuracy" in call("evaluate", run, "--data", "digits")  # and is heard again


def test_what_is_no_number_is_null_in_json():
    assert plain({"a": (float("nan"), float("inf"), 1.5, True, None)}) == {
        "a": [None, None, 1.5, True, None]
    }


@pytest.mark.parametrize(
    ("words", "known"),
    [("headstart l", "ledger"), ("headstart fit --par", "--partition")],
    ids=["a command", "an option"],
)
def test_a_shell_completes(words, known):
    asked = {
        "_HEADSTART_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    main = "import sys; sys.argv[:] = ['headstart']; from headstart.cli import main; main()"
    said = subprocess.run(
        [sys.executable, "-c", main], env={**os.environ, **asked}, capture_output=True, text=True
    )
    assert known in said.stdout.split()

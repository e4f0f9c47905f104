"""`import headstart` is light, and every public name resolves."""

import json
import subprocess
import sys

import pytest

import headstart

HEAVY = {"torch", "sklearn", "matplotlib", "pyarrow", "jinja2"}
SCIPY = {f"scipy.{part}" for part in ("linalg", "optimize", "sparse", "special", "stats")}
COMMAND = """
import contextlib, io, sys
from headstart.cli import app
with contextlib.redirect_stdout(io.StringIO()):
    app(sys.argv[1:], standalone_mode=False)
"""


def loaded(code, *arguments):
    """The modules that are imported when this code has run."""
    code += "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    found = set(json.loads(out.stdout))
    assert "headstart" in found
    return found


def test_import_loads_nothing_heavy():
    assert not loaded("import headstart") & (HEAVY | SCIPY | {"numpy"})


@pytest.mark.parametrize("command", ["list", "doctor"])
def test_listing_loads_nothing_heavy(command):
    """SciPy imports its parts when they are first used."""
    assert not loaded(COMMAND, command) & (HEAVY | SCIPY | {"urllib.request"})


def test_help_loads_little():
    assert not loaded(COMMAND, "--help") & (HEAVY | SCIPY | {"numpy", "rich.console"})


def test_dir_lists_the_public_names():
    assert dir(headstart) == sorted(headstart.__all__)
    assert {"Fed3R", "Moments", "total", "WireError"} <= set(dir(headstart))


@pytest.mark.parametrize("name", headstart.__all__)
def test_every_public_name_resolves(name):
    thing = getattr(headstart, name)
    assert name == "__version__" or thing.__name__ == name


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = headstart.nonsense

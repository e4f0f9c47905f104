"""`import headstart` is light, and every public name resolves."""

import json
import subprocess
import sys

import pytest

import headstart

HEAVY = ("torch", "sklearn", "matplotlib", "pyarrow")


def test_import_loads_nothing_heavy():
    code = "import sys, json, headstart; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(out.stdout))
    assert "headstart" in loaded
    assert not loaded & set(HEAVY)


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

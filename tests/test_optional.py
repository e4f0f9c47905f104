"""Optional packages: a missing one is one line that names the extra which really installs it."""

import ast
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

from headstart import HeadstartError, optional

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "headstart"
PACKAGES = sorted({name for packages in optional.EXTRAS.values() for name in packages})


def declared():
    """The packages of each extra by pyproject.toml; what an extra takes of another is its own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def names(extra):
        for line in extras[extra]:
            own = re.fullmatch(r"headstart\[([\w,]+)\]", line)
            if own:
                for other in own[1].split(","):
                    yield from names(other)
            else:
                yield re.match(r"[\w.-]+", line)[0]

    return {extra: set(names(extra)) for extra in extras}


def test_the_table_is_that_of_pyproject():
    known = {
        extra: {optional.pip_name(package) for package in packages}
        for extra, packages in optional.EXTRAS.items()
    }
    found = declared()
    del found["dev"], found["docs"], found["all"]
    assert known == found


@pytest.mark.parametrize("package", PACKAGES)
def test_a_hint_names_an_extra_that_installs_the_package(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)  # importing it fails
    with pytest.raises(HeadstartError) as caught:
        optional.require(f"{package}.inner")
    said = re.fullmatch(
        r'(\S+) is needed and not installed: pip install "headstart\[(\w+)\]"', str(caught.value)
    )
    assert said[1] in declared()[said[2]]


def test_what_is_asked_for_begins_the_message(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(HeadstartError, match=r"^FedAvg: torch is needed.*headstart\[vision\]"):
        optional.require("torch", "vision", what="FedAvg")
    with pytest.raises(HeadstartError, match=r"^FedAvg: torch is needed.*headstart\[torch\]"):
        optional.check("torch", "FedAvg")


def test_a_package_that_is_broken_otherwise_says_so_itself(monkeypatch, tmp_path):
    (tmp_path / "tensorboardX.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorboardX", raising=False)
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        optional.require("tensorboardX")


def test_only_one_place_asks_whether_a_package_is_there():
    """The weights of a network are data in a package, which is found and never imported."""
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        caught = {
            name.id
            for node in ast.walk(tree)
            if isinstance(node, ast.ExceptHandler) and node.type is not None
            for name in ast.walk(node.type)
            if isinstance(name, ast.Name)
        }
        asks = caught & {"ImportError", "ModuleNotFoundError"}
        assert not asks or path == SOURCE / "optional.py", path


@pytest.fixture
def script(monkeypatch):
    """scripts/test_extras.py, which `make test-extras` runs."""
    spec = importlib.util.spec_from_file_location("extras", ROOT / "scripts" / "test_extras.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "extras", module)  # where its dataclass looks for itself
    spec.loader.exec_module(module)
    return module


def test_every_extra_is_tried_alone(script):
    assert {trial.extra for trial in script.TRIALS} == {"core", *optional.EXTRAS}
    brings_torch = {extra for extra, packages in optional.EXTRAS.items() if "torch" in packages}
    assert {trial.extra for trial in script.TRIALS if trial.torch} == brings_torch


def test_a_command_that_fails_is_a_failure(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(script, "install", lambda *arguments: Path(sys.executable).parent)
    for commands, fails in (
        (("nonsense",), "nonsense"),
        (("raise SystemExit('no')\n",), "no"),
        (("--version",), "expected yes for nothing"),
    ):
        assert not script.attempt(script.Trial("nothing", commands), tmp_path)
        assert fails in capsys.readouterr().out
    assert script.attempt(script.Trial("core", ("--version", "print(1)\n")), tmp_path)

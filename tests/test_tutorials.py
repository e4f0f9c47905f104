"""Tutorials: two as scripts here, all as notebooks in `make test-docs`; the site and its pages."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
QUICK = ("digits", "figure")


def script(name):
    """A file of scripts/, imported."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_three():
    assert [source.stem for source in SOURCES] == ["digits", "figure", "hospitals"]
    assert {*QUICK} < {source.stem for source in SOURCES}


@pytest.mark.parametrize("name", QUICK)
def test_a_tutorial_runs_as_a_script(name, tmp_path):
    command = [sys.executable, "-W", "error", ROOT / "docs" / "tutorials" / f"{name}.py"]
    quiet = {**os.environ, "MPLBACKEND": "svg"}
    done = subprocess.run(command, cwd=tmp_path, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Fed3R" in done.stdout
    assert list(tmp_path.rglob("report.html"))


@pytest.mark.long
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_tutorial_runs_as_a_notebook_and_shows_pictures(source):
    pytest.importorskip("jupytext", reason="needs the extra docs")
    made = dict(script("tutorials").page(source, run=True))
    pictures = [name for name in made if name.endswith(".png")]
    page = made[f"{source.stem}.md"]
    assert len(pictures) >= 2
    for name in pictures:
        assert f"]({name})" in page
        assert made[name].startswith(b"\x89PNG")
    assert not re.search(r"Traceback|Warning", page)


def test_everything_that_has_a_name_has_a_text():
    reference = script("reference")
    pages = [*reference.registered(), reference.commands(), reference.public()]
    assert reference.untold(pages) == []
    items = {item.name for page in pages for item in page.items}
    assert {"fed3r", "feddr-plus", "dirichlet", "headstart ledger list", "hs.compare"} <= items
    without = {item.name for page in pages[:3] for item in page.items if not item.example}
    assert without <= {"ladd", "self-training"}  # of scenes, which their pages show


@pytest.mark.long
def test_the_site_is_whole_and_takes_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("material", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", tmp_path]
    quick = {**os.environ, "HEADSTART_DOCS_RUN": "0", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quick, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 40
    elsewhere = r"(?:https?:)?//"
    loads = re.compile(rf'<(?:script|img|iframe)[^>]*src="{elsewhere}|<link[^>]*href="{elsewhere}')
    home = (tmp_path / "index.html").read_text(encoding="utf-8")
    for name in [f"tutorials/{source.stem}.html" for source in SOURCES]:
        assert f'href="{name}"' in home
    assert not re.search(r'href="[^"]+\.(py|md)"', home)
    for page in pages:
        assert not loads.search(page.read_text(encoding="utf-8")), page.name

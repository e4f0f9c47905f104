"""Every Python block of the README and the docs runs, and says what it says it says."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_docs(page):
    names = {"__name__": "docs"}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    found = blocks(page)
    assert found, f"{page.name} shows no Python"
    for number, block in enumerate(found):
        if ">>>" not in block:
            exec(compile(block, page.name, "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(block, names, f"{page.name}:{number}", None, 0)
        said = []
        runner.run(test, out=said.append, clear_globs=False)
        names.update(test.globs)
        assert runner.failures == 0, "".join(said)


def test_readme():
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(n, 8)), rng.integers(0, 3, n)) for n in (5, 9, 20)]
    names = {
        "clients": clients,
        "z_test": rng.normal(size=(4, 8)),
        "my_classes": [0, 2],
        "my_z": rng.normal(size=(4, 8)),
        "z_all": np.concatenate([z for z, _ in clients]),
        "y_all": np.concatenate([y for _, y in clients]),
    }
    (block,) = blocks(ROOT / "README.md")
    *body, claim = block.strip().splitlines()
    exec(compile("\n".join(body), "README.md", "exec"), names)
    assert eval(claim, names) is True
    assert set(names["model"].restrict([0, 2]).predict(names["my_z"])) <= {0, 2}


def test_the_plugins_of_the_page_are_those_that_are_tested():
    shown = blocks(ROOT / "docs" / "plugins.md")
    for file in sorted((ROOT / "tests" / "plugin_files").glob("*.py")):
        assert file.read_text(encoding="utf-8") in shown, file.name


def test_every_link_leads_somewhere():
    inner = sorted((ROOT / "docs").glob("*/*.md"))  # their links to generated pages: mkdocs
    for page in [*PAGES, *inner, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http", "../reference/")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_in_the_navigation_of_the_site():
    shown = re.findall(
        r"^ +- (?:.*: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE
    )
    for page in sorted((ROOT / "docs").rglob("*.md")):
        assert page.relative_to(ROOT / "docs").as_posix() in shown, f"{page}: add it to mkdocs.yml"

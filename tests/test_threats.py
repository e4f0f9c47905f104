"""The table of threats names tests, and every one of them is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "threats.md"
ROWS = re.findall(
    r"^\| (.+?) \| (.+) \| (`.*`) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
)
WHO = ("a client", "the server", "several clients", "the network", "a file's author")
WHO += ("another user of the machine", "another site in a browser")


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_named_test_exists():
    known = set().union(*(functions_of(path) for path in (ROOT / "tests").rglob("test_*.py")))
    named = [name for _, _, tests in ROWS for name in re.findall(r"`(\w+)`", tests)]
    assert len(named) > 90
    assert sorted(set(named) - known) == []
    for _, holds, tests in ROWS:
        assert tests.count("`") >= 2, holds


def test_the_table_is_about_everybody():
    for who in WHO:
        assert any(row[0].startswith(who) for row in ROWS), who
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(rows) - 1 == len(ROWS)  # and its header; each row was read


def test_no_page_names_an_address_that_does_not_exist():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert not re.search(r"\S+@\S+|https?://", text)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target

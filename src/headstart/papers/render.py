"""Rebuild the results of docs/reproduce.md from docs/results/*.json, which the command writes.

    python -m headstart.papers.render docs/results docs/reproduce.md

Everything between the two marks of the page is replaced; nothing else is touched.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headstart.errors import HeadstartError
from headstart.files import write_text
from headstart.papers.table import Table

BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def save(table: Table, folder: str | Path) -> Path:
    """The results of one reproduction, where `render` finds them."""
    path = Path(folder) / f"{table.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, table.json())
    return path


def saved(folder: str | Path) -> list[Table]:
    """All results in a folder, by name."""
    paths = sorted(Path(folder).glob("*.json"))
    return [Table.from_json(path.read_text(encoding="utf-8")) for path in paths]


def render(folder: str | Path) -> str:
    """Every saved table, one after the other."""
    return "\n".join(table.markdown() for table in saved(folder))


def rebuilt(page: str, results: str) -> str:
    """The page with its results replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise HeadstartError(f"page: expected the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{results}\n{END}{after}"


def main(arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise SystemExit("usage: python -m headstart.papers.render docs/results docs/reproduce.md")
    folder, page = arguments
    text = Path(page).read_text(encoding="utf-8")
    write_text(page, rebuilt(text, render(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])

"""A grid of runs as tables: rows × columns, the paper's numbers beside; CSV, Markdown, the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.files import write_text
from headstart.report.comparison_table import Cell, Rows, Table, number_text
from headstart.report.format import MISSING
from headstart.report.pages import write_report
from headstart.report.tables import as_csv, as_markdown
from headstart.results import RunResult


@dataclass(frozen=True)
class CellResult:
    """One cell: its place, what came out (a share), what the paper has (%), or why nothing came."""

    table: str
    row: str
    column: str
    pipeline: str
    accuracy: float | None = None
    deviation: float | None = None  # over clients
    paper: float | None = None
    failed: str = ""
    result: RunResult | None = None

    def text(self) -> str:
        """Ours, and the paper's in parentheses."""
        if self.failed:
            ours = "diverged"
        elif self.accuracy is None:
            ours = MISSING
        else:
            ours = f"{100 * self.accuracy:.2f}"
            ours += "" if self.deviation is None else f" ± {100 * self.deviation:.2f}"
        return ours if self.paper is None else f"{ours} ({self.paper:.2f})"


def long_rows(cells: Sequence[CellResult]) -> Rows:
    """Every cell a row, for programs."""
    header = ("table", "row", "column", "accuracy %", "± %", "paper %", "seconds", "pipeline")
    body = [
        (
            *(one.table, one.row, one.column),
            *(number_text(value, 0.01, ".2f") for value in (one.accuracy, one.deviation)),
            number_text(one.paper, form=".2f"),
            number_text(one.result.runs[0].seconds if one.result else None, form=".1f"),
            one.pipeline,
        )
        for one in cells
    ]
    return Rows(header, body)


def tables(cells: Sequence[CellResult]) -> dict[str, Rows]:
    """Rows × columns of each table, in the order in which they came."""
    found = {}
    for name in dict.fromkeys(one.table for one in cells):
        texts = {(one.row, one.column): one.text() for one in cells if one.table == name}
        columns = list(dict.fromkeys(column for _, column in texts))
        body = [
            (row, *(texts.get((row, column), MISSING) for column in columns))
            for row in dict.fromkeys(row for row, _ in texts)
        ]
        found[name] = Rows(("", *columns), body)
    return found


def write_tables(cells: Sequence[CellResult], root: Path) -> None:
    """grid.csv and grid.md."""
    write_text(root / "grid.csv", as_csv(*long_rows(cells)))
    parts = [f"{name}\n\n{as_markdown(rows)}" for name, rows in tables(cells).items()]
    write_text(root / "grid.md", "\n".join(parts))


def write_grid(cells: Sequence[CellResult], root: Path, title: str) -> None:
    """The report of all cells that have a result, under the tables."""
    several = len({one.table for one in cells}) > 1  # in a legend a cell is where it stands
    places: dict[str, str] = {}
    results: dict[str, RunResult] = {}
    for one in cells:
        if one.result is not None:
            place = (one.row, one.column, *([one.table] if several else ()))
            places.setdefault(one.pipeline, ", ".join(place))
            results[one.pipeline] = one.result
    beside = {one.table for one in cells if one.paper is not None}
    shown = [_page_table(name, rows, name in beside) for name, rows in tables(cells).items()]
    if results:
        labels = list(places.values())
        write_report(list(results.values()), root, title=title, labels=labels, grid=shown)


def _page_table(name: str, rows: Rows, beside: bool) -> Table:
    """`beside`: whether some cell also has the paper's number."""
    title = f"{name}: accuracy in %" + (", in parentheses that of the paper" if beside else "")
    body = [(first, [Cell(text) for text in rest]) for first, *rest in rows.body]
    return Table("", [], list(rows.header[1:]), body, title)

"""FedDr+'s studies as tables: rows × columns, the paper's numbers beside; CSV, Markdown, HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.files import write_text
from headstart.report.comparison_table import Cell, Table, number_text
from headstart.report.format import MISSING
from headstart.report.pages import write_report
from headstart.report.tables import as_csv, as_markdown
from headstart.results import RunResult

_HEADER = ("table", "row", "column", "accuracy %", "± %", "paper %", "seconds", "pipeline")


@dataclass(frozen=True)
class CellResult:
    """One cell: its place, its accuracy (a share), the paper's (%), or why it failed."""

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
        """Return our accuracy, and the paper's in parentheses."""
        ours = "diverged" if self.failed else number_text(self.accuracy, 0.01, ".2f")
        ours += "" if self.deviation is None else f" ± {100 * self.deviation:.2f}"
        return ours if self.paper is None else f"{ours} ({self.paper:.2f})"

    @property
    def note(self) -> str:
        """What a row of the reproduction says beside the number."""
        if self.failed:
            return f"diverged: {self.failed}"
        return "" if self.deviation is None else f"± {100 * self.deviation:.1f} over clients"

    @property
    def line(self) -> tuple[str, ...]:
        """The cell as a row of grid.csv."""
        seconds = self.result.runs[0].seconds if self.result else None
        return (
            *(self.table, self.row, self.column),
            *(number_text(value, 0.01, ".2f") for value in (self.accuracy, self.deviation)),
            number_text(self.paper, form=".2f"),
            number_text(seconds, form=".1f"),
            self.pipeline,
        )


def grid_tables(cells: Sequence[CellResult]) -> list[Table]:
    """Return rows × columns of each table, in the order in which they came."""
    tables = []
    for title in dict.fromkeys(cell.table for cell in cells):
        texts = {(cell.row, cell.column): cell.text() for cell in cells if cell.table == title}
        header = list(dict.fromkeys(column for _, column in texts))
        rows = [
            (row, [Cell(texts.get((row, column), MISSING)) for column in header])
            for row in dict.fromkeys(row for row, _ in texts)
        ]
        beside = any(cell.table == title and cell.paper is not None for cell in cells)
        what = "accuracy in %" + (", in parentheses that of the paper" if beside else "")
        tables.append(Table("", header, rows, title=f"{title}: {what}"))
    return tables


def write_tables(cells: Sequence[CellResult], root: Path) -> None:
    """Write grid.csv and grid.md."""
    write_text(root / "grid.csv", as_csv([_HEADER, *(cell.line for cell in cells)]))
    parts = [f"{table.title}\n\n{as_markdown(table.text)}" for table in grid_tables(cells)]
    write_text(root / "grid.md", "\n".join(parts))


def write_grid(cells: Sequence[CellResult], root: Path, title: str) -> None:
    """Write the report of all cells that have a result, under the tables."""
    tables = grid_tables(cells)
    shown: dict[str, tuple[str, RunResult]] = {}
    for cell in cells:
        if cell.result is not None:
            place = (cell.row, cell.column, *([cell.table] if len(tables) > 1 else ()))
            shown.setdefault(cell.pipeline, (" / ".join(place), cell.result))
    if shown:
        labels, results = zip(*shown.values(), strict=True)
        write_report(results, root, title=title, labels=labels, grid=tables)

"""A grid of runs as tables: rows × columns, the paper's numbers beside; CSV, Markdown, HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.files import write_text
from headstart.report import compare_plots as plots
from headstart.report.diagnoses import diagnoses
from headstart.report.html import render
from headstart.report.markup import card, figure, section, table
from headstart.report.outcomes import Rows, as_csv
from headstart.report.values import MISSING, number


@dataclass(frozen=True)
class Shown:
    """One cell: its place, what came out (a share), and what the paper has (%)."""

    table: str
    row: str
    column: str
    accuracy: float | None
    paper: float | None = None
    deviation: float | None = None  # over clients
    failed: str = ""
    results: Mapping[str, Any] = field(default_factory=dict)

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


def long_rows(shown: Sequence[Shown]) -> Rows:
    """Every cell a row, for programs."""
    header = ("table", "row", "column", "accuracy %", "± %", "paper %", "seconds", "sentence")
    body = [
        (
            one.table,
            one.row,
            one.column,
            *(
                MISSING if value is None else f"{100 * value:.2f}"
                for value in (one.accuracy, one.deviation)
            ),
            MISSING if one.paper is None else f"{one.paper:.2f}",
            _seconds(one.results.get("seconds")),
            str(one.results.get("sentence") or ""),
        )
        for one in shown
    ]
    return Rows(header, body)


def _seconds(value: Any) -> str:
    return MISSING if number(value) is None else f"{value:.1f}"


def tables(shown: Sequence[Shown]) -> dict[str, Rows]:
    """Rows × columns of each table, in the order in which they came."""
    found = {}
    for name in dict.fromkeys(one.table for one in shown):
        cells = {(one.row, one.column): one.text() for one in shown if one.table == name}
        columns = list(dict.fromkeys(column for _, column in cells))
        body = [
            (row, *(cells.get((row, column), MISSING) for column in columns))
            for row in dict.fromkeys(row for row, _ in cells)
        ]
        found[name] = Rows(("", *columns), body)
    return found


def as_markdown(shown: Sequence[Shown]) -> str:
    parts = []
    for name, rows in tables(shown).items():
        lines = [rows.header, tuple("---" for _ in rows.header), *rows.body]
        parts.append(f"{name}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines))
    return "\n".join(parts)


def write_grid(shown: Sequence[Shown], root: Path, title: str) -> None:
    """grid.csv, grid.md and grid.html."""
    write_text(root / "grid.csv", as_csv(long_rows(shown)))
    write_text(root / "grid.md", as_markdown(shown))
    write_text(root / "grid.html", page(shown, title))


def page(shown: Sequence[Shown], title: str) -> str:
    cards = [
        card(table(rows.header, rows.body), title=name, wide=True)
        for name, rows in tables(shown).items()
    ]
    lead = "Accuracy in %"
    if any(one.paper is not None for one in shown):
        lead += "; in parentheses that of the paper, after 320 rounds"
    several = len(cards) > 1  # in a legend a cell is where it stands
    places = [(one.row, one.column, *([one.table] if several else ())) for one in shown]
    named = [
        {**one.results, "sentence": ", ".join(place)}
        for one, place in zip(shown, places, strict=True)
        if not one.failed
    ]
    told = {"sentences": named}
    curves = figure(plots.by_round(told), "Every cell by round.") if len(shown) <= 16 else ""
    bodies = [
        section(title, f"{lead}.", *cards),
        section("Curves", "The outside test set.", curves),
        diagnoses(named),
    ]
    done = f"{len(shown)} cells."
    return render(title, done, (), bodies, "Headstart.")

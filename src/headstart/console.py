"""What the command line shows: tables, progress, closing lines."""

from __future__ import annotations

import csv
import io
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from headstart.errors import SkippedWarning
from headstart.files import write_text

out = Console()
err = Console(stderr=True)


@contextmanager
def bar(unit: str = "") -> Iterator[Any]:
    """A progress bar for images or uploads, one line a thing."""
    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=of)
            bars.update(tasks[what], completed=done)

        yield show


def write_csv(columns: dict[str, Any], output: Path | None) -> None:

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    rows = list(zip(*columns.values(), strict=True))
    writer.writerows(rows)
    if output is None:
        sys.stdout.write(text.getvalue())
    else:
        write_text(output, text.getvalue())
        say(f"{len(rows)} predictions in {output}")


def show_results(results: dict[str, Any], extra: list[tuple[str, float]] | None = None) -> None:
    """The table of heads: accuracy, personal accuracy, bytes."""
    personal = any(row["personal"] for row in results["heads"])
    table = Table(title=results["title"], title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("head", no_wrap=True)
    table.add_column("accuracy", justify="right", no_wrap=True)
    if personal:
        table.add_column("personal: global\n→OLL→prior→ridge", justify="right", no_wrap=True)
    sent = "exact" if results["exact"] else "sent"
    for column in (f"bytes:\n{sent}", "\nfloat32", "\nint8", "paper's\nformula"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in results["heads"]:
        table.add_row(*_cells(row, personal))
    for title, accuracy in extra or []:
        table.add_row(title, f"{100 * accuracy:.1f}")
    out.print(table)


def show_rows(header: Sequence[str], body: Iterable[Sequence[str]], title: str = "") -> None:
    """A table of text: sentences to the left, numbers to the right.

    Where it is too wide for the terminal, sentences are listed above it and numbered in it.
    """
    rows = [list(row) for row in body]
    named = header.index("sentence") if "sentence" in header else -1
    titles = list(header)
    if named >= 0 and sum(_widths(header, rows)) + 2 * len(header) > out.width:
        _number_sentences(rows, named)
        titles[named] = ""
    table = Table(title=title or None, title_justify="left", box=None, padding=(0, 2, 0, 0))
    widths = _widths(titles, rows)
    for at, (column, width) in enumerate(zip(titles, widths, strict=True)):
        table.add_column(column, justify="left" if at == named else "right", width=width)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    needed = sum(widths) + 2 * len(widths)  # a line that is too long is better than a cut number
    wide = out if needed <= out.width else Console(file=out.file, width=needed)
    wide.print(table)


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Of columns whose cells stay on one line; headings break between words."""
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    return [
        max(map(len, [*title.split(), *cells]), default=0)
        for title, cells in zip(header, columns, strict=True)
    ]


def _number_sentences(rows: list[list[str]], at: int) -> None:
    numbers = {name: place for place, name in enumerate(dict.fromkeys(row[at] for row in rows), 1)}
    for name, place in numbers.items():
        say(f"{place}. {name}")
    for row in rows:
        row[at] = f"{numbers[row[at]]}."


def _cells(row: dict[str, Any], personal: bool) -> list[str]:
    cells = [row["title"], f"{100 * row['accuracy']:.1f}"]
    if personal:
        own = row["personal"]
        cells.append("→".join(f"{100 * own[key]:.1f}" for key in own) if own else "")
    sizes = (
        row["bytes_per_client"],
        row["sizes"]["float32"],
        row["sizes"]["int8"],
        row["formula_bytes_per_client"],
    )
    return [*cells, *(f"{size:,.0f}" for size in sizes)]


def show_end(results: dict[str, Any], folder: Path) -> None:
    bits = results["exact"]
    if bits:
        word = "the same bits" if bits["same"] else "NOT THE SAME"
        say(
            f"federated total {bits['federated_digest'][:16]}…, pooled total "
            f"{bits['pooled_digest'][:16]}…: {word}"
        )
    say(f"report: {folder / 'report.html'}   model: {folder / 'model.safetensors'}")


def show_skipped() -> None:
    """From now on, what is left out of a user's data is one line, said once; it stays when a
    progress bar is gone."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, SkippedWarning):
            err.print(f"left out: {message}", markup=False, highlight=False, soft_wrap=True)
        else:
            usual(message, category, *rest, **more)

    warnings.showwarning = show


def show_change(model: Any, what: str, folder: Path) -> None:
    about = model.provenance
    say(
        f"{what}: {about['samples']} samples, {len(model.classes)} classes, "
        f"total {about['total'][:16]}…"
    )
    say(f"made anew: {folder / 'report.html'}, results.json, metrics.csv")


def say(text: str) -> None:
    out.print(text, highlight=False, markup=False, soft_wrap=True)

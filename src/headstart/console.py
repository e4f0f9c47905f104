"""What the command line shows: tables, progress, closing lines."""

from __future__ import annotations

import csv
import io
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.errors import SkippedWarning, printable
from headstart.files import spreadsheet_text, write_text

if TYPE_CHECKING:
    from rich.console import Console

_shown = {"text": True, "progress": True}


@cache
def _console(stderr: bool) -> Console:
    from rich.console import Console  # a third of what a command takes to start, and not all print

    return Console(stderr=stderr)


def out() -> Console:
    """Where results are printed; quiet, where they are not wanted."""
    console = _console(False)
    console.quiet = not _shown["text"]
    return console


def err() -> Console:
    """Where mistakes and progress are."""
    return _console(True)


@contextmanager
def printing(*, text: bool, progress: bool) -> Iterator[None]:
    """Whether lines and tables, and progress bars, are printed meanwhile; mistakes always are."""
    before = dict(_shown)
    _shown.update(text=text, progress=progress)
    try:
        yield
    finally:
        _shown.update(before)


@contextmanager
def bar(unit: str = "") -> Iterator[Any]:
    """A progress bar for images or uploads, one line a thing."""
    from rich.progress import (  # half of what rich takes to import
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err(), transient=True, disable=not _shown["progress"]) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=of)
            bars.update(tasks[what], completed=done)

        yield show


def write_csv(columns: dict[str, Any], output: Path | None) -> None:
    """Write columns as CSV to a file, or to standard output if `output` is None."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(spreadsheet_text, columns))
    rows = list(zip(*columns.values(), strict=True))
    writer.writerows(map(spreadsheet_text, row) for row in rows)
    if output is None:
        write(text.getvalue())
    else:
        write_text(output, text.getvalue())
        say(f"{len(rows)} predictions in {output}")


def show_rows(header: Sequence[str], body: Iterable[Sequence[str]], title: str = "") -> None:
    """A table of text: pipelines to the left, numbers to the right.

    Where it is too wide for the terminal, pipelines are listed above it and numbered in it.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    rows = [list(row) for row in body]
    named = header.index("pipeline") if "pipeline" in header else -1
    titles = list(header)
    if named >= 0 and sum(_widths(header, rows)) + 2 * len(header) > out().width:
        _number_pipelines(rows, named)
        titles[named] = ""
    table = Table(title=title or None, title_justify="left", box=None, padding=(0, 2, 0, 0))
    widths = _widths(titles, rows)
    for at, (column, width) in enumerate(zip(titles, widths, strict=True)):
        table.add_column(column, justify="left" if at == named else "right", width=width)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    needed = sum(widths) + 2 * len(widths)  # a line that is too long is better than a cut number
    usual = out()
    wider = Console(file=usual.file, width=needed, quiet=usual.quiet)
    (usual if needed <= usual.width else wider).print(table)


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Of columns whose cells stay on one line; headings break at spaces."""
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    return [
        max(map(len, [*title.split(), *cells]), default=0)
        for title, cells in zip(header, columns, strict=True)
    ]


def _number_pipelines(rows: list[list[str]], at: int) -> None:
    numbers = {name: place for place, name in enumerate(dict.fromkeys(row[at] for row in rows), 1)}
    for name, place in numbers.items():
        say(f"{place}. {name}")
    for row in rows:
        row[at] = f"{numbers[row[at]]}."


def show_skipped() -> None:
    """From now on, what is left out of a user's data is one line, said once; it stays when a
    progress bar is gone."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, SkippedWarning):
            text = f"left out: {printable(str(message))}"
            err().print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            usual(message, category, *rest, **more)

    warnings.showwarning = show


def show_change(model: Any, what: str, folder: Path) -> dict[str, Any]:
    """Print, and return, what a changed run now holds; which of its files were made anew."""
    about = model.provenance
    say(
        f"{what}: {about['samples']} samples, {len(model.classes)} classes, "
        f"total {about['total'][:16]}…"
    )
    say(f"made anew: {folder / 'report.html'}, results.json and the tables")
    known = {key: about[key] for key in ("samples", "total")}
    return {"folder": folder, "classes": len(model.classes), **known}


def write(text: str) -> None:
    """Print text that is a result itself, for a pipe to take: never wrapped."""
    if _shown["text"]:
        sys.stdout.write(text)


def say(text: str) -> None:
    """Print a line of text as it is, without markup or highlighting."""
    if _shown["text"]:
        shown = printable(text, kept="\n\t")
        out().print(shown, highlight=False, markup=False, soft_wrap=True)

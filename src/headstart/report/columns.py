"""Tables of things that are compared: columns in groups, the best value of a column marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headstart.report.values import MISSING, Results, number, text


class Column(NamedTuple):
    """How a column is headed, read from a thing and written; `best` picks the value to mark.

    `show` writes more than the value into the cell.
    """

    title: str
    read: Callable[[Results], Any]
    write: Callable[[Any], str]
    best: Callable[[Sequence[float]], float] | None = None
    show: Callable[[Results], str] | None = None


Groups = Sequence[tuple[str, Sequence[Column]]]  # columns under a common title, or none ("")


def seconds(value: Any) -> str:
    return MISSING if number(value) is None else f"{value:.2f} s"


def grouped_table(
    groups: Groups,
    things: Sequence[Results],
    title: Callable[[Results], str],
    *,
    corner: str = "Method",
    chief: Results | None = None,
    dense: bool = False,
) -> str:
    """Every thing a row, the best of a column marked; columns without any value are left out."""
    filled = [(name, _filled(columns, things)) for name, columns in groups]
    filled = [(name, columns) for name, columns in filled if columns]
    columns = [column for _, group in filled for column in group]
    if not columns:
        return ""
    marks = [_mark(column, things) for column in columns]
    lines = "\n".join(
        _line(title(thing), thing, columns, marks, chief=thing is chief) for thing in things
    )
    return (
        '<p class="hint">The table scrolls sideways.</p><div class="scroll" tabindex="0">'
        f'<table class="methods{" dense" * dense}">{_header(filled, corner)}'
        f"<tbody>\n{lines}\n</tbody></table></div>"
    )


def _filled(columns: Sequence[Column], things: Sequence[Results]) -> list[Column]:
    return [column for column in columns if _numbers(column, things)]


def _numbers(column: Column, things: Sequence[Results]) -> list[float]:
    return [value for thing in things if (value := number(column.read(thing))) is not None]


def _mark(column: Column, things: Sequence[Results]) -> str:
    """How the best value of a column is written: all that read the same share the mark."""
    values = _numbers(column, things)
    return column.write(column.best(values)) if column.best and len(things) > 1 else ""


def _header(groups: Groups, corner: str) -> str:
    over = "".join(
        f'<th scope="colgroup" colspan="{len(columns)}"><span>{text(title)}</span></th>'
        if title
        else f"<td{_span(len(columns))}></td>"
        for title, columns in groups
    )
    under = "".join(
        f'<th scope="col">{text(column.title)}</th>' for _, columns in groups for column in columns
    )
    above = f'<tr class="groups"><td></td>{over}</tr>' if any(title for title, _ in groups) else ""
    return f'<thead>{above}<tr><th scope="col">{text(corner)}</th>{under}</tr></thead>'


def _span(columns: int) -> str:
    return f' colspan="{columns}"' if columns > 1 else ""


def _line(
    title: str, thing: Results, columns: Sequence[Column], marks: Sequence[str], *, chief: bool
) -> str:
    cells = []
    for column, mark in zip(columns, marks, strict=True):
        value = column.write(column.read(thing))
        best = ' class="best"' if mark and value == mark and value != MISSING else ""
        shown = column.show(thing) if column.show else value
        cells.append(f"<td{best}>{text(shown)}</td>")
    kind = ' class="main"' if chief else ""
    return f'<tr{kind}><th scope="row">{text(title)}</th>{"".join(cells)}</tr>'

"""The table of methods: accuracies, bytes measured and by the paper's formula, and their ratio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headstart.report.values import (
    MISSING,
    Results,
    head_title,
    main_head,
    number,
    part,
    percent,
    rows,
    size,
    text,
)


class Column(NamedTuple):
    """How a column is headed, read from a head and written; `best` picks the value to mark."""

    title: str
    read: Callable[[Results], Any]
    write: Callable[[Any], str]
    best: Callable[[Sequence[float]], float] | None = None


def _field(key: str) -> Callable[[Results], Any]:
    return lambda head: head.get(key)


def _personal(key: str) -> Callable[[Results], Any]:
    return lambda head: part(head, "personal").get(key)


def _size_at(precision: str) -> Callable[[Results], Any]:
    return lambda head: part(head, "sizes").get(precision)


def ratio(head: Results) -> float | None:
    """How many times smaller than by the paper's formula an upload is."""
    measured = number(head.get("bytes_per_client"))
    formula = number(head.get("formula_bytes_per_client"))
    return formula / measured if formula is not None and measured else None


def _times(value: Any) -> str:
    return MISSING if number(value) is None else f"{value:.1f}×"


def _seconds(value: Any) -> str:
    return MISSING if number(value) is None else f"{value:.2f} s"


_GROUPS = {
    "Test set": (
        Column("accuracy", _field("accuracy"), percent, max),
        Column("balanced", _field("balanced_accuracy"), percent, max),
        Column("pooled", _field("pooled_accuracy"), percent),
    ),
    "Personal": (
        Column("global", _personal("global"), percent, max),
        Column("OLL", _personal("oll"), percent, max),
        Column("prior", _personal("prior"), percent, max),
    ),
    "Bytes a client": (
        Column("measured", _field("bytes_per_client"), size, min),
        Column("formula", _field("formula_bytes_per_client"), size),
        Column("ratio", ratio, _times),
        Column("as float32", _size_at("float32"), size),
        Column("as int8", _size_at("int8"), size),
    ),
    "": (Column("time", _field("seconds"), _seconds),),
}


def methods_table(results: Results) -> str:
    """Every method a row, the best of a column marked; columns without any value are left out."""
    heads = rows(results, "heads")
    if not heads:
        return ""
    groups = {title: _filled(columns, heads) for title, columns in _GROUPS.items()}
    groups = {title: columns for title, columns in groups.items() if columns}
    columns = [column for group in groups.values() for column in group]
    marks = [_mark(column, heads) for column in columns]
    lines = "\n".join(
        _line(head, columns, marks, chief=head is main_head(results)) for head in heads
    )
    return (
        '<p class="hint">The table scrolls sideways.</p>'
        f'<div class="scroll" tabindex="0"><table class="methods">{_header(groups)}'
        f"<tbody>\n{lines}\n</tbody></table></div>"
    )


def _filled(columns: Sequence[Column], heads: Sequence[Results]) -> list[Column]:
    return [column for column in columns if _numbers(column, heads)]


def _numbers(column: Column, heads: Sequence[Results]) -> list[float]:
    return [value for head in heads if (value := number(column.read(head))) is not None]


def _mark(column: Column, heads: Sequence[Results]) -> str:
    """How the best value of a column is written: all that read the same share the mark."""
    values = _numbers(column, heads)
    return column.write(column.best(values)) if column.best and len(heads) > 1 else ""


def _header(groups: dict[str, list[Column]]) -> str:
    over = "".join(
        f'<th scope="colgroup" colspan="{len(columns)}"><span>{text(title)}</span></th>'
        if title
        else "<td></td>"
        for title, columns in groups.items()
    )
    under = "".join(
        f'<th scope="col">{text(column.title)}</th>'
        for columns in groups.values()
        for column in columns
    )
    return (
        f'<thead><tr class="groups"><td></td>{over}</tr>'
        f'<tr><th scope="col">Method</th>{under}</tr></thead>'
    )


def _line(head: Results, columns: Sequence[Column], marks: Sequence[str], *, chief: bool) -> str:
    cells = []
    for column, mark in zip(columns, marks, strict=True):
        shown = column.write(column.read(head))
        best = ' class="best"' if mark and shown == mark and shown != MISSING else ""
        cells.append(f"<td{best}>{text(shown)}</td>")
    kind = ' class="main"' if chief else ""
    return f'<tr{kind}><th scope="row">{text(head_title(head))}</th>{"".join(cells)}</tr>'

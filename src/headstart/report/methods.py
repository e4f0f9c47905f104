"""The table of methods: accuracies, bytes measured and by the paper's formula, and their ratio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headstart.report.columns import Column, grouped_table, seconds
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
)


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
        Column("ridge", _personal("ridge"), percent, max),
    ),
    "Bytes a client": (
        Column("measured", _field("bytes_per_client"), size, min),
        Column("formula", _field("formula_bytes_per_client"), size),
        Column("ratio", ratio, _times),
        Column("as float32", _size_at("float32"), size),
        Column("as int8", _size_at("int8"), size),
    ),
    "": (Column("time", _field("seconds"), seconds),),
}


def methods_table(results: Results) -> str:
    """Every method a row, the best of a column marked; columns without any value are left out."""
    groups = list(_GROUPS.items())
    return grouped_table(groups, rows(results, "heads"), head_title, chief=main_head(results))

"""What a reproduction gives: rows of paper | ours | difference, as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from headstart.data.datasets import Dataset
from headstart.files import spreadsheet_text
from headstart.progress import Progress

Features: TypeAlias = Mapping[str, Dataset]
COLUMNS = ("what", "setting", "paper", "ours", "difference", "unit", "note")


@dataclass(frozen=True)
class Row:
    """One number of a paper next to ours, which has one value a seed."""

    what: str
    setting: str
    paper: float | None
    ours: tuple[float, ...]
    unit: str = "%"
    note: str = ""

    @property
    def mean(self) -> float:
        return float(np.mean(self.ours))

    @property
    def deviation(self) -> float:
        """Over the seeds; 0 where there is one."""
        return float(np.std(self.ours, ddof=1)) if len(self.ours) > 1 else 0.0

    @property
    def difference(self) -> float | None:
        return None if self.paper is None else self.mean - self.paper

    def cells(self) -> tuple[str, ...]:
        """The texts of a table's columns."""
        spread = f" ± {_short(self.deviation, self.unit)}" if len(self.ours) > 1 else ""
        away = self.difference
        return (
            self.what,
            self.setting,
            "" if self.paper is None else _short(self.paper, self.unit),
            _short(self.mean, self.unit) + spread,
            "" if away is None else _short(away, self.unit, sign=True),
            self.unit,
            self.note,
        )


def _short(value: float, unit: str, *, sign: bool = False) -> str:
    """One decimal for percents; otherwise as many as four digits need."""
    plus = "+" if sign else ""
    if unit == "%":
        return f"{value:{plus}.1f}"
    size = abs(value)
    digits = 0 if size >= 1000 or value == round(value) else 1 if size >= 10 else 2
    return f"{value:{plus},.{digits}f}"


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper that can be run again.

    `needs`: the feature sets it can use; it runs on those it is given, and needs one of them.
    `conclusion` says, from the rows, whether the paper's claim holds here and why numbers differ.
    """

    name: str
    title: str
    paper: str
    needs: tuple[str, ...]
    seeds: int
    run: Callable[[Features, int, Progress], list[Row]]
    conclusion: Callable[[Sequence[Row]], str]

    @property
    def command(self) -> str:
        return f"headstart reproduce {self.name}"


@dataclass(frozen=True)
class Table:
    """The rows of one reproduction, with all that is needed to run it again."""

    name: str
    title: str
    paper: str
    command: str
    seeds: int
    data: dict[str, str]  # feature set: what it was
    missing: tuple[str, ...]  # feature sets it could also have used
    rows: tuple[Row, ...]
    conclusion: str
    version: str = ""

    def markdown(self) -> str:
        """A heading, the table, what it shows, and the command that prints it."""
        head = [f"### {self.title}", "", f"{self.paper}. `{self.command}`{self._seeds()}", ""]
        shown = [row.cells() for row in self.rows]
        keep = [i for i, name in enumerate(COLUMNS) if name != "note" or any(r[i] for r in shown)]
        lines = [_line([COLUMNS[i] for i in keep]), _line(["---"] * len(keep))]
        lines += [_line([cells[i] for i in keep]) for cells in shown]
        tail = ["", self.conclusion] if self.conclusion else []
        if self.missing:
            tail += ["", f"Not given, and not run: {', '.join(self.missing)}."]
        return "\n".join([*head, *lines, *tail, ""])

    def _seeds(self) -> str:
        data = "; ".join(f"{name}: {what}" for name, what in self.data.items())
        plural = f"{self.seeds} seeds" if self.seeds > 1 else "1 seed"
        return f" ({plural}{'; ' if data else ''}{data})."

    def csv(self) -> str:
        """Every row with its mean, deviation and each seed's own value."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = ("what", "setting", "unit", "paper", "mean", "deviation", "difference")
        writer.writerow((*names, "values", "note"))
        for row in self.rows:
            found = [getattr(row, name) for name in names]
            values = " ".join(f"{value:.10g}" for value in row.ours)
            cells = (*("" if v is None else v for v in found), values, row.note)
            writer.writerow(map(spreadsheet_text, cells))
        return text.getvalue()

    def json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Table:
        told: dict[str, Any] = json.loads(text)
        rows = tuple(Row(**{**row, "ours": tuple(row["ours"])}) for row in told["rows"])
        return cls(**{**told, "rows": rows, "missing": tuple(told["missing"])})


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


class Sheet:
    """Values as they are found, seed after seed; a row for each (what, setting, unit)."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, str], list[float]] = {}
        self._notes: dict[tuple[str, str, str], dict[str, None]] = {}  # distinct, in order

    def add(self, what: str, setting: str, value: float, unit: str = "%", note: str = "") -> None:
        self._values.setdefault((what, setting, unit), []).append(float(value))
        self._notes.setdefault((what, setting, unit), {})[note] = None

    def last(self, what: str, setting: str, unit: str = "%") -> float:
        """The value that was added last."""
        return self._values[what, setting, unit][-1]

    def rows(self, paper: Mapping[tuple[str, str], float] | None = None) -> list[Row]:
        """In the order they came; `paper` knows some of them by (what, setting)."""
        return [
            Row(
                what,
                setting,
                (paper or {}).get((what, setting)),
                tuple(values),
                unit,
                " / ".join(filter(None, self._notes[what, setting, unit])),
            )
            for (what, setting, unit), values in self._values.items()
        ]


def found(rows: Sequence[Row], what: str, setting: str) -> Row | None:
    """The row of a name and setting, if it was run."""
    return next((row for row in rows if (row.what, row.setting) == (what, setting)), None)


def settings(rows: Sequence[Row]) -> list[str]:
    """The settings in order, each once."""
    return list(dict.fromkeys(row.setting for row in rows))

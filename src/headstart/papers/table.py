"""What a reproduction gives: rows of paper | ours | difference, as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headstart.files import spreadsheet_text

COLUMNS = ("what", "setting", "paper", "ours", "difference", "unit", "note")


@dataclass(frozen=True)
class Row:
    """One number of a paper next to ours, which has one value per seed.

    `ours` is empty where a training diverged; the note then says so, and there is no mean.
    """

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
        """The standard deviation over the seeds; 0 where there is one."""
        return float(np.std(self.ours, ddof=1)) if len(self.ours) > 1 else 0.0

    @property
    def difference(self) -> float | None:
        return None if self.paper is None or not self.ours else self.mean - self.paper

    def cells(self) -> tuple[str, ...]:
        """Return the texts of a table's columns."""
        mean = _short(self.mean, self.unit) if self.ours else "–"
        spread = f" ± {_short(self.deviation, self.unit)}" if len(self.ours) > 1 else ""
        difference = self.difference
        return (
            self.what,
            self.setting,
            "" if self.paper is None else _short(self.paper, self.unit),
            mean + spread,
            "" if difference is None else _short(difference, self.unit, sign=True),
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
class Table:
    """The rows of one reproduction, with all that is needed to run it again."""

    name: str
    title: str
    paper: str
    command: str
    seeds: int
    data: dict[str, str]  # data set: what it was
    missing: tuple[str, ...]  # data sets it could also have used
    rows: tuple[Row, ...]
    conclusion: str
    version: str = ""

    def markdown(self) -> str:
        """Return a heading, the table, its conclusion, and the command that prints it."""
        head = [f"### {self.title}", "", f"{self.paper}. `{self.command}`{self._seeds()}", ""]
        rows = [row.cells() for row in self.rows]
        keep = [i for i, name in enumerate(COLUMNS) if name != "note" or any(r[i] for r in rows)]
        lines = [_line([COLUMNS[i] for i in keep]), _line(["---"] * len(keep))]
        lines += [_line([cells[i] for i in keep]) for cells in rows]
        tail = ["", self.conclusion] if self.conclusion else []
        if self.missing:
            tail += ["", f"Not given, and not run: {', '.join(self.missing)}."]
        return "\n".join([*head, *lines, *tail, ""])

    def _seeds(self) -> str:
        data = "; ".join(f"{name}: {what}" for name, what in self.data.items())
        plural = f"{self.seeds} seeds" if self.seeds > 1 else "1 seed"
        return f" ({plural}{'; ' if data else ''}{data})."

    def csv(self) -> str:
        """Return every row with its mean, its deviation and the value of each seed."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = ("what", "setting", "unit", "paper", "mean", "deviation", "difference")
        writer.writerow((*names, "values", "note"))
        for row in self.rows:
            cells = [getattr(row, name) if row.ours or name != "mean" else None for name in names]
            values = " ".join(f"{value:.10g}" for value in row.ours)
            plain = (*("" if v is None else v for v in cells), values, row.note)
            writer.writerow(map(spreadsheet_text, plain))
        return text.getvalue()

    def json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Table:
        fields: dict[str, Any] = json.loads(text)
        rows = tuple(Row(**{**row, "ours": tuple(row["ours"])}) for row in fields["rows"])
        return cls(**{**fields, "rows": rows, "missing": tuple(fields["missing"])})


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


class ResultCollector:
    """Collects values, seed after seed; gives a row for each (what, setting, unit)."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, str], list[float]] = {}
        self._notes: dict[tuple[str, str, str], dict[str, None]] = {}  # distinct, in order

    def add(self, what: str, setting: str, value: float, unit: str = "%", note: str = "") -> None:
        self._values.setdefault((what, setting, unit), []).append(float(value))
        self._notes.setdefault((what, setting, unit), {})[note] = None

    def last(self, what: str, setting: str, unit: str = "%") -> float:
        """Return the value that was added last."""
        return self._values[what, setting, unit][-1]

    def rows(self, paper: Mapping[tuple[str, str], float] | None = None) -> list[Row]:
        """Return the rows in the order they came; `paper` has some numbers by (what, setting)."""
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


def find_row(rows: Sequence[Row], what: str, setting: str) -> Row | None:
    """Return the row of a name and setting, or None if it was not run."""
    return next((row for row in rows if (row.what, row.setting) == (what, setting)), None)


def settings_of(rows: Sequence[Row]) -> list[str]:
    """Return the settings of rows in order, each once."""
    return list(dict.fromkeys(row.setting for row in rows))

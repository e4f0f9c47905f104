"""The files beside a report: curves, clients, arrivals, the table of pipelines, costs of targets.

Tidy CSV: a row per point, client or target and seed; what is missing is empty. Accuracies are
shares, bytes and FLOPs whole, but where a header names another unit.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from headstart.files import spreadsheet_text
from headstart.report.comparison_metrics import MEASURES, Entry, reached, runs_of, targets
from headstart.report.comparison_table import number_text, text_table
from headstart.report.format import MISSING
from headstart.results import Row, SeedResult, client_rows, curve_rows

Value = str | int | float | None
Line = Sequence[Value]


def files(entries: Sequence[Entry]) -> dict[str, str]:
    """Name → CSV text, empty where there are no rows."""
    runs = runs_of(entries)
    tables: dict[str, list[Line]] = {
        "table.csv": list(text_table(entries).text),
        "targets.csv": list(_targets(entries)),
        "curves.csv": _lines(curve_rows(runs)),
        "clients.csv": _lines(client_rows(runs)),
        "arrivals.csv": _lines(_arrivals(runs)),
        "masks.csv": _lines(_masks(runs)),
    }
    return {name: as_csv(lines) if len(lines) > 1 else "" for name, lines in tables.items()}


def _targets(entries: Sequence[Entry]) -> Iterator[Line]:
    """Every target, pipeline and seed a row: the costs until it is first reached."""
    yield ("accuracy %", "pipeline", "seed", *(measure.header for measure in MEASURES.values()))
    for aim in targets(entries):
        for run in runs_of(entries):
            costs = [
                number_text(reached(run, aim, key), measure.unit, ".0f" if key == "round" else "")
                for key, measure in MEASURES.items()
            ]
            yield (f"{round(100 * aim, 2):g}", run.pipeline, run.seed, *costs)


def _lines(rows: Sequence[Row]) -> list[Line]:
    """The header, every column of any row; what a row lacks is empty."""
    header = list(dict.fromkeys(key for row in rows for key in row))
    return [header, *([row.get(key) for key in header] for row in rows)]


def _arrivals(runs: Sequence[SeedResult]) -> list[Row]:
    return [
        {"pipeline": run.pipeline, "seed": run.seed, **asdict(arrival)}
        for run in runs
        for arrival in (run.head.arrivals if run.head else ())
    ]


def _masks(runs: Sequence[SeedResult]) -> list[Row]:
    """Of dense networks: each test by each statistics, and the IoU of every class."""
    return [
        {
            "pipeline": run.pipeline,
            "seed": run.seed,
            "test": row.test,
            "inference": row.inference,
            "mean_iou": row.mean_iou,
            "accuracy": row.accuracy,
            **{f"iou {name}": value for name, value in row.iou.items()},
        }
        for run in runs
        for row in run.pixels
    ]


def as_csv(lines: Iterable[Line]) -> str:
    """Return lines as CSV; a missing value is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(
        ["" if cell == MISSING else spreadsheet_text(cell) for cell in line] for line in lines
    )
    return text.getvalue()


def as_markdown(lines: Sequence[Sequence[str]]) -> str:
    """The first line is the header; names to the left, numbers to the right."""
    sides = ["---", *("---:" for _ in lines[0][1:])]
    shown = [[cell.replace("|", "\\|") for cell in line] for line in (lines[0], sides, *lines[1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in shown)

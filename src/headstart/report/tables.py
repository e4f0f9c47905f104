"""The files beside a report: curves, clients, arrivals, the table of pipelines, costs of targets.

Tidy CSV: a row per point, client or target and seed; what is missing is empty. Accuracies are
shares, bytes and FLOPs whole, but where a header names another unit.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from headstart.files import spreadsheet_text
from headstart.report.comparison_metrics import MEASURES, Entry, reached, runs_of, targets
from headstart.report.comparison_table import number_text, text_table
from headstart.report.format import MISSING
from headstart.results import SeedResult

Value = str | int | float | None
Line = Sequence[Value]
_COSTS = ("up", "down", "flops", "counted", "formula_up", "formula_flops")
_POINT = ("phase", "round", "accuracy", *_COSTS)
_CLIENT = ("client", "domain", "samples", "classes", "up", "formula_up")
_ARRIVAL = ("clients", "up", "accuracy", "classes")


def files(entries: Sequence[Entry]) -> dict[str, str]:
    """Name → CSV text, empty where there are no rows."""
    runs = runs_of(entries)
    found: dict[str, list[Line]] = {
        "table.csv": list(text_table(entries).text),
        "targets.csv": list(_targets(entries)),
        "curves.csv": list(_curves(runs)),
        "clients.csv": list(_clients(runs)),
        "arrivals.csv": list(_arrivals(runs)),
    }
    return {name: as_csv(lines) if len(lines) > 1 else "" for name, lines in found.items()}


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


def _curves(runs: Sequence[SeedResult]) -> Iterator[Line]:
    points = [(run, point) for run in runs for point in run.curve]
    diagnosed = list(dict.fromkeys(key for _, point in points for key in point.diagnosis or ()))
    yield ("pipeline", "seed", *_POINT, *diagnosed)
    for run, point in points:
        known = {**vars(point), **(point.diagnosis or {})}
        yield (run.pipeline, run.seed, *(known.get(key) for key in (*_POINT, *diagnosed)))


def _arrivals(runs: Sequence[SeedResult]) -> Iterator[Line]:
    yield ("pipeline", "seed", *_ARRIVAL)
    for run in runs:
        for arrival in run.head.arrivals if run.head else ():
            yield (run.pipeline, run.seed, *(getattr(arrival, key) for key in _ARRIVAL))


def _clients(runs: Sequence[SeedResult]) -> Iterator[Line]:
    """A client a row, with its accuracy on its own test part by each model."""
    scores = [_scores(run) for run in runs]
    keys = list(dict.fromkeys(key for own in scores for one in own.values() for key in one))
    yield ("pipeline", "seed", *_CLIENT, *keys)
    for run, own in zip(runs, scores, strict=True):
        for client in run.clients:
            about, known = (getattr(client, key) for key in _CLIENT), own.get(client.client, {})
            yield (run.pipeline, run.seed, *about, *(known.get(key) for key in keys))


def _scores(run: SeedResult) -> dict[str, dict[str, float]]:
    """Each client's test samples, and its accuracy by model."""
    own, found = run.personal, {}
    if own is not None:
        for at, (client, tested) in enumerate(zip(own.clients, own.tested, strict=True)):
            hits = {f"accuracy_{model}": hit[at] for model, hit in own.models.items() if tested}
            found[client] = {"tested": tested, **{key: hit / tested for key, hit in hits.items()}}
    return found


def as_csv(lines: Iterable[Line]) -> str:
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

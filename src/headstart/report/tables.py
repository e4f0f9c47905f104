"""The files beside a report: curves, clients, arrivals, the table of pipelines, costs of targets.

Tidy CSV: a row per point, client or target and seed; what is missing is empty. Accuracies are
shares, bytes and FLOPs whole, but where a header names another unit.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from headstart.report.comparison_metrics import MEASURES, Entry, reached, runs_of, targets
from headstart.report.comparison_table import Rows, number_text, table_rows
from headstart.report.format import MISSING
from headstart.results import SeedResult

Value = str | int | float | None
_COSTS = ("up", "down", "flops", "counted", "formula_up", "formula_flops")
_POINT = ("phase", "round", "accuracy", *_COSTS)
_CLIENT = ("client", "domain", "samples", "classes", "up", "formula_up")
_ARRIVAL = ("clients", "up", "accuracy", "classes")


def files(entries: Sequence[Entry]) -> dict[str, str]:
    """Name → CSV text, of those that have rows."""
    runs = runs_of(entries)
    found = {
        "table.csv": as_csv(*table_rows(entries)),
        "targets.csv": as_csv(*target_rows(entries)),
        "curves.csv": curves_csv(runs),
        "clients.csv": clients_csv(runs),
        "arrivals.csv": arrivals_csv(runs),
    }
    return {name: text for name, text in found.items() if text.count("\n") > 1}


def target_rows(entries: Sequence[Entry], aims: Sequence[float] | None = None) -> Rows:
    """Every target, pipeline and seed a row: the costs until it is first reached.

    `aims` are fractions; without them they are chosen (see `targets`).
    """
    body = []
    for aim in targets(entries) if aims is None else aims:
        for run in runs_of(entries):
            costs = [
                number_text(reached(run, aim, key), measure.unit, ".0f" if key == "round" else "")
                for key, measure in MEASURES.items()
            ]
            body.append((f"{round(100 * aim, 2):g}", run.pipeline, str(run.seed), *costs))
    headers = (measure.header for measure in MEASURES.values())
    return Rows(("accuracy %", "pipeline", "seed", *headers), body)


def curves_csv(runs: Iterable[SeedResult]) -> str:
    known = list(runs)
    diagnosed = list(
        dict.fromkeys(k for run in known for p in run.curve for k in p.diagnosis or ())
    )
    rows = [
        (run.pipeline, run.seed, *(getattr(point, key) for key in _POINT),
         *((point.diagnosis or {}).get(key) for key in diagnosed))
        for run in known
        for point in run.curve
    ]  # fmt: skip
    return as_csv(("pipeline", "seed", *_POINT, *diagnosed), rows)


def arrivals_csv(runs: Iterable[SeedResult]) -> str:
    rows = [
        (run.pipeline, run.seed, *(getattr(arrival, key) for key in _ARRIVAL))
        for run in runs
        if run.head is not None
        for arrival in run.head.arrivals
    ]
    return as_csv(("pipeline", "seed", *_ARRIVAL), rows)


def clients_csv(runs: Iterable[SeedResult]) -> str:
    """A client a row, with its accuracy on its own test part by each model."""
    known = list(runs)
    models = list(dict.fromkeys(m for run in known if run.personal for m in run.personal.models))
    rows: list[Sequence[Value]] = []
    for run in known:
        scores = _by_client(run)
        for client in run.clients:
            tested, shares = scores.get(client.client, (None, {}))
            about = (getattr(client, key) for key in _CLIENT)
            rows.append(
                (run.pipeline, run.seed, *about, tested, *(shares.get(model) for model in models))
            )
    titles = (f"accuracy_{model}" for model in models)
    return as_csv(("pipeline", "seed", *_CLIENT, "tested", *titles), rows)


def _by_client(run: SeedResult) -> dict[str, tuple[float, dict[str, float]]]:
    own = run.personal
    if own is None:
        return {}
    return {
        client: (tested, {m: hits[at] / tested for m, hits in own.models.items() if tested})
        for at, (client, tested) in enumerate(zip(own.clients, own.tested, strict=True))
    }


def as_csv(header: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if cell == MISSING else cell for cell in row] for row in rows)
    return text.getvalue()


def as_markdown(table: Rows) -> str:
    """Names to the left, numbers to the right."""
    sides = ("---", *("---:" for _ in table.header[1:]))
    lines = (table.header, sides, *table.body)
    shown = [[cell.replace("|", "\\|") for cell in row] for row in lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in shown)

"""The table of pipelines, what each achieves and costs: on the page, in files, in terminals.

One list of columns serves all three. A value is read from a run and is its mean over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headstart.data.shift import CHANNELS
from headstart.report.comparison_metrics import (
    MEASURES,
    Entry,
    Read,
    reached,
    runs_of,
    spent,
    targets,
    trained,
)
from headstart.report.format import (
    MISSING,
    Write,
    count,
    flops,
    percent,
    seconds,
    size,
    times,
    written,
)
from headstart.results import Estimate, HeadSummary, PersonalScores, RunResult, SeedResult

Best = Callable[[Sequence[Estimate]], Estimate]
TITLES = {"oll": "OLL"}  # of models, where they are not their names


@dataclass(frozen=True)
class Column:
    """How a column is headed, read and written; `best` picks the value to mark.

    `header`, `unit` and `form` are those of text tables (without a header it is on the page
    alone); `brief` ones also stand in a terminal. `before` makes a cell "before → after".
    """

    group: str
    title: str
    read: Read
    write: Write
    best: Best | None = None
    header: str = ""
    unit: float = 1.0
    form: str = ""
    brief: bool = False
    before: Read | None = None


class Cell(NamedTuple):
    text: str
    best: bool = False


class Table(NamedTuple):
    """A table of the page: groups are (title, how many columns)."""

    corner: str
    groups: list[tuple[str, int]]
    header: list[str]
    rows: list[tuple[str, list[Cell]]]
    title: str = ""


class Rows(NamedTuple):
    """A table of text: units are in its header, so that every cell is a number or a name."""

    header: tuple[str, ...]
    body: list[tuple[str, ...]]


# -- columns ---------------------------------------------------------------------------------------


def _personal(read: Callable[[PersonalScores], float]) -> Read:
    def of(run: SeedResult) -> float | None:
        return read(run.personal) if run.personal and any(run.personal.tested) else None

    return of


def _own(read: Callable[[PersonalScores], float]) -> Read:
    """Of runs that end with personal models."""
    inner = _personal(read)

    def of(run: SeedResult) -> float | None:
        ends = run.personal is not None and run.personal.final != "global"
        return inner(run) if ends else None

    return of


def _model(model: str) -> Read:
    """A personal model that is measured beside the one a pipeline ends with."""

    def of(run: SeedResult) -> float | None:
        own = run.personal
        known = own is not None and model in own.models and own.final == "global"
        return own.weighted(model) if own and known and any(own.tested) else None

    return of


def _head(read: Callable[[HeadSummary], float | None]) -> Read:
    return lambda run: None if run.head is None else read(run.head)


def _ratio(head: HeadSummary) -> float | None:
    """How many times smaller than by the paper's formula an upload is."""
    measured, formula = head.bytes_per_client, head.formula_bytes_per_client
    return formula / measured if formula and measured else None


def _domain(name: str) -> Read:
    return lambda run: (run.domains or {}).get(name)


def _size_at(precision: str) -> Read:
    return _head(lambda head: head.sizes.get(precision))


def _spent(key: str) -> Read:
    return lambda run: spent(run, key)


def _gain(sign: int) -> Callable[[PersonalScores], float]:
    return lambda own: float((sign * own.change() > 0).sum())


_TOP = (
    Column("", "accuracy", lambda run: run.accuracy, percent, max, "accuracy %", 0.01, ".1f", True),
    Column("", "balanced", lambda run: run.balanced_accuracy, percent, max, "balanced %", 0.01,
           ".1f"),
    Column("", "pooled", lambda run: run.pooled.accuracy if run.pooled else None, percent,
           header="pooled %", unit=0.01, form=".1f"),
    *(
        Column("Test images with more", name, _domain(name), percent, max, f"{name} %", 0.01, ".1f")
        for name in CHANNELS
    ),
    Column("", "", _personal(lambda own: own.weighted("global")), percent, None, "before %", 0.01,
           ".1f", True),
    Column("Personal", "weighted", _personal(lambda own: own.weighted()), percent, max, "after %",
           0.01, ".1f", True, before=_own(lambda own: own.weighted("global"))),
    Column("", "", _personal(lambda own: own.mean("global")), percent, None, "plain before %", 0.01,
           ".1f"),
    Column("Personal", "plain mean", _personal(lambda own: own.mean()), percent, max,
           "plain after %", 0.01, ".1f", before=_own(lambda own: own.mean("global"))),
    *(
        Column("Personal", TITLES.get(model, model), _model(model), percent, max, f"{model} %",
               0.01, ".1f")
        for model in ("oll", "prior", "ridge")
    ),
    Column("Clients that", "gain", _own(_gain(1)), count, max, "gain", form=".0f", brief=True),
    Column("Clients that", "lose", _own(_gain(-1)), count, min, "lose", form=".0f", brief=True),
)  # fmt: skip
_UPLOADS = (
    Column("Bytes per client", "measured", _head(lambda head: head.bytes_per_client), size, min,
           "bytes per client", form=".0f", brief=True),
    Column("Bytes per client", "formula", _head(lambda head: head.formula_bytes_per_client), size,
           header="formula bytes per client", form=".0f"),
    Column("Bytes per client", "ratio", _head(_ratio), times),
    Column("Bytes per client", "as float32", _size_at("float32"), size,
           header="float32 bytes per client", form=".0f"),
    Column("Bytes per client", "as int8", _size_at("int8"), size,
           header="int8 bytes per client", form=".0f"),
)  # fmt: skip
_COSTS = (
    Column("", "rounds", _spent("round"), count, header="rounds", form=".0f", brief=True),
    Column("Bytes", "up", _spent("up"), size, min, "MB up", 1e6, brief=True),
    Column("Bytes", "formula", _spent("formula_up"), size, header="formula MB up", unit=1e6),
    Column("Bytes", "down", _spent("down"), size, min, "MB down", 1e6, brief=True),
    Column("FLOPs per client", "done", _spent("flops"), flops, min, "GFLOPs per client", 1e9,
           brief=True),
    Column("FLOPs per client", "torch", _spent("counted"), flops, header="torch GFLOPs", unit=1e9),
    Column("FLOPs per client", "formula", _spent("formula_flops"), flops, header="formula GFLOPs",
           unit=1e9),
)  # fmt: skip
_END = (
    Column("", "time", lambda run: run.seconds, seconds, header="seconds", form=".1f", brief=True),
)


def columns(entries: Sequence[Entry]) -> list[Column]:
    """Those that have a value; costs of the federation unless heads alone were fitted."""
    counted = trained(entries) or any(spent(run, "flops") for run in runs_of(entries))
    costs = [one for one in _COSTS if counted and any(_values(one, entries))]
    others = [*_TOP, *([] if counted else _UPLOADS)]
    known = [one for one in others if any(v is not None for v in _values(one, entries))]
    return [*known, *costs, *(one for one in _END if any(_values(one, entries)))]


def _values(column: Column, entries: Sequence[Entry]) -> list[Estimate | None]:
    return [entry.result.over_seeds(column.read) for entry in entries]


# -- on the page -----------------------------------------------------------------------------------


def pipeline_table(entries: Sequence[Entry]) -> Table:
    """Every pipeline a row; the best of a column marked."""
    shown = [column for column in columns(entries) if column.title]
    cells = [_cells(column, entries) for column in shown]
    rows = [(entry.label, [column[at] for column in cells]) for at, entry in enumerate(entries)]
    return Table("Pipeline", _groups(shown), [column.title for column in shown], rows)


def _groups(shown: Sequence[Column]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for column in shown:
        if found and found[-1][0] == column.group:
            found[-1] = (column.group, found[-1][1] + 1)
        else:
            found.append((column.group, 1))
    return found if any(title for title, _ in found) else []


def _cells(column: Column, entries: Sequence[Entry]) -> list[Cell]:
    values = _values(column, entries)
    marked = marks(values, column.write, column.best)
    before = [entry.result.over_seeds(column.before or _nothing) for entry in entries]
    return [
        Cell(_arrow(first, written(value, column.write)), mark)
        for value, first, mark in zip(values, before, marked, strict=True)
    ]


def _nothing(run: SeedResult) -> None:
    return None


def _arrow(before: Estimate | None, after: str) -> str:
    return after if before is None else f"{100 * before:.1f} → {after}"


def marks(values: Sequence[Estimate | None], write: Write, best: Best | None) -> list[bool]:
    """Whether a value is the best: all that read the same share the mark; of one there is none."""
    known = [value for value in values if value is not None]
    if best is None or len(values) < 2 or not known:
        return [False] * len(values)
    top = write(float(best(known)), None)
    return [value is not None and write(float(value), None) == top for value in values]


def target_tables(entries: Sequence[Entry]) -> list[Table]:
    """What it took to reach each target, a table per measure that was counted."""
    aims = targets(entries)
    header = [f"{round(100 * aim, 2):g}%" for aim in aims]
    found = []
    for key, measure in MEASURES.items():
        if not any(spent(run, key) for run in runs_of(entries)):
            continue
        costs = [[_reached(entry.result, aim, key) for entry in entries] for aim in aims]
        cells = [_aimed(column, entries, measure.write) for column in costs]
        rows = [(entry.label, [column[at] for column in cells]) for at, entry in enumerate(entries)]
        found.append(Table("Pipeline", [], header, rows, measure.title))
    return found


def _reached(result: RunResult, aim: float, key: str) -> list[float]:
    """The cost of each seed that comes so far."""
    costs = (reached(run, aim, key) for run in result.runs)
    return [cost for cost in costs if cost is not None]


def _aimed(costs: Sequence[list[float]], entries: Sequence[Entry], write: Write) -> list[Cell]:
    whole = [
        Estimate(own) if own and len(own) == len(entry.result.runs) else None
        for own, entry in zip(costs, entries, strict=True)
    ]
    cells = []
    marked = marks(whole, write, min)
    for own, entry, value, mark in zip(costs, entries, whole, marked, strict=True):
        some = f"{len(own)} of {len(entry.result.runs)} seeds" if own else MISSING
        cells.append(Cell(some if value is None else written(value, write), mark))
    return cells


# -- as text ---------------------------------------------------------------------------------------


def table_rows(entries: Sequence[Entry], brief: bool = False) -> Rows:
    """A pipeline a row, for terminals (`brief`) and files; there, deviations have columns."""
    shown = [c for c in columns(entries) if c.header and (c.brief or not brief)]
    seeds = any(len(entry.result.runs) > 1 for entry in entries)
    header, cells = [], []
    for column in shown:
        values = _values(column, entries)
        means = [_text(value, column) for value in values]
        spreads = [_text(None if v is None else v.std, column) for v in values]
        if seeds and brief:
            pairs = zip(means, spreads, strict=True)
            means = [f"{mean} ± {std}" if std != MISSING else mean for mean, std in pairs]
        header.append(column.header)
        cells.append(means)
        if seeds and not brief:
            header.append(f"{column.header} std")
            cells.append(spreads)
    body = [(e.result.pipeline, *(own[at] for own in cells)) for at, e in enumerate(entries)]
    return Rows(("pipeline", *header), body)


def _text(value: float | None, column: Column) -> str:
    return number_text(value, column.unit, column.form)


def number_text(value: float | None, unit: float = 1.0, form: str = "") -> str:
    """By the format, or else to three figures: 0.0123, 4.56, 78.9, 12300."""
    if value is None:
        return MISSING
    scaled = value / unit
    if form:
        return format(scaled, form)
    return f"{scaled:.0f}" if abs(scaled) >= 100 else f"{scaled:.3g}"

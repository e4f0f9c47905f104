"""The table of pipelines, what each achieves and costs: on the page, in files, in terminals.

One list of columns serves all three. A value is read from a run and is its mean over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headstart.data.augment.domain_shift import CHANNELS
from headstart.report import format
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
from headstart.report.format import MISSING, Write, written
from headstart.results import Estimate, HeadSummary, PersonalScores, SeedResult

Best = Callable[[Sequence[Estimate]], Estimate]


class Kind(NamedTuple):
    """How values are written on the page; in text, their unit and format."""

    write: Write
    unit: float = 1.0
    form: str = ""


class Column(NamedTuple):
    """`header` heads a column of text (without one it is on the page alone), `title` one of the
    page, under its `group`. `best` picks the value to mark; `brief` ones stand in terminals too.
    `before` is what a cell of personal models begins with: before → after.
    """

    header: str
    group: str
    title: str
    kind: Kind
    read: Read
    best: Best | None = None
    brief: bool = False
    before: Read | None = None


class Cell(NamedTuple):
    """The text of a table's cell, and whether it is the best of its column."""

    text: str
    best: bool = False


class Table(NamedTuple):
    """Rows of cells, each with its label; groups are (title, how many columns)."""

    corner: str
    header: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    groups: Sequence[tuple[str, int]] = ()
    title: str = ""

    @property
    def text(self) -> list[list[str]]:
        """Lines of text, the first the header."""
        body = [[label, *(cell.text for cell in cells)] for label, cells in self.rows]
        return [[self.corner, *self.header], *body]


# -- columns ---------------------------------------------------------------------------------------


def _personal(read: Callable[[PersonalScores], float], model: str = "") -> Read:
    """Of clients that tested; of a `model` beside the one that the pipeline ends with."""

    def of(run: SeedResult) -> float | None:
        personal = run.personal
        if personal is None or not any(personal.tested):
            return None
        beside = model in personal.models and personal.final == "global"
        return read(personal) if beside or not model else None

    return of


def _moved(sign: int) -> Read:
    """How many clients gain or lose by their own models."""

    def of(run: SeedResult) -> float | None:
        personal = run.personal
        if personal is None or personal.final == "global":
            return None
        return float((sign * personal.change() > 0).sum())

    return of


def _head(read: Callable[[HeadSummary], float | None]) -> Read:
    return lambda run: None if run.head is None else read(run.head)


def _ratio(head: HeadSummary) -> float | None:
    """How many times smaller than by the paper's formula an upload is."""
    measured, formula = head.bytes_per_client, head.formula_bytes_per_client
    return formula / measured if formula and measured else None


def _pooled(run: SeedResult) -> float | None:
    return run.pooled.accuracy if run.pooled else None


def _spent(key: str) -> Read:
    return lambda run: spent(run, key)


def _domain(name: str) -> Read:
    return lambda run: (run.domains or {}).get(name)


def _variant(model: str) -> Read:
    return _personal(lambda personal: personal.weighted(model), model)


def _seen(run: SeedResult) -> float | None:
    """mIoU on the clients' own test parts."""
    found = run.pixel_scores("seen")
    return None if found is None else found.mean_iou


def _last(test: str) -> Read:
    """The mean over the last evaluations of a training."""

    def of(run: SeedResult) -> float | None:
        found = run.last_evaluations(test)
        return None if found is None or found.count < 2 else found.mean

    return of


SHARE, COUNT = Kind(format.percent, 0.01, ".1f"), Kind(format.count, 1, ".0f")
BYTES, MEGABYTES = Kind(format.size, 1, ".0f"), Kind(format.size, 1e6)
GIGAFLOPS, SECONDS = Kind(format.flops, 1e9), Kind(format.seconds, 1, ".1f")
MESSAGE, COSTS, FLOPS = "Bytes per client", "Bytes", "FLOPs per client"
_TOP = (
    Column("mIoU %", "", "mIoU", SHARE, lambda run: run.mean_iou, max, True),
    Column("accuracy %", "", "accuracy", SHARE, lambda run: run.accuracy, max, True),
    Column("mIoU, last rounds %", "Masks", "last evaluations", SHARE, _last("unseen"), max),
    Column("seen mIoU %", "Masks", "seen", SHARE, _seen, max, True),
    Column("seen mIoU, last rounds %", "Masks", "seen, last", SHARE, _last("seen"), max),
    Column("balanced %", "", "balanced", SHARE, lambda run: run.balanced_accuracy, max),
    Column("pooled %", "", "pooled", SHARE, _pooled),
    *(Column(f"{c} %", "Test images with more", c, SHARE, _domain(c), max) for c in CHANNELS),
    Column("personal %", "Personal", "weighted", SHARE, _personal(lambda p: p.weighted()), max,
           True, _personal(lambda p: p.weighted("global"))),
    Column("personal, plain %", "Personal", "plain mean", SHARE, _personal(lambda p: p.mean()),
           max, False, _personal(lambda p: p.mean("global"))),
    Column("OLL %", "Personal", "OLL", SHARE, _variant("oll"), max),
    Column("prior %", "Personal", "prior", SHARE, _variant("prior"), max),
    Column("ridge %", "Personal", "ridge", SHARE, _variant("ridge"), max),
    Column("gain", "Clients that", "gain", COUNT, _moved(1), max, True),
    Column("lose", "Clients that", "lose", COUNT, _moved(-1), min, True),
)  # fmt: skip
_UPLOADS = (
    Column("bytes", MESSAGE, "measured", BYTES, _head(lambda h: h.bytes_per_client), min, True),
    Column("formula bytes", MESSAGE, "formula", BYTES, _head(lambda h: h.formula_bytes_per_client)),
    Column("", MESSAGE, "ratio", Kind(format.times), _head(_ratio)),
    Column("float32 bytes", MESSAGE, "as float32", BYTES, _head(lambda h: h.sizes.get("float32"))),
    Column("int8 bytes", MESSAGE, "as int8", BYTES, _head(lambda h: h.sizes.get("int8"))),
)
_COSTS = (
    Column("rounds", "", "rounds", COUNT, _spent("round"), None, True),
    Column("MB up", COSTS, "up", MEGABYTES, _spent("up"), min, True),
    Column("formula MB up", COSTS, "formula", MEGABYTES, _spent("formula_up")),
    Column("MB down", COSTS, "down", MEGABYTES, _spent("down"), min, True),
    Column("GFLOPs per client", FLOPS, "done", GIGAFLOPS, _spent("flops"), min, True),
    Column("torch GFLOPs", FLOPS, "torch", GIGAFLOPS, _spent("counted")),
    Column("formula GFLOPs", FLOPS, "formula", GIGAFLOPS, _spent("formula_flops")),
)
_TIME = Column("seconds", "", "time", SECONDS, lambda run: run.seconds, None, True)


def columns(entries: Sequence[Entry]) -> list[Column]:
    """Those that have a value; costs of the federation unless heads alone were fitted."""
    counted = trained(entries) or any(spent(run, "flops") for run in runs_of(entries))
    results = [*_TOP, *([] if counted else _UPLOADS)]
    filled = [
        column for column in results if any(v is not None for v in _values(column.read, entries))
    ]
    costs = [*(_COSTS if counted else ()), _TIME]
    return [*filled, *(column for column in costs if any(_values(column.read, entries)))]


def _values(read: Read, entries: Sequence[Entry]) -> list[Estimate | None]:
    return [entry.result.over_seeds(read) for entry in entries]


# -- on the page -----------------------------------------------------------------------------------


def pipeline_table(entries: Sequence[Entry]) -> Table:
    """A pipeline per row; the best of a column marked."""
    shown = columns(entries)
    groups: list[tuple[str, int]] = []
    for column in shown:
        width = groups.pop()[1] if groups and groups[-1][0] == column.group else 0
        groups.append((column.group, width + 1))
    cells = [_cells(column, entries) for column in shown]
    return _table(entries, [column.title for column in shown], cells, groups)


def _table(
    entries: Sequence[Entry],
    header: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    groups: Sequence[tuple[str, int]] = (),
    title: str = "",
) -> Table:
    """Of columns."""
    rows = [(entry.label, [column[at] for column in cells]) for at, entry in enumerate(entries)]
    return Table("Pipeline", header, rows, groups, title)


def _cells(column: Column, entries: Sequence[Entry]) -> list[Cell]:
    values = _values(column.read, entries)
    marked = _marks(values, column.kind.write, column.best)
    texts = [written(value, column.kind.write) for value in values]
    if column.before is not None:
        for at, (entry, first) in enumerate(
            zip(entries, _values(column.before, entries), strict=True)
        ):
            personal = entry.first.personal
            if first is not None and personal is not None and personal.final != "global":
                texts[at] = f"{100 * first:.1f} → {texts[at]}"
    return [Cell(text, mark) for text, mark in zip(texts, marked, strict=True)]


def _marks(values: Sequence[Estimate | None], write: Write, best: Best | None) -> list[bool]:
    """Whether a value is the best: all that read the same share the mark; of one there is none."""
    present = [value for value in values if value is not None]
    if best is None or len(values) < 2 or not present:
        return [False] * len(values)
    top = write(float(best(present)), None)
    return [value is not None and write(float(value), None) == top for value in values]


def target_tables(entries: Sequence[Entry]) -> list[Table]:
    """What it took to reach each target, a table per measure that was counted."""
    aims = targets(entries)
    header = [f"{round(100 * aim, 2):g}%" for aim in aims]
    return [
        _table(entries, header, [_aimed(entries, aim, key) for aim in aims], title=measure.title)
        for key, measure in MEASURES.items()
        if any(spent(run, key) for run in runs_of(entries))
    ]


def _aimed(entries: Sequence[Entry], aim: float, key: str) -> list[Cell]:
    """The cost; where only some seeds come so far, how many."""
    write = MEASURES[key].write
    costs = _values(lambda run: reached(run, aim, key), entries)
    cells = []
    for entry, cost, mark in zip(entries, costs, _marks(costs, write, min), strict=True):
        runs = entry.result.runs
        some = sum(reached(run, aim, key) is not None for run in runs)
        partly = f"{some} of {len(runs)} seeds" if some else MISSING
        cells.append(Cell(partly if cost is None else written(cost, write), mark))
    return cells


# -- as text ---------------------------------------------------------------------------------------


def text_table(entries: Sequence[Entry], brief: bool = False) -> Table:
    """A pipeline per row, for terminals (`brief`) and files; there, deviations have columns."""
    header, cells = [], []
    for column in columns(entries):
        if not column.header or (brief and not column.brief):
            continue
        reads = {column.header: column.read}
        if column.before is not None:
            reads = {column.header.replace("personal", "shared"): column.before, **reads}
        for title, read in reads.items():
            values = _values(read, entries)
            header.append(title)
            cells.append([_text(value, column.kind, brief) for value in values])
            if not brief and any(value is not None and value.std is not None for value in values):
                header.append(f"{title} std")
                spreads = [None if value is None else value.std for value in values]
                cells.append([_text(spread, column.kind) for spread in spreads])
    rows = [
        (entry.result.pipeline, [Cell(column[at]) for column in cells])
        for at, entry in enumerate(entries)
    ]
    return Table("pipeline", header, rows)


def _text(value: float | None, kind: Kind, spread: bool = False) -> str:
    shown = number_text(value, kind.unit, kind.form)
    std = value.std if spread and isinstance(value, Estimate) else None
    return shown if std is None else f"{shown} ± {number_text(std, kind.unit, kind.form)}"


def number_text(value: float | None, unit: float = 1.0, form: str = "") -> str:
    """By the format, or else to three figures: 0.0123, 4.56, 78.9, 12300."""
    if value is None:
        return MISSING
    scaled = value / unit
    return f"{scaled:{form or ('.0f' if abs(scaled) >= 100 else '.3g')}}"

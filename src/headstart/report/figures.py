"""Figures of a federation: arrivals, holdings, uploads, λ, errors; none where there is no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart.report import axis
from headstart.report.axis import COLOURS
from headstart.report.comparison_metrics import Entry, spent
from headstart.report.drawing import FAINT, INK, drawn
from headstart.report.format import name, power, round_size, short
from headstart.report.label_layout import NEAR, Box, nearest, place
from headstart.results import Arrival, Confusion, Estimate, HeadSummary, RunResult, SeedResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
_MARKS = "osD^v<>"
POINTS = 400  # of a line; more cannot be seen
LABELLED = 30  # classes: more cannot be read along an axis
COLUMNS, LINES, CELLS = 300, 120, 400  # of the heat map (clients, classes), of the confusion


# -- as clients arrive -----------------------------------------------------------------------------


@drawn(height=4.1)
def accuracy_by_upload(figure: Figure, entries: Sequence[Entry]) -> str:
    curves = [(entry, arrival_curve(entry.result)) for entry in entries]
    curves = [(entry, curve) for entry, curve in curves if len(curve)]
    if not curves:
        return ""
    axes = figure.add_subplot()
    for entry, (uploads, accuracy, spread) in ((entry, curve.T) for entry, curve in curves):
        chief = entry is curves[0][0]
        line = {**axis.line(entry.at), "linewidth": 2.4 if chief else 1.5, "zorder": 2 + chief}
        axis.band(axes, uploads, accuracy, spread, line["color"])
        axes.plot(uploads, accuracy, label=name(entry.legend, 30), **line)
    pooled = _pooled(curves[0][0].result)
    if pooled is not None:
        label = name(f"{curves[0][0].legend}, pooled data", 38)
        axes.axhline(pooled, color=INK, linestyle=(0, (4, 3)), linewidth=1.1, label=label)
    axis.accuracy_scale(axes, arrival_accuracies(entries))
    figure.set_figheight(3.7 + 0.2 * axis.legend(figure))
    axis.uploads(axes, max(curve[-1, 0] for _, curve in curves))
    axes.set_ylabel("test accuracy")
    return "Test accuracy of each pipeline's head after each upload"


def _pooled(result: RunResult) -> Estimate | None:
    return result.over_seeds(lambda run: run.pooled.accuracy if run.pooled else None)


def arrival_curve(result: RunResult) -> Array:
    """Rows (uploads, accuracy, deviation); of a long curve more of the beginning is kept."""
    known = [
        {a.clients: a.accuracy for a in _arrivals(run) if a.accuracy is not None}
        for run in result.runs
    ]
    shared = [at for at in known[0] if all(at in one for one in known)]
    values = [Estimate(one[at] for one in known) for at in shared]
    rows = [(at, value, value.std or 0.0) for at, value in zip(shared, values, strict=True)]
    curve = np.array(rows, float).reshape(-1, 3)
    if len(curve) <= POINTS:
        return curve
    return curve[np.unique(np.geomspace(1, len(curve), POINTS).round().astype(int)) - 1]


def _arrivals(run: SeedResult) -> tuple[Arrival, ...]:
    return run.head.arrivals if run.head else ()


def arrival_accuracies(entries: Sequence[Entry]) -> Array:
    """Every accuracy that the curves show, and the line of pooled data."""
    shown = [arrival_curve(entry.result)[:, 1] for entry in entries]
    pooled = _pooled(entries[0].result) if entries else None
    return np.concatenate([*shown, [] if pooled is None else [pooled]])


@drawn(height=4.1)
def class_coverage(figure: Figure, run: SeedResult) -> str:
    rows = np.array([(one.clients, one.classes) for one in _arrivals(run)], float).reshape(-1, 2)
    if not len(rows):
        return ""
    axes = figure.add_subplot()
    known = len(run.data.classes) or int(rows[:, 1].max())
    axes.axhline(known, color=INK, linestyle=(0, (4, 3)), linewidth=1.1, label=f"all {known:,}")
    seen, classes = rows.T
    axes.fill_between(seen, classes, step="post", color=COLOURS[0], alpha=0.12, linewidth=0)
    line = {**axis.line(0), "linewidth": 2.0, "label": "seen so far"}
    axes.plot(seen, classes, drawstyle="steps-post", **line)
    axes.set_ylim(0, known * 1.06)
    axis.whole(axes.yaxis)
    axis.uploads(axes, rows[-1, 0])
    axes.set_ylabel("classes")
    axis.legend(figure)
    return "Number of classes seen after each upload"


# -- who holds what --------------------------------------------------------------------------------


@drawn(height=3.7)
def who_holds_what(figure: Figure, run: SeedResult) -> str:
    counts = np.array(run.split.counts or (), float)
    if not counts.size:
        return ""
    from matplotlib.colors import LogNorm

    clients, classes = counts.shape
    best = counts.argmax(axis=1)
    counts = counts[np.lexsort((-counts.max(axis=1), best, counts.sum(axis=1) == 0))]
    shown = _gathered(_gathered(counts, COLUMNS, 0), LINES, 1).T
    axes = figure.add_subplot()
    image = axes.imshow(
        np.ma.masked_less_equal(shown, 0),
        norm=LogNorm(1, max(shown.max(), 10)),
        cmap=axis.shades("YlGnBu", 0.18),
        aspect="auto",
        interpolation="none",
    )
    bar = axis.colour_bar(figure, axes, image, "samples")
    axis.log_ticks(bar.ax, "y", np.array([1, max(shown.max(), 10)]), "{:,.0f}".format, room=1.0)
    axis.bare(axes)
    names = [name(label, 14) for label in run.data.classes]
    axis.ticks(axes.yaxis, names if len(names) == classes <= LABELLED else [])
    axis.ticks(axes.xaxis, [])
    axes.set_xlabel(f"{clients:,} client{'s' * (clients != 1)}, by most common class")
    axes.set_ylabel("class")
    return f"Samples of {classes} classes at {clients} clients"


@drawn(height=3.7)
def client_bytes(figure: Figure, run: SeedResult) -> str:
    measured = _sizes([client.up for client in run.clients])
    formula = _sizes([client.formula_up for client in run.clients])
    if not len(measured):
        return ""
    axes = figure.add_subplot()
    blue, orange = COLOURS[:2]
    if len(formula) == len(measured):
        clients = np.linspace(0, 1, len(measured))
        axes.fill_between(clients, measured, formula, color=blue, alpha=0.1, linewidth=0)
    if len(formula):
        share, dashes = np.linspace(0, 1, len(formula)), (0, (4, 2))
        axes.plot(share, formula, color=orange, linestyle=dashes, label="the paper's formula")
    axes.plot(np.linspace(0, 1, len(measured)), measured, color=blue, lw=2.2, label="measured")
    axis.log_ticks(axes, "y", np.r_[measured, formula], round_size, room=1.5)
    axes.set_xlim(0, 1)
    axis.percents(axes.xaxis)
    axes.set_xlabel("share of clients, smallest upload first")
    axes.set_ylabel("bytes per client (log scale)")
    axis.legend(figure)
    return "Bytes uploaded by each client, measured and by formula"


def _sizes(values: Sequence[float | None]) -> Array:
    """Bytes in order; one client alone is drawn as a level line."""
    known = thin(np.sort([value for value in values if value]))
    return np.repeat(known, 2) if len(known) == 1 else known


@drawn(height=3.7)
def accuracy_by_upload_size(figure: Figure, entries: Sequence[Entry]) -> str:
    shown = [(e, x, y) for e in entries if (x := _upload(e.result)) and (y := e.result.accuracy)]
    if not shown:
        return ""
    axes = figure.add_subplot()
    for entry, x, y in shown:
        mark, colour = _MARKS[entry.at % len(_MARKS)], COLOURS[entry.at % len(COLOURS)]
        axes.errorbar(x, y, y.std or 0.0, fmt=mark, color=colour, markersize=8, mec="white",
                      mew=0.8, elinewidth=1.2)  # fmt: skip
    axis.log_ticks(axes, "x", np.array([x for _, x, _ in shown]), round_size, room=2.0)
    heights = [y for *_, y in shown]
    room = max(0.18 * (max(heights) - min(heights)), 0.01)
    axes.set_ylim(min(heights) - room, max(heights) + room)
    axis.percents(axes.yaxis)
    axes.set_xlabel("mean bytes up per client (log scale)")
    axes.set_ylabel("test accuracy")
    _label(figure, axes, [(name(entry.legend, 30), x, y) for entry, x, y in shown])
    return "Accuracy of each pipeline against its bytes per client"


def _upload(result: RunResult) -> float | None:
    """Mean bytes up per client: of the upload alone, where it is known."""

    def read(run: SeedResult) -> float | None:
        own, up = run.head.bytes_per_client if run.head else None, spent(run, "up")
        return own or (up and up / max(len(run.split.clients), 1))

    return result.over_seeds(read)


def _label(figure: Figure, axes: Axes, points: Sequence[tuple[str, float, float]]) -> None:
    """Write each name beside its point, over nothing else; a thin line where it had to move."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    texts = [axes.text(x, y, title, fontsize=10) for title, x, y in points]
    places = [tuple(axes.transData.transform((x, y))) for _, x, y in points]
    boxes = [text.get_window_extent() for text in texts]
    frame = Box(*axes.get_window_extent().extents)
    placed = place(places, [(box.width + 2, box.height) for box in boxes], frame)
    for text, at, box in zip(texts, places, placed, strict=True):
        centre = ((box.left + box.right) / 2, (box.bottom + box.top) / 2)
        text.set(position=axes.transData.inverted().transform(centre), ha="center", va="center")
        end = nearest(at, box)
        if math.dist(at, end) > NEAR:
            ends = axes.transData.inverted().transform([at, end])
            axes.plot(*ends.T, color=FAINT, linewidth=0.7, zorder=1)


# -- the ridge, errors -----------------------------------------------------------------------------


@drawn(height=4.1)
def ridge_path(figure: Figure, head: HeadSummary) -> str:
    if head.path is None or not head.path.ridges:
        return ""
    path = head.path
    ridges, scores = np.array(path.ridges), np.array(path.scores)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    upper.plot(ridges, scores, color=COLOURS[0], linewidth=2)
    lower.plot(ridges, path.freedom, color=COLOURS[2], linewidth=2)
    upper.set_ylabel("GCV score")
    lower.set_ylabel("degrees of\nfreedom")
    lower.set_xlabel("ridge λ (log scale)")
    lower.set_ylim(bottom=0)
    if scores.min() > 0 and scores.max() > 10 * scores.min():
        axis.log_ticks(upper, "y", scores, short)
    axis.log_ticks(lower, "x", ridges, power, room=1.0)
    for ridge, label, colour, dash in _marked(head, path.best):
        for axes in (upper, lower):
            axes.axvline(ridge, color=colour, linestyle=dash, linewidth=1.3, label=label)
    axis.legend(figure, upper)
    return "GCV score and degrees of freedom against the ridge"


def _marked(head: HeadSummary, best: float) -> list[tuple[float, str, str, Any]]:
    """The λ of the lowest score, and the λ used where that is another."""
    used = head.solved.get("ridge")
    same = used is None or math.isclose(best, used, rel_tol=1e-6)
    title = "chosen" if same else "lowest score"
    marks: list[tuple[float, str, str, Any]] = [
        (best, f"{title}: λ = {short(best)}", COLOURS[1], (0, (4, 2)))
    ]
    if used and not same:
        marks.append((used, f"used: λ = {short(used)}", INK, (0, (1.5, 1.5))))
    return marks


@drawn(height=4.9)
def confusion_matrix(figure: Figure, confusion: Confusion) -> str:
    counts = np.array(confusion.matrix, float)
    if not counts.size:
        return ""
    from matplotlib.colors import PowerNorm

    classes = len(counts)
    shown = _gathered(_gathered(counts, CELLS, 0), CELLS, 1)
    shares = shown / np.maximum(shown.sum(axis=1, keepdims=True), 1)
    axes = figure.add_subplot()
    norm = PowerNorm(0.5, 0, 1)
    seen = np.ma.masked_equal(shares, 0)
    image = axes.imshow(seen, cmap=axis.shades("Blues"), norm=norm, interpolation="none")
    bar = axis.colour_bar(figure, axes, image, "share of the true class")
    axis.percents(bar.ax.yaxis)
    axis.bare(axes)
    names = [name(label, 12) for label in confusion.classes]
    names = names if len(names) == classes <= LABELLED else []
    axis.ticks(axes.yaxis, names)
    axis.ticks(axes.xaxis, names, rotation=90 if any(len(label) > 2 for label in names) else 0)
    if classes <= 12:
        _write_cells(axes, shares)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    return f"Confusion matrix of {classes} classes"


def _write_cells(axes: Axes, shares: Array) -> None:
    for row, column in zip(*np.nonzero(shares >= 0.005), strict=True):
        share = shares[row, column]
        colour = "white" if share > 0.3 else INK
        axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", color=colour,
                  fontsize=9)  # fmt: skip


# -- numbers ---------------------------------------------------------------------------------------


def group(count: int, limit: int) -> int:
    """How many neighbours are shown as one so that `count` fit in `limit`."""
    return max(1, math.ceil(count / limit))


def _gathered(counts: Array, limit: int, axis: int) -> Array:
    step = group(counts.shape[axis], limit)
    return np.add.reduceat(counts, np.arange(0, counts.shape[axis], step), axis=axis)


def thin(values: Array) -> Array:
    """At most POINTS of them, evenly, first and last included."""
    if len(values) <= POINTS:
        return values
    return values[np.linspace(0, len(values) - 1, POINTS).round().astype(int)]

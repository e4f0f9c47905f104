"""Figures of a federation: arrivals, holdings, uploads, λ, errors; none where there is no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart.report import axis
from headstart.report.axis import COLOURS
from headstart.report.comparison_metrics import Entry, mean_series, spent
from headstart.report.drawing import INK, drawn
from headstart.report.format import name, power, round_size, short
from headstart.results import Confusion, HeadSummary, RunResult, SeedResult
from headstart.statistics.confusion import intersection_over_union

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
    """Draw accuracy by uploads received; return the caption, "" if there is nothing to draw."""
    curves = [(entry, mean_series(entry.result, _arrived)) for entry in entries]
    curves = [(entry, curve) for entry, curve in curves if len(curve)]
    if not curves:
        return ""
    axes, first = figure.add_subplot(), curves[0][0]
    for entry, curve in curves:
        look = {**axis.line(entry.at), "linewidth": 2.4 if entry is first else 1.5}
        axis.curve(axes, _early(curve), label=name(entry.legend, 30), **look)
    shown = np.concatenate([curve[:, 1] for _, curve in curves])
    pooled = first.result.pooled_accuracy
    if pooled is not None:
        label = name(f"{first.legend}, pooled data", 38)
        axes.axhline(pooled, color=INK, linestyle=(0, (4, 3)), linewidth=1.1, label=label)
        shown = np.append(shown, pooled)
    axis.accuracy_scale(axes, shown)
    figure.set_figheight(3.7 + 0.2 * axis.legend(figure))
    axis.uploads(axes, max(curve[-1, 0] for _, curve in curves))
    axes.set_ylabel("test accuracy")
    return "Test accuracy of each pipeline's head after each upload"


def _arrived(run: SeedResult) -> dict[int, float]:
    arrivals = run.head.arrivals if run.head else ()
    return {
        arrival.clients: arrival.accuracy for arrival in arrivals if arrival.accuracy is not None
    }


def _early(curve: Array) -> Array:
    """Of a long curve more of the beginning is kept."""
    if len(curve) <= POINTS:
        return curve
    return curve[np.unique(np.geomspace(1, len(curve), POINTS).round().astype(int)) - 1]


@drawn(height=4.1)
def class_coverage(figure: Figure, run: SeedResult) -> str:
    """Draw the classes seen by uploads received; return the caption, "" without arrivals."""
    arrivals = run.head.arrivals if run.head else ()
    if not arrivals:
        return ""
    seen, classes = np.array([(arrival.clients, arrival.classes) for arrival in arrivals], float).T
    axes, every = figure.add_subplot(), len(run.data.classes) or int(classes.max())
    axes.axhline(every, color=INK, linestyle=(0, (4, 3)), linewidth=1.1, label=f"all {every:,}")
    axes.fill_between(seen, classes, step="post", color=COLOURS[0], alpha=0.12, linewidth=0)
    line = {**axis.line(0), "linewidth": 2.0, "label": "seen so far"}
    axes.plot(seen, classes, drawstyle="steps-post", **line)
    axes.set_ylim(0, every * 1.06)
    axis.whole(axes.yaxis)
    axis.uploads(axes, seen[-1])
    axes.set_ylabel("classes")
    axis.legend(figure)
    return "Number of classes seen after each upload"


# -- who holds what --------------------------------------------------------------------------------


@drawn(height=3.7)
def who_holds_what(figure: Figure, run: SeedResult) -> str:
    """Draw the samples per client and class; return the caption, "" without counts."""
    counts = np.array(run.split.counts or (), float)
    if not counts.size:
        return ""
    from matplotlib.colors import LogNorm

    clients, classes = counts.shape
    best = counts.argmax(axis=1)
    counts = counts[np.lexsort((-counts.max(axis=1), best, counts.sum(axis=1) == 0))]
    shown = _gathered(_gathered(counts, COLUMNS, 0), LINES, 1).T
    axes, most = figure.add_subplot(), max(shown.max(), 10)
    style: dict[str, Any] = {"aspect": "auto", "interpolation": "none"}
    seen = np.ma.masked_less_equal(shown, 0)
    image = axes.imshow(seen, norm=LogNorm(1, most), cmap=axis.shades("YlGnBu", 0.18), **style)
    bar = axis.colour_bar(figure, axes, image, "samples")
    axis.log_ticks(bar.ax, "y", np.array([1, most]), "{:,.0f}".format, margin=1.0)
    axis.bare(axes)
    names = [name(label, 14) for label in run.data.classes]
    axis.ticks(axes.yaxis, names if len(names) == classes <= LABELLED else [])
    axis.ticks(axes.xaxis, [])
    axes.set_xlabel(f"{clients:,} client{'s' * (clients != 1)}, by most common class")
    axes.set_ylabel("class")
    return f"Samples of {classes} classes at {clients} clients"


@drawn(height=3.7)
def client_bytes(figure: Figure, run: SeedResult) -> str:
    """Draw the bytes per client; return the caption, "" if no client sent any."""
    measured = _sizes([client.up for client in run.clients])
    formula = _sizes([client.formula_up for client in run.clients])
    if not len(measured):
        return ""
    axes, (blue, orange) = figure.add_subplot(), COLOURS[:2]
    share = np.linspace(0, 1, len(measured))
    if len(formula) == len(measured):
        axes.fill_between(share, measured, formula, color=blue, alpha=0.1, linewidth=0)
        axes.plot(share, formula, color=orange, ls=(0, (4, 2)), label="the paper's formula")
    axes.plot(share, measured, color=blue, lw=2.2, label="measured")
    axis.log_ticks(axes, "y", np.r_[measured, formula], round_size, margin=1.5)
    axes.set_xlim(0, 1)
    axis.percents(axes.xaxis)
    axes.set_xlabel("share of clients, smallest upload first")
    axes.set_ylabel("bytes per client (log scale)")
    axis.legend(figure)
    return "Bytes uploaded by each client, measured and by formula"


def _sizes(values: Sequence[float | None]) -> Array:
    """Bytes in order; one client alone is drawn as a level line."""
    sizes = thin(np.sort([value for value in values if value]))
    return np.repeat(sizes, 2) if len(sizes) == 1 else sizes


@drawn(height=3.7)
def accuracy_by_upload_size(figure: Figure, entries: Sequence[Entry]) -> str:
    """Draw accuracy by bytes per client; return the caption, "" without either."""
    shown = [(e, x, y) for e in entries if (x := _upload(e.result)) and (y := e.result.accuracy)]
    if not shown:
        return ""
    axes = figure.add_subplot()
    for entry, x, y in shown:
        look = {"fmt": _MARKS[entry.at % len(_MARKS)], "color": axis.line(entry.at)["color"]}
        axes.errorbar(x, y, y.std or 0.0, markersize=8, label=name(entry.legend, 30), **look)
    axis.log_ticks(axes, "x", np.array([x for _, x, _ in shown]), round_size, margin=2.0)
    heights = [y for *_, y in shown]
    margin = max(0.18 * (max(heights) - min(heights)), 0.01)
    axes.set_ylim(min(heights) - margin, max(heights) + margin)
    axis.percents(axes.yaxis)
    axes.set_xlabel("mean bytes up per client (log scale)")
    axes.set_ylabel("test accuracy")
    figure.set_figheight(3.3 + 0.2 * axis.legend(figure))
    return "Accuracy of each pipeline against its bytes per client"


def _upload(result: RunResult) -> float | None:
    """Mean bytes up per client: of the upload alone, where it is known."""

    def read(run: SeedResult) -> float | None:
        measured, up = run.head.bytes_per_client if run.head else None, spent(run, "up")
        return measured or (up and up / max(len(run.split.clients), 1))

    return result.over_seeds(read)


# -- the ridge, errors -----------------------------------------------------------------------------


@drawn(height=4.1)
def ridge_path(figure: Figure, head: HeadSummary) -> str:
    """Draw the GCV score by λ; return the caption, "" for a head without a path."""
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
    axis.log_ticks(lower, "x", ridges, power, margin=1.0)
    used = head.solved.get("ridge") or path.best
    same = math.isclose(path.best, used, rel_tol=1e-6)
    marks: list[tuple[float, str, dict[str, Any]]] = [
        (path.best, "chosen" if same else "lowest score", {"color": COLOURS[1], "ls": (0, (4, 2))}),
        *([] if same else [(used, "used", {"color": INK, "ls": (0, (1.5, 1.5))})]),
    ]
    for ridge, label, look in marks:
        for axes in (upper, lower):
            axes.axvline(ridge, linewidth=1.3, label=f"{label}: λ = {short(ridge)}", **look)
    axis.legend(figure, upper)
    return "GCV score and degrees of freedom against the ridge"


@drawn(height=4.9)
def iou_by_class(figure: Figure, entries: Sequence[Entry]) -> str:
    """Draw the IoU of each class, bars of the first and marks of the others; return the caption."""
    shown = [(e, e.first.confusion) for e in entries[: len(_MARKS)] if e.first.confusion]
    if not shown:
        return ""
    classes = shown[0][1].classes
    shares = [_iou(confusion) for _, confusion in shown if confusion.classes == classes]
    order = np.argsort(shares[0])
    axes, places = figure.add_subplot(), np.arange(len(order))
    for at, (share, (entry, _)) in enumerate(zip(shares, shown, strict=False)):
        colour, label = axis.line(at)["color"], name(entry.legend, 30)
        if at == 0:
            bars = axes.barh(places, share[order], color=colour, height=0.7, label=label)
            axes.bar_label(bars, [f"{100 * value:.0f}" for value in share[order]], padding=3)
        else:
            look = {"marker": _MARKS[at], "color": colour, "zorder": 3}
            axes.plot(share[order], places, linestyle="none", label=label, **look)
    axes.set_xlim(0, 1)
    axis.percents(axes.xaxis)
    axis.ticks(axes.yaxis, [name(classes[i], 14) for i in order])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("intersection over union, all test pixels")
    if len(shares) > 1:
        axis.legend(figure)
    return f"Intersection over union of {len(order)} classes"


def _iou(confusion: Confusion) -> Array:
    return intersection_over_union(np.array(confusion.matrix, np.int64))


@drawn(height=4.9)
def confusion_matrix(figure: Figure, confusion: Confusion) -> str:
    """Draw the confusion matrix; return the caption, "" if it is empty."""
    counts = np.array(confusion.matrix, float)
    if not counts.size:
        return ""
    from matplotlib.colors import PowerNorm

    classes = len(counts)
    shown = _gathered(_gathered(counts, CELLS, 0), CELLS, 1)
    shares = shown / np.maximum(shown.sum(axis=1, keepdims=True), 1)
    axes, norm = figure.add_subplot(), PowerNorm(0.5, 0, 1)
    seen = np.ma.masked_equal(shares, 0)
    image = axes.imshow(seen, cmap=axis.shades("Blues"), norm=norm, interpolation="none")
    bar = axis.colour_bar(figure, axes, image, "share of the true class")
    axis.percents(bar.ax.yaxis)
    axis.bare(axes)
    names = [name(label, 12) for label in confusion.classes] if classes <= LABELLED else []
    axis.ticks(axes.yaxis, names)
    axis.ticks(axes.xaxis, names, rotation=90 if any(len(label) > 2 for label in names) else 0)
    if classes <= 12:
        _write_cells(axes, shares)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    return f"Confusion matrix of {classes} classes"


def _write_cells(axes: Axes, shares: Array) -> None:
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9}
    for row, column in zip(*np.nonzero(shares >= 0.005), strict=True):
        share = shares[row, column]
        colour = "white" if share > 0.3 else INK
        axes.text(column, row, f"{100 * share:.0f}", color=colour, **middle)


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

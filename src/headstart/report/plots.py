"""The figures: each takes the results and gives one inline SVG, empty when there is no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart.report import axis
from headstart.report.axis import COLOURS
from headstart.report.places import NEAR, Box, nearest, place
from headstart.report.svg import FAINT, INK, inline
from headstart.report.values import (
    Results,
    head_title,
    main_head,
    name,
    number,
    part,
    power,
    round_size,
    rows,
    short,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
_MARKS = "osD^v<>"
POINTS = 400  # of a line; more cannot be seen
LABELLED = 30  # classes: more cannot be read along an axis
COLUMNS, LINES, CELLS = 300, 120, 400  # of the heat map (clients, classes), of the confusion
PERSONAL = {
    "global": "one global head",
    "oll": "only local labels",
    "prior": "local prior",
    "ridge": "residual ridge",
}
_PERSONAL_LOOK: dict[str, dict[str, Any]] = {
    "global": {"color": "#9aa5b1", "linewidth": 3.4},
    "oll": {"color": COLOURS[1], "linewidth": 1.8, "linestyle": (0, (4, 1.5))},
    "prior": {"color": COLOURS[0], "linewidth": 1.8},
    "ridge": {"color": COLOURS[2], "linewidth": 1.8, "linestyle": (0, (1, 1))},
}


# -- as clients arrive -----------------------------------------------------------------------------


@inline(height=4.1)
def accuracy_curves(figure: Figure, results: Results) -> str:
    heads = rows(results, "heads")
    curves = [(at, head, _series(head, "accuracy")) for at, head in enumerate(heads)]
    curves = [curve for curve in curves if len(curve[2])]
    if not curves:
        return ""
    axes = figure.add_subplot()
    for at, head, (uploads, accuracy) in ((at, head, curve.T) for at, head, curve in curves):
        chief = head is main_head(results)
        line = {**axis.line(at), "linewidth": 2.4 if chief else 1.5, "zorder": 3 if chief else 2}
        axes.plot(uploads, accuracy, label=name(head_title(head), 24), **line)
    pooled = number(main_head(results).get("pooled_accuracy"))
    if pooled is not None:
        label = name(f"{head_title(main_head(results))}, pooled data", 32)
        axes.axhline(pooled, color=INK, linestyle=(0, (4, 3)), linewidth=1.1, label=label)
    axis.accuracy_scale(axes, accuracies(results))
    figure.set_figheight(3.7 + 0.2 * axis.legend(figure))
    axis.uploads(axes, max(curve[-1, 0] for _, _, curve in curves))
    axes.set_ylabel("test accuracy")
    return "Test accuracy of each method after each upload"


def accuracies(results: Results) -> Array:
    """Every accuracy that the curves show, and the line of pooled data."""
    shown = [_series(head, "accuracy")[:, 1] for head in rows(results, "heads")]
    pooled = number(main_head(results).get("pooled_accuracy"))
    return np.concatenate([*shown, [] if pooled is None else [pooled]])


@inline(height=4.1)
def class_coverage(figure: Figure, results: Results) -> str:
    curve = _series(main_head(results), "classes")
    if not len(curve):
        return ""
    axes = figure.add_subplot()
    known = len(rows(part(results, "data"), "classes")) or int(curve[:, 1].max())
    axes.axhline(known, color=INK, linestyle=(0, (4, 3)), linewidth=1.1, label=f"all {known:,}")
    seen, classes = curve.T
    axes.fill_between(seen, classes, step="post", color=COLOURS[0], alpha=0.12, linewidth=0)
    line = {**axis.line(0), "linewidth": 2.0, "label": "seen so far"}
    axes.plot(seen, classes, drawstyle="steps-post", **line)
    axes.set_ylim(0, known * 1.06)
    axis.whole(axes.yaxis)
    axis.uploads(axes, curve[-1, 0])
    axes.set_ylabel("classes")
    axis.legend(figure)
    return "Number of classes seen after each upload"


# -- who holds what --------------------------------------------------------------------------------


@inline(height=3.7)
def client_classes(figure: Figure, results: Results) -> str:
    heatmap = part(results, "heatmap")
    counts = _matrix(heatmap.get("counts"))
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
    names = [name(label, 14) for label in rows(heatmap, "classes")]
    axis.ticks(axes.yaxis, names if len(names) == classes <= LABELLED else [])
    axis.ticks(axes.xaxis, [])
    axes.set_xlabel(f"{clients:,} client{'s' * (clients != 1)}, by most common class")
    axes.set_ylabel("class")
    return f"Samples of {classes} classes at {clients} clients"


@inline(height=3.7)
def client_bytes(figure: Figure, results: Results) -> str:
    measured, formula = _sizes(results, "bytes"), _sizes(results, "formula_bytes")
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
    axes.set_ylabel("bytes a client (log scale)")
    axis.legend(figure)
    return "Bytes uploaded by each client, measured and by formula"


def _sizes(results: Results, key: str) -> Array:
    """The clients' bytes in order; one client alone is drawn as a level line."""
    found = [number(client.get(key)) for client in rows(results, "clients")]
    known = _thin(np.sort([size for size in found if size is not None and size > 0]))
    return np.repeat(known, 2) if len(known) == 1 else known


# -- methods ---------------------------------------------------------------------------------------


@inline(height=3.7)
def cost_accuracy(figure: Figure, results: Results) -> str:
    found = [
        (at, name(head_title(head), 26), number(head.get("bytes_per_client")),
         number(head.get("accuracy")))
        for at, head in enumerate(rows(results, "heads"))
    ]  # fmt: skip
    shown = [(at, title, x, y) for at, title, x, y in found if x and x > 0 and y is not None]
    if not shown:
        return ""
    axes = figure.add_subplot()
    for at, _, x, y in shown:
        mark = _MARKS[at % len(_MARKS)]
        axes.plot(x, y, mark, color=COLOURS[at % len(COLOURS)], markersize=8, mec="white", mew=0.8)
    axis.log_ticks(axes, "x", np.array([x for _, _, x, _ in shown]), round_size, room=2.0)
    heights = [y for *_, y in shown]
    room = max(0.18 * (max(heights) - min(heights)), 0.01)
    axes.set_ylim(min(heights) - room, max(heights) + room)
    axis.percents(axes.yaxis)
    axes.set_xlabel("mean bytes a client (log scale)")
    axes.set_ylabel("test accuracy")
    _label(figure, axes, [(title, x, y) for _, title, x, y in shown])
    return "Accuracy of each method against its bytes a client"


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


# -- the ridge -------------------------------------------------------------------------------------


@inline(height=4.1)
def ridge_path(figure: Figure, results: Results) -> str:
    head = path_head(results)
    path = part(head, "path")
    keys = ("ridges", "scores", "freedom")
    columns = [[number(value) for value in rows(path, key)] for key in keys]
    points = [row for row in zip(*columns, strict=False) if None not in row and (row[0] or 0) > 0]
    if not points:
        return ""
    ridges, scores, freedom = np.array(points, dtype=float).T
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    upper.plot(ridges, scores, color=COLOURS[0], linewidth=2)
    lower.plot(ridges, freedom, color=COLOURS[2], linewidth=2)
    upper.set_ylabel("GCV score")
    lower.set_ylabel("degrees of\nfreedom")
    lower.set_xlabel("ridge λ (log scale)")
    lower.set_ylim(bottom=0)
    if scores.min() > 0 and scores.max() > 10 * scores.min():
        axis.log_ticks(upper, "y", scores, short)
    axis.log_ticks(lower, "x", ridges, power, room=1.0)
    for ridge, label, colour, dash in _marked(head, path):
        for axes in (upper, lower):
            axes.axvline(ridge, color=colour, linestyle=dash, linewidth=1.3, label=label)
    axis.legend(figure, upper)
    return "GCV score and degrees of freedom against the ridge"


def path_head(results: Results) -> Results:
    """The head whose ridge path is shown: the main one if it has one, or else the first."""
    heads = [main_head(results), *rows(results, "heads")]
    return next((head for head in heads if part(head, "path")), {})


def _marked(head: Results, path: Results) -> list[tuple[float, str, str, Any]]:
    """The λ of the lowest score, and the λ used where that is another."""
    best, used = number(path.get("best")), number(part(head, "solved").get("ridge"))
    marks: list[tuple[float, str, str, Any]] = []
    if best:
        chosen = used is None or math.isclose(best, used, rel_tol=1e-6)
        title = "chosen" if chosen else "lowest score"
        marks.append((best, f"{title}: λ = {short(best)}", COLOURS[1], (0, (4, 2))))
    if used and not (best and math.isclose(best, used, rel_tol=1e-6)):
        marks.append((used, f"used: λ = {short(used)}", INK, (0, (1.5, 1.5))))
    return marks


# -- errors ----------------------------------------------------------------------------------------


@inline(height=4.9)
def confusion_matrix(figure: Figure, results: Results) -> str:
    confusion = part(results, "confusion")
    counts = _matrix(confusion.get("matrix"))
    if not counts.size or counts.shape[0] != counts.shape[1]:
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
    names = [name(label, 12) for label in rows(confusion, "classes")]
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


# -- personal heads --------------------------------------------------------------------------------


@inline(height=3.7)
def personal_accuracy(figure: Figure, results: Results) -> str:
    tested = [client for client in rows(results, "clients") if part(client, "personal")]
    axes = figure.add_subplot()
    for key, title in PERSONAL.items():
        values = [number(client["personal"].get(key)) for client in tested]
        known = np.sort([value for value in values if value is not None])
        if len(known):
            share = (np.arange(len(known)) + 0.5) / len(known)
            look = {**_PERSONAL_LOOK[key], "marker": "o" if len(known) <= 3 else ""}
            axes.plot(_thin(share), _thin(known), label=title, **look)
    if not axes.lines:
        return ""
    axes.set_xlim(0, 1)
    low = min(float(np.min(line.get_ydata())) for line in axes.lines)
    axes.set_ylim(math.floor(10 * min(low, 0.8)) / 10 - 0.02, 1.03)
    axis.percents(axes.xaxis)
    axis.percents(axes.yaxis)
    axes.set_xlabel("share of clients, least accurate first")
    axes.set_ylabel("accuracy on the client's own test")
    axis.legend(figure)
    return "Accuracy of each client with each head, sorted"


# -- numbers ---------------------------------------------------------------------------------------


def group(count: int, limit: int) -> int:
    """How many neighbours are shown as one so that `count` fit in `limit`."""
    return max(1, math.ceil(count / limit))


def _gathered(counts: Array, limit: int, axis: int) -> Array:
    step = group(counts.shape[axis], limit)
    return np.add.reduceat(counts, np.arange(0, counts.shape[axis], step), axis=axis)


def _thin(values: Array) -> Array:
    """At most POINTS of them, evenly, first and last included."""
    if len(values) <= POINTS:
        return values
    return values[np.linspace(0, len(values) - 1, POINTS).round().astype(int)]


def _series(head: Results, key: str) -> Array:
    """Rows (uploads, value) of a head's curve; of a long one more of the beginning is kept."""
    found = [(number(p.get("clients")), number(p.get(key))) for p in rows(head, "curve")]
    known = np.array([pair for pair in found if None not in pair], dtype=float).reshape(-1, 2)
    if len(known) <= POINTS:
        return known
    return known[np.unique(np.geomspace(1, len(known), POINTS).round().astype(int)) - 1]


def _matrix(values: Any) -> Array:
    """Counts, never negative; empty when they are no matrix."""
    if not values or not values[0]:
        return np.zeros((0, 0))
    return np.maximum(np.nan_to_num(np.array(values, dtype=float), posinf=0.0), 0.0)

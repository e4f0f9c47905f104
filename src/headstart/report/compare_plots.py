"""The figures that compare sentences: each takes all results and gives one inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart.report import axis
from headstart.report.axis import COLOURS
from headstart.report.outcomes import curve, personal
from headstart.report.svg import FAINT, INK, inline
from headstart.report.values import Results, name, number, round_flops, round_size, rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
POINTS = 400  # of a line; more cannot be seen
_LABEL = 64  # signs of a sentence in a legend
EPOCHS = {"own": "own test part", "local": "outside, own classes", "absent": "outside, the others"}


def titles(results: Sequence[Results], limit: int = _LABEL) -> list[str]:
    """The sentences, numbered where they were too long to be told apart."""
    full = [name(result.get("sentence") or "a sentence", 1000) for result in results]
    if max(map(len, full), default=0) <= limit and len(set(full)) == len(full):
        return full
    return [name(f"{at}. {title}", limit) for at, title in enumerate(full, 1)]


@inline(height=4.1)
def by_round(figure: Figure, results: Results) -> str:
    axes, known = _curves(figure, results, "round")
    last = float(known.max(initial=0.0))
    if axes is None or not last:  # everybody speaks once: there is nothing to see
        return ""
    axes.set_xlim(-0.02 * last, last * 1.03)
    axis.whole(axes.xaxis)
    axes.set_xlabel("round")
    return "Test accuracy of each sentence by round"


@inline(height=4.1)
def by_bytes(figure: Figure, results: Results) -> str:
    label = "bytes both ways, all clients (log scale)"
    drawn = _priced(figure, results, "both", label, round_size)
    return drawn and "Test accuracy of each sentence by bytes sent"


@inline(height=4.1)
def by_flops(figure: Figure, results: Results) -> str:
    label = "FLOPs a client (log scale)"
    drawn = _priced(figure, results, "flops", label, round_flops)
    return drawn and "Test accuracy of each sentence by FLOPs a client"


@inline(height=4.1)
def by_formula(figure: Figure, results: Results) -> str:
    label = "bytes up by formula, all clients (log scale)"
    drawn = _priced(figure, results, "formula_up", label, round_size)
    return drawn and "Test accuracy of each sentence by the papers' bytes"


def _priced(
    figure: Figure, results: Results, key: str, label: str, write: Callable[[float], str]
) -> str:
    axes, known = _curves(figure, results, key)
    if axes is None:
        return ""
    axis.log_ticks(axes, "x", known, write, room=1.4)
    axes.set_xlabel(label)
    return label


def _curves(figure: Figure, results: Results, key: str) -> tuple[Axes | None, Array]:
    """Accuracy against a cost, and the costs; one point is also a level that others may cross."""
    told = rows(results, "sentences")
    shown = [
        (at, title, _series(result, key))
        for at, (result, title) in enumerate(zip(told, titles(told), strict=True))
    ]
    shown = [(at, title, series) for at, title, series in shown if len(series)]
    if not shown:
        return None, np.zeros(0)
    axes = figure.add_subplot()
    alone = [tuple(series[0, :2]) for *_, series in shown if len(series) == 1]
    for at, title, series in shown:
        x, accuracy, phases = series.T
        look = {**_line(at), "markevery": _ends(phases), "zorder": 3}
        if len(x) == 1:  # those in one place lie on each other, the first is the widest
            alone.remove((x[0], accuracy[0]))
            look["markersize"] = 5 + 4 * alone.count((x[0], accuracy[0]))
            level = {"color": look["color"], "linewidth": 0.9, "linestyle": (0, (1, 2))}
            axes.axhline(accuracy[0], zorder=1, **level)
        axes.plot(x, accuracy, label=title, **look)
    axis.accuracy_scale(axes, _upper([series[:, 1] for *_, series in shown]))
    axes.set_ylabel("test accuracy")
    figure.set_figheight(3.7 + 0.2 * axis.legend(figure))
    return axes, np.concatenate([series[:, 0] for *_, series in shown])


def _line(at: int) -> dict[str, Any]:
    """Colour and dashes: sentences share phases, and one curve must show under another."""
    return {**axis.line(at), "linestyle": axis.DASHES[at % len(axis.DASHES)]}


def _upper(curves: Sequence[Array]) -> Array:
    """The accuracies to make room for: where curves end, and some way below."""
    ends = np.array([accuracy[-1] for accuracy in curves])
    least = ends.min() - max(0.15, 2 * np.ptp(ends))
    return np.concatenate([np.maximum(accuracy, least) for accuracy in curves])


def _series(result: Results, key: str) -> Array:
    """Rows (cost, accuracy, phase) of a curve; what costs nothing has no place on a log scale."""
    found = [
        (point[key], point["accuracy"], point["phase"] or 0.0)
        for point in curve(result)
        if point["accuracy"] is not None and point[key] is not None
    ]
    known = np.array([row for row in found if key == "round" or row[0]], float).reshape(-1, 3)
    if len(known) <= POINTS:
        return known
    kept = {*np.linspace(0, len(known) - 1, POINTS).round().astype(int), *_ends(known[:, 2])}
    return known[sorted(kept)]


def _ends(phases: Array) -> list[int]:
    """Where phases end."""
    return [*np.flatnonzero(np.diff(phases)).tolist(), len(phases) - 1]


@inline(height=4.1)
def client_changes(figure: Figure, results: Results) -> str:
    """after − before of every client, sorted."""
    told = rows(results, "sentences")
    shown = [
        (at, title, own.change)
        for at, (result, title) in enumerate(zip(told, titles(told), strict=True))
        if (own := personal(result)) is not None
    ]
    if not shown:
        return ""
    axes = figure.add_subplot()
    axes.axhline(0, color=INK, linewidth=1.0, zorder=2)
    for at, title, change in shown:
        share = (np.arange(len(change)) + 0.5) / len(change)
        kept = np.unique(np.linspace(0, len(change) - 1, POINTS).round().astype(int))
        look = {**_line(at), "marker": "o" if len(change) <= 3 else "", "markevery": None}
        axes.plot(share[kept], change[kept], label=title, **look)
    _tint_losses(axes, [change for *_, change in shown])
    axes.set_xlim(0, 1)
    axis.percents(axes.xaxis)
    axes.yaxis.set_major_formatter(lambda value, _: _signed(100 * value))
    axes.set_xlabel("share of clients, those that lose first")
    axes.set_ylabel("points gained")
    figure.set_figheight(3.7 + 0.2 * axis.legend(figure))
    return "Change of each client's accuracy, sorted"


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−") if abs(value) > 1e-9 else "0"


def _tint_losses(axes: Axes, changes: Sequence[Array]) -> None:
    low = min(min(float(change.min()) for change in changes), -0.02)
    high = max(max(float(change.max()) for change in changes), 0.02)
    room = 0.06 * (high - low)
    axes.set_ylim(low - room, high + room)
    axes.axhspan(low - room, 0, color=COLOURS[1], alpha=0.07, linewidth=0, zorder=0)
    axes.text(0.99, low - room / 2, "these clients lose", transform=axes.get_yaxis_transform(),
              ha="right", va="bottom", fontsize=9, color=FAINT)  # fmt: skip


@inline(height=3.9)
def epochs_at_home(figure: Figure, results: Results) -> str:
    """The papers' figure 12: what training alone gives, and what it forgets."""
    told = rows(results, "sentences")
    shown = [
        (at, title, result)
        for at, (result, title) in enumerate(zip(told, titles(told), strict=True))
        if rows(result, "epochs")
    ]
    if not shown:
        return ""
    panels: Any = figure.subplots(1, len(EPOCHS), sharey=True)
    for axes, (key, heading) in zip(panels, EPOCHS.items(), strict=True):
        for at, title, result in shown:
            epochs, values = _by_epoch(result, key)
            axes.plot(epochs, values, label=title, **_line(at))
        axes.set_title(heading, fontsize=10, color=INK)
        axis.whole(axes.xaxis)
        axis.percents(axes.yaxis)
        axes.set_xlabel("epoch")
    panels[0].set_ylabel("accuracy")
    figure.set_figheight(3.3 + 0.2 * axis.legend(figure, panels[0]))
    return "Accuracy at home after each epoch: own test part, own classes outside, other classes"


def _by_epoch(result: Results, key: str) -> tuple[list[float], list[float]]:
    pairs = [(number(row.get("epoch")), number(row.get(key))) for row in rows(result, "epochs")]
    known = [(epoch, value) for epoch, value in pairs if epoch is not None and value is not None]
    return [epoch for epoch, _ in known], [value for _, value in known]

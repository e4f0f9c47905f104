"""Figures of training: accuracy and its price, clients' own models, what happens to features.

A band around a curve is one standard deviation over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart.report import axis
from headstart.report.axis import COLOURS
from headstart.report.comparison_metrics import Entry, OwnModel, mean_curve, mean_series
from headstart.report.drawing import FAINT, INK, Drawing, drawn
from headstart.report.figures import POINTS, thin
from headstart.report.format import name, round_flops, round_size
from headstart.results import RunResult, SeedResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Panels = Mapping[str, Callable[[SeedResult], dict[int, float]]]
EPOCHS = {"own": "own test part", "local": "outside, own classes", "absent": "outside, the others"}
SEEN = {"observed": "classes the client has", "unobserved": "classes it lacks"}
_PRICES = {
    "both": ("accuracy-by-bytes", "bytes both ways, all clients (log scale)", round_size),
    "flops": ("accuracy-by-flops", "FLOPs per client (log scale)", round_flops),
    "formula_up": (
        "accuracy-by-formula",
        "bytes up by formula, all clients (log scale)",
        round_size,
    ),
}
_DIAGNOSED = {
    "alignment": "cos(f, v of the class)",
    "gap": "change of the cosine",
    "distance": "distance of features",
    "angle": "degrees",
}


# -- accuracy and its price ------------------------------------------------------------------------


def price_curves(entries: Sequence[Entry]) -> list[Drawing | None]:
    """Return the figures of accuracy by round and by each cost; None where there is no data."""
    return [
        _by_round(entries),
        *(_by_cost((entries, key), name=_PRICES[key][0]) for key in _PRICES),
    ]


@drawn(height=4.1, name="accuracy-by-round")
def _by_round(figure: Figure, entries: Sequence[Entry]) -> str:
    axes, rounds = _curves(figure, entries, "round")
    last = float(rounds.max(initial=0.0))
    if axes is None or not last:  # everybody speaks once: there is nothing to see
        return ""
    axes.set_xlim(-0.02 * last, last * 1.03)
    axis.whole(axes.xaxis)
    axes.set_xlabel("round")
    return "Test accuracy of each pipeline by round"


@drawn(height=4.1)
def _by_cost(figure: Figure, data: tuple[Sequence[Entry], str]) -> str:
    _, label, write = _PRICES[data[1]]
    axes, costs = _curves(figure, *data)
    if axes is None:
        return ""
    axis.log_ticks(axes, "x", costs, write, margin=1.4)
    axes.set_xlabel(label)
    return f"Test accuracy of each pipeline by {label.removesuffix(' (log scale)')}"


def _curves(figure: Figure, entries: Sequence[Entry], key: str) -> tuple[Axes | None, Array]:
    """Accuracy against a cost, and the costs; one point is also a level that others may cross."""
    shown = [(entry, series(entry.result, key)) for entry in entries]
    shown = [(entry, rows) for entry, rows in shown if len(rows)]
    if not shown:
        return None, np.zeros(0)
    axes = figure.add_subplot()
    alone = [tuple(rows[0, :2]) for _, rows in shown if len(rows) == 1]
    for entry, rows in shown:
        place, look = tuple(rows[0, :2]), {**_line(entry.at), "markevery": _ends(rows[:, 3])}
        if len(rows) == 1:  # those in one place lie on each other, the first is the widest
            alone.remove(place)
            look["markersize"] = 5 + 4 * alone.count(place)
            axes.axhline(place[1], zorder=1, color=look["color"], linewidth=0.9, ls=(0, (1, 2)))
        axis.curve(axes, rows, label=entry.legend, **look)
    axis.accuracy_scale(axes, _upper([rows[:, 1] for _, rows in shown]))
    axes.set_ylabel("test accuracy")
    figure.set_figheight(3.7 + 0.2 * axis.legend(figure))
    return axes, np.concatenate([rows[:, 0] for _, rows in shown])


def _line(at: int) -> dict[str, Any]:
    """Colour and dashes: pipelines share phases, and one curve must show under another."""
    return {**axis.line(at), "linestyle": axis.DASHES[at % len(axis.DASHES)]}


def _upper(curves: Sequence[Array]) -> Array:
    """The accuracies to make room for: where curves end, and some way below."""
    ends = np.array([accuracy[-1] for accuracy in curves])
    least = ends.min() - max(0.15, 2 * np.ptp(ends))
    return np.concatenate([np.maximum(accuracy, least) for accuracy in curves])


def series(result: RunResult, key: str) -> Array:
    """Rows (cost, accuracy, deviation, phase); what costs nothing has no place on a log scale."""
    rows = mean_curve(result, key)
    shown = rows if key == "round" else rows[rows[:, 0] > 0]
    if len(shown) <= POINTS:
        return shown
    kept = {*np.linspace(0, len(shown) - 1, POINTS).round().astype(int), *_ends(shown[:, 3])}
    return shown[sorted(kept)]


def _ends(phases: Array) -> list[int]:
    """Where phases end."""
    return [*np.flatnonzero(np.diff(phases)).tolist(), len(phases) - 1]


# -- clients ---------------------------------------------------------------------------------------


@drawn(height=3.7)
def personal_accuracy(figure: Figure, models: Sequence[OwnModel]) -> str:
    """Every client's accuracy on its own test part, sorted; `models` are of one pipeline."""
    if not models:
        return ""
    axes = figure.add_subplot()
    for model in models:
        wide = {"color": "#9aa5b1", "linewidth": 3.4} if model.model == "global" else {}
        _sorted(axes, model, model.shares, **wide)
    lowest = min(0.8, *(float(model.shares.min()) for model in models))
    axes.set_ylim(math.floor(10 * lowest) / 10 - 0.02, 1.03)
    axis.percents(axes.yaxis)
    axes.set_xlabel("share of clients, least accurate first")
    axes.set_ylabel("accuracy on the client's own test")
    axis.legend(figure)
    return "Accuracy of each client with each model, sorted"


@drawn(height=4.1)
def client_changes(figure: Figure, models: Sequence[OwnModel]) -> str:
    """What every client gains by its own model, sorted."""
    if not models:
        return ""
    axes = figure.add_subplot()
    axes.axhline(0, color=INK, linewidth=1.0, zorder=2)
    for model in models:
        _sorted(axes, model, model.change)
    _tint_losses(axes, np.concatenate([model.change for model in models]))
    axes.yaxis.set_major_formatter(lambda value, _: _signed(100 * value))
    axes.set_xlabel("share of clients, those that lose first")
    axes.set_ylabel("points gained")
    figure.set_figheight(3.7 + 0.2 * axis.legend(figure))
    return "Change of each client's accuracy, sorted"


def _sorted(axes: Axes, model: OwnModel, values: Array, **more: Any) -> None:
    share = (np.arange(len(values)) + 0.5) / len(values)
    look = {**_line(model.at), "marker": "o" if len(values) <= 3 else "", "markevery": None, **more}
    axes.plot(thin(share), thin(values), label=name(model.label, 60), **look)
    axes.set_xlim(0, 1)
    axis.percents(axes.xaxis)


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−") if abs(value) > 1e-9 else "0"


def _tint_losses(axes: Axes, changes: Array) -> None:
    low, high = min(float(changes.min()), -0.02), max(float(changes.max()), 0.02)
    margin = 0.06 * (high - low)
    axes.set_ylim(low - margin, high + margin)
    axes.axhspan(low - margin, 0, color=COLOURS[1], alpha=0.07, linewidth=0, zorder=0)
    corner: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": 9, "color": FAINT}
    across = axes.get_yaxis_transform()
    axes.text(0.99, low - margin / 2, "these clients lose", transform=across, **corner)


@drawn(height=3.9)
def accuracy_by_epoch(figure: Figure, entries: Sequence[Entry]) -> str:
    """Full personalization: what training alone gives, and what it forgets."""

    def read(key: str) -> Callable[[SeedResult], dict[int, float]]:
        return lambda run: {epoch.epoch: getattr(epoch, key) for epoch in run.epochs}

    panels = {heading: read(key) for key, heading in EPOCHS.items()}
    made = _side_by_side(figure, entries, panels, "epoch", "accuracy")
    for axes in made:
        axis.percents(axes.yaxis)
    parts = "own test part, own classes outside, other classes"
    return f"Accuracy of local fine-tuning after each epoch: {parts}" if made else ""


@drawn(height=3.9)
def mean_iou_by_round(figure: Figure, entries: Sequence[Entry]) -> str:
    """Dense networks on masks: what no client has, and what clients have held back."""

    def read(key: str) -> Callable[[SeedResult], dict[int, float]]:
        return lambda run: {
            p.round: p.pixels[key] for p in run.curve if p.pixels and key in p.pixels
        }

    tests = {"unseen": "mean_iou", "seen by clients": "seen_mean_iou"}
    reads = {heading: read(key) for heading, key in tests.items()}
    panels = {h: r for h, r in reads.items() if any(len(r(entry.first)) > 1 for entry in entries)}
    made = _side_by_side(figure, entries, panels, "round", "mIoU")
    for axes in made:
        axis.percents(axes.yaxis)
    return f"mIoU of each pipeline by round: {' and '.join(panels)}" if made else ""


# -- features and the head -------------------------------------------------------------------------


def diagnostics(entries: Sequence[Entry]) -> list[Drawing | None]:
    """What a round of local training does to features: FedDr+'s figures 2, 4 and 5."""
    return [_diagnosed((entries, key), name=f"feature-{key}") for key in _DIAGNOSED]


@drawn(height=3.9)
def _diagnosed(figure: Figure, data: tuple[Sequence[Entry], str]) -> str:
    entries, measure = data

    def read(kind: str) -> Callable[[SeedResult], dict[int, float]]:
        key = f"{kind}_{measure}"
        return lambda run: {
            p.round: p.diagnosis[key] for p in run.curve if p.diagnosis and key in p.diagnosis
        }

    panels = {heading: read(kind) for kind, heading in SEEN.items()}
    made = _side_by_side(figure, entries, panels, "round", _DIAGNOSED[measure])
    return f"{measure} by round: classes that clients have, and those they lack" if made else ""


def _side_by_side(
    figure: Figure, entries: Sequence[Entry], panels: Panels, across: str, up: str
) -> list[Axes]:
    """Each pipeline's mean over seeds of what a panel reads from a run."""
    reads = list(panels.values())
    shown = [entry for entry in entries if any(read(entry.first) for read in reads)]
    if not shown:
        return []
    made: Any = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
    for axes, (heading, read) in zip(made, panels.items(), strict=True):
        for entry in shown:
            rows = mean_series(entry.result, read)
            axis.curve(axes, rows, label=entry.legend, **_line(entry.at))
        axes.set_title(heading, fontsize=10, color=INK)
        axis.whole(axes.xaxis)
        axes.set_xlabel(across)
    made[0].set_ylabel(up)
    figure.set_figheight(3.3 + 0.2 * axis.legend(figure, made[0]))
    return list(made)

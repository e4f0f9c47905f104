"""Figures of training: accuracy and its price, clients' own models, what happens to features.

A band around a curve is one standard deviation over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart.report import axis
from headstart.report.axis import COLOURS
from headstart.report.comparison_metrics import Entry, OwnModel, mean_curve
from headstart.report.drawing import FAINT, INK, drawn
from headstart.report.figures import POINTS, thin
from headstart.report.format import name, round_flops, round_size
from headstart.results import Estimate, RunResult, SeedResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
EPOCHS = {"own": "own test part", "local": "outside, own classes", "absent": "outside, the others"}
SEEN = {"observed": "classes the client has", "unobserved": "classes it lacks"}


# -- accuracy and its price ------------------------------------------------------------------------


@drawn(height=4.1)
def accuracy_by_round(figure: Figure, entries: Sequence[Entry]) -> str:
    axes, known = _curves(figure, entries, "round")
    last = float(known.max(initial=0.0))
    if axes is None or not last:  # everybody speaks once: there is nothing to see
        return ""
    axes.set_xlim(-0.02 * last, last * 1.03)
    axis.whole(axes.xaxis)
    axes.set_xlabel("round")
    return "Test accuracy of each pipeline by round"


@drawn(height=4.1)
def accuracy_by_bytes(figure: Figure, entries: Sequence[Entry]) -> str:
    label = "bytes both ways, all clients (log scale)"
    told = _priced(figure, entries, "both", label, round_size)
    return told and "Test accuracy of each pipeline by bytes sent"


@drawn(height=4.1)
def accuracy_by_flops(figure: Figure, entries: Sequence[Entry]) -> str:
    label = "FLOPs per client (log scale)"
    told = _priced(figure, entries, "flops", label, round_flops)
    return told and "Test accuracy of each pipeline by FLOPs per client"


@drawn(height=4.1)
def accuracy_by_formula(figure: Figure, entries: Sequence[Entry]) -> str:
    label = "bytes up by formula, all clients (log scale)"
    told = _priced(figure, entries, "formula_up", label, round_size)
    return told and "Test accuracy of each pipeline by the papers' bytes"


def _priced(
    figure: Figure, entries: Sequence[Entry], key: str, label: str, write: Callable[[float], str]
) -> str:
    axes, known = _curves(figure, entries, key)
    if axes is None:
        return ""
    axis.log_ticks(axes, "x", known, write, room=1.4)
    axes.set_xlabel(label)
    return label


def _curves(figure: Figure, entries: Sequence[Entry], key: str) -> tuple[Axes | None, Array]:
    """Accuracy against a cost, and the costs; one point is also a level that others may cross."""
    shown = [(entry, series(entry.result, key)) for entry in entries]
    shown = [(entry, rows) for entry, rows in shown if len(rows)]
    if not shown:
        return None, np.zeros(0)
    axes = figure.add_subplot()
    alone = [tuple(rows[0, :2]) for _, rows in shown if len(rows) == 1]
    for entry, rows in shown:
        x, accuracy, phases, spread = rows.T
        look = {**_line(entry.at), "markevery": _ends(phases), "zorder": 3}
        if len(x) == 1:  # those in one place lie on each other, the first is the widest
            alone.remove((x[0], accuracy[0]))
            look["markersize"] = 5 + 4 * alone.count((x[0], accuracy[0]))
            level = {"color": look["color"], "linewidth": 0.9, "linestyle": (0, (1, 2))}
            axes.axhline(accuracy[0], zorder=1, **level)
        axis.band(axes, x, accuracy, spread, look["color"])
        axes.plot(x, accuracy, label=entry.legend, **look)
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
    """Rows (cost, accuracy, phase, deviation); what costs nothing has no place on a log scale."""
    rows = mean_curve(result, key)
    known = rows if key == "round" else rows[rows[:, 0] > 0]
    if len(known) <= POINTS:
        return known
    kept = {*np.linspace(0, len(known) - 1, POINTS).round().astype(int), *_ends(known[:, 2])}
    return known[sorted(kept)]


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
    lowest = 0.8
    for at, one in enumerate(models):
        known = one.shares
        lowest = min(lowest, float(known.min()))
        share = (np.arange(len(known)) + 0.5) / len(known)
        look = {**_line(at), "marker": "o" if len(known) <= 3 else "", "markevery": None}
        if one.model == "global":
            look |= {"color": "#9aa5b1", "linewidth": 3.4}
        axes.plot(thin(share), thin(known), label=name(one.label, 30), **look)
    axes.set_xlim(0, 1)
    axes.set_ylim(math.floor(10 * lowest) / 10 - 0.02, 1.03)
    axis.percents(axes.xaxis)
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
    changes = [one.change for one in models]
    for one, change in zip(models, changes, strict=True):
        share = (np.arange(len(change)) + 0.5) / len(change)
        look = {**_line(one.at), "marker": "o" if len(change) <= 3 else "", "markevery": None}
        axes.plot(thin(share), thin(change), label=one.label, **look)
    _tint_losses(axes, changes)
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


@drawn(height=3.9)
def accuracy_by_epoch(figure: Figure, entries: Sequence[Entry]) -> str:
    """Full personalization: what training alone gives, and what it forgets."""

    def read(key: str) -> Callable[[SeedResult], dict[int, float]]:
        return lambda run: {epoch.epoch: getattr(epoch, key) for epoch in run.epochs}

    panels = {heading: read(key) for key, heading in EPOCHS.items()}
    made = _panels(figure, entries, panels, "epoch", "accuracy")
    for axes in made:
        axis.percents(axes.yaxis)
    shown = "Accuracy at home after each epoch: own test part, own classes outside, other classes"
    return shown if made else ""


# -- features and the head -------------------------------------------------------------------------


@drawn(height=3.9)
def feature_alignment(figure: Figure, entries: Sequence[Entry]) -> str:
    return _diagnosed(figure, entries, "alignment", "cos(f, v of the class)")


@drawn(height=3.9)
def alignment_gap(figure: Figure, entries: Sequence[Entry]) -> str:
    return _diagnosed(figure, entries, "gap", "change of the cosine")


@drawn(height=3.9)
def feature_distance(figure: Figure, entries: Sequence[Entry]) -> str:
    return _diagnosed(figure, entries, "distance", "distance of features")


@drawn(height=3.9)
def feature_angle(figure: Figure, entries: Sequence[Entry]) -> str:
    return _diagnosed(figure, entries, "angle", "degrees")


DIAGNOSTICS = (feature_alignment, alignment_gap, feature_distance, feature_angle)


def _diagnosed(figure: Figure, entries: Sequence[Entry], measure: str, label: str) -> str:
    def read(kind: str) -> Callable[[SeedResult], dict[int, float]]:
        key = f"{kind}_{measure}"
        return lambda run: {
            p.round: p.diagnosis[key] for p in run.curve if p.diagnosis and key in p.diagnosis
        }

    panels = {heading: read(kind) for kind, heading in SEEN.items()}
    made = _panels(figure, entries, panels, "round", label)
    return f"{measure} by round: classes that clients have, and those they lack" if made else ""


def _panels(
    figure: Figure,
    entries: Sequence[Entry],
    panels: dict[str, Callable[[SeedResult], dict[int, float]]],
    across: str,
    up: str,
) -> list[Axes]:
    """Side by side: each pipeline's mean over seeds of what a panel reads from a run."""
    reads = panels.values()
    shown = [e for e in entries if any(read(run) for read in reads for run in e.result.runs)]
    if not shown:
        return []
    made: Any = figure.subplots(1, len(panels), sharey=True)
    for axes, (heading, read) in zip(made, panels.items(), strict=True):
        for entry in shown:
            at, mean, spread = _mean(entry.result, read)
            look = _line(entry.at)
            axis.band(axes, at, mean, spread, look["color"])
            axes.plot(at, mean, label=entry.legend, **look)
        axes.set_title(heading, fontsize=10, color=INK)
        axis.whole(axes.xaxis)
        axes.set_xlabel(across)
    made[0].set_ylabel(up)
    figure.set_figheight(3.3 + 0.2 * axis.legend(figure, made[0]))
    return list(made)


def _mean(
    result: RunResult, read: Callable[[SeedResult], dict[int, float]]
) -> tuple[Array, Array, Array]:
    """Where all seeds have a value: there, their mean and deviation."""
    known = [read(run) for run in result.runs]
    shared = [at for at in known[0] if all(at in one for one in known)]
    values = [Estimate(one[at] for one in known) for at in shared]
    return np.array(shared, float), np.array(values), np.array([v.std or 0.0 for v in values])

"""Axes, legends and colours that the figures share.

Colours are those of Okabe and Ito (distinct with any colour vision); dashes differ too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart.report.drawing import GRID

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5b6570")
STRETCHED = 0.85  # accuracies from here on are drawn by their error, on a log scale
_ACCURACIES = (0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))


def line(at: int) -> dict[str, Any]:
    """Colour and dashes of the line `at`, with a mark at its end."""
    return {
        "color": COLOURS[at % len(COLOURS)],
        "linestyle": DASHES[(at // len(COLOURS)) % len(DASHES)],
        "marker": "o",
        "markersize": 4,
        "markevery": [-1],
    }


def curve(axes: Axes, rows: Array, **look: Any) -> None:
    """Rows (x, mean, deviation, …): a line and, with seeds, a band of one standard deviation."""
    x, mean, spread = rows.T[:3]
    if spread.any():
        edges = (mean - spread, mean + spread)
        axes.fill_between(x, *edges, color=look["color"], alpha=0.15, linewidth=0, zorder=1)
    axes.plot(x, mean, zorder=3, **look)


def legend(figure: Figure, axes: Axes | None = None) -> int:
    """A legend above the figure; answers with its lines."""
    handles, labels = (axes or figure.axes[0]).get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    columns = 3 if longest <= 18 else 2 if longest <= 34 else 1
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, handlelength=2.2)
    return math.ceil(len(labels) / columns)


def uploads(axes: Axes, last: float) -> None:
    """Set up an x axis of uploads received, on a log scale above 200."""
    if last > 200:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.xaxis.set_minor_formatter("")
        axes.set_xlim(1, last * 1.1)
        axes.set_xlabel("uploads received (log scale)")
    else:
        axes.set_xlim(0, last * 1.03)
        whole(axes.xaxis)
        axes.set_xlabel("uploads received")


def percents(axis: Axis) -> None:
    """Write the ticks of an axis of shares as percentages."""
    axis.set_major_formatter(lambda value, _: f"{round(100 * value, 2):g}%")


def accuracy_scale(axes: Axes, values: Array) -> None:
    """Accuracies up the y axis; where they are high, in equal steps for equal factors of error."""
    from matplotlib.ticker import FixedLocator

    low = math.floor(10 * min(values.min(), 0.8)) / 10
    if values.max() < STRETCHED:
        percents(axes.yaxis)
        axes.set_ylim(low, min(1.0, math.ceil(10 * values.max() + 0.2) / 10))
        return
    errors = 1 - values
    least = max(errors[errors > 0].min(initial=0.1) / 1.5, 1e-4)
    axes.set_yscale(
        "function",
        functions=(lambda a: -np.log10(np.maximum(1 - a, least / 2)), lambda b: 1 - 10.0**-b),
    )
    axes.yaxis.set_major_locator(FixedLocator(_ACCURACIES))
    percents(axes.yaxis)
    axes.set_ylim(low, 1 - least)


def whole(axis: Axis) -> None:
    """Keep the ticks of an axis at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(6, integer=True))
    # Around a single value matplotlib has ticks between whole numbers all the same.
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value == round(value) else "")


def _log(axes: Axes, which: str, values: Array, margin: float) -> float:
    """A log scale around the values, of a decade at least; answers with its decades."""
    positive = values[np.isfinite(values) & (values > 0)]
    low, high = positive.min() / margin, positive.max() * margin
    wider = math.sqrt(max(1.0, 10 / (high / low)))
    low, high = low / wider, high * wider
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    return math.log10(high / low)


def log_ticks(
    axes: Axes, which: str, values: Array, write: Callable[[float], str], margin: float = 1.2
) -> None:
    """A log scale around the values, its ticks at 1, 2 and 5 where it is short."""
    from matplotlib.ticker import LogLocator, NullFormatter

    few = _log(axes, which, values, margin) < 2.5
    axis: Axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=8))
    axis.set_major_formatter(lambda value, _: write(value))
    axis.set_minor_formatter(NullFormatter())


def bare(axes: Axes) -> None:
    """An axes around an image: no grid, a thin frame."""
    axes.grid(False)
    axes.spines[:].set(visible=True, color=GRID)


def ticks(axis: Axis, names: Sequence[str], rotation: float = 0) -> None:
    """Name the ticks of an axis, in smaller letters where there are many."""
    small = 9 if len(names) <= 16 else 7
    axis.set_ticks(range(len(names)), names, fontsize=small, rotation=rotation)


def colour_bar(figure: Figure, axes: Axes, image: Any, label: str) -> Any:
    """Add a colour bar to the figure and return it."""
    bar: Any = figure.colorbar(image, ax=axes, label=label, shrink=0.85, aspect=28, pad=0.02)
    bar.ax.yaxis.set_minor_formatter("")
    bar.outline.set_visible(False)
    return bar


def shades(title: str, start: float = 0.0) -> Any:
    """A colour map from `start` of its range on, white where there is nothing."""
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap

    colours = matplotlib.colormaps[title](np.linspace(start, 1, 256))
    return LinearSegmentedColormap.from_list(title, colours).with_extremes(bad="white")

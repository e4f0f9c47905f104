"""Curves of what local training does to features: FedDr+'s figures 2, 4 and 5 for any sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headstart.report import axis
from headstart.report.compare_plots import titles
from headstart.report.markup import figure as captioned
from headstart.report.markup import section
from headstart.report.svg import INK, inline
from headstart.report.values import Results, number, rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {"observed": "classes the client has", "unobserved": "classes it lacks"}
LEAD = (
    "Test samples through the models of a round's clients after they have trained, apart for the "
    "classes that a client has and those it lacks; the mean over clients."
)


def _drawn(figure: Figure, results: Results, measure: str, label: str) -> str:
    told = rows(results, "sentences")
    shown = [
        (at, title, result)
        for at, (result, title) in enumerate(zip(told, titles(told), strict=True))
        if any(_series(result, f"{kind}_{measure}") for kind in KINDS)
    ]
    if not shown:
        return ""
    panels: Any = figure.subplots(1, len(KINDS), sharey=True)
    for axes, (kind, heading) in zip(panels, KINDS.items(), strict=True):
        for at, title, result in shown:
            known = _series(result, f"{kind}_{measure}")
            axes.plot([x for x, _ in known], [y for _, y in known], label=title, **axis.line(at))
        axes.set_title(heading, fontsize=10, color=INK)
        axis.whole(axes.xaxis)
        axes.set_xlabel("round")
    panels[0].set_ylabel(label)
    figure.set_figheight(3.3 + 0.2 * axis.legend(figure, panels[0]))
    return f"{measure} by round: classes that clients have, and those they lack"


def _series(result: Results, key: str) -> list[tuple[float, float]]:
    pairs = [(number(p.get("round")), number(p.get(key))) for p in rows(result, "curve")]
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _figure(measure: str, label: str) -> Callable[[Results], str]:
    @inline(height=3.9)
    def draw(figure: Figure, results: Results) -> str:
        return _drawn(figure, results, measure, label)

    return draw


FIGURES = (
    (
        _figure("alignment", "cos(f, v of the class)"),
        "Alignment of features with the head's row of their class (figures 2b and 5).",
    ),
    (
        _figure("gap", "change of the cosine"),
        "What a round of local training adds to it or takes away (figure 2a).",
    ),
    (
        _figure("distance", "distance of features"),
        "How far features move from those of the received model (figure 4a).",
    ),
    (_figure("angle", "degrees"), "By which angle they turn (figure 4b)."),
)


def diagnoses(results: Sequence[Results]) -> str:
    """A section; nothing where no sentence was diagnosed."""
    told = {"sentences": list(results)}
    drawn = [captioned(draw(told), caption) for draw, caption in FIGURES]
    return section("Features and the head", LEAD, *drawn)

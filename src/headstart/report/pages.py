"""The report: one HTML file for one result or many, no scripts, no links, the same bytes each time.

What a page shows is chosen by what its results hold; its text is in `templates/`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.errors import HeadstartError
from headstart.files import write_bytes
from headstart.report import curve_figures, figures, sections, summary, tables
from headstart.report.axis import STRETCHED
from headstart.report.comparison_metrics import (
    Entry,
    accuracies,
    cheapest,
    make_entries,
    models_of,
    own_models,
    runs_of,
    splits,
    trained,
)
from headstart.report.comparison_table import Table, pipeline_table, target_tables
from headstart.report.drawing import Drawing
from headstart.report.format import count, flops, percent, plain, points, size, written
from headstart.report.pictures import pictures
from headstart.results import Estimate, RunResult

if TYPE_CHECKING:
    from jinja2 import Environment

MANY = 16  # curves: more cannot be distinguished


def page(
    results: Sequence[RunResult],
    *,
    title: str = "",
    labels: Sequence[str] | None = None,
    grid: Sequence[Table] = (),
) -> str:
    """The whole page as text.

    `labels` are other names for the results, `grid` tables that stand above all; without a title
    it says what was compared.
    """
    entries, shared = make_entries(results, labels)
    return _render(entries, shared, _drawings(entries), title, grid)


def figure(results: Sequence[RunResult], by: str = "round") -> Any:
    """Accuracy by round, bytes, flops or formula (the papers' bytes), as a matplotlib figure."""
    drawings = curve_figures.price_curves(make_entries(results)[0])
    drawn = {drawing.name: drawing for drawing in drawings if drawing}
    axes = ("round", "bytes", "flops", "formula")
    if by not in axes:
        raise HeadstartError(f"by: expected one of {', '.join(axes)}, got {by!r}")
    if f"accuracy-by-{by}" not in drawn:
        raise HeadstartError(f"by: expected a curve, got results without any by {by}")
    return drawn[f"accuracy-by-{by}"].canvas


def write_report(
    results: Sequence[RunResult],
    folder: Path,
    *,
    title: str = "",
    labels: Sequence[str] | None = None,
    grid: Sequence[Table] = (),
) -> None:
    """Write report.html; beside it each figure as SVG and PDF, and the numbers as CSV."""
    entries, shared = make_entries(results, labels)
    drawings = _drawings(entries)
    _keep_only(folder / "figures", drawings)
    for drawing in drawings.values():
        write_bytes(folder / "figures" / f"{drawing.name}.svg", drawing.svg)
        write_bytes(folder / "figures" / f"{drawing.name}.pdf", drawing.pdf)
    for file, text in tables.files(entries).items():
        if text:
            write_bytes(folder / file, text.encode(errors="backslashreplace"))
        else:
            (folder / file).unlink(missing_ok=True)
    html = _render(entries, shared, drawings, title, grid)
    write_bytes(folder / "report.html", html.encode())


def _keep_only(folder: Path, drawings: dict[str, Drawing]) -> None:
    """Make the folder; a figure of an earlier report that this one has not is taken away."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.suffix in (".svg", ".pdf") and path.stem not in drawings:
            path.unlink()


def _render(
    entries: Sequence[Entry],
    shared: Sequence[str],
    drawings: dict[str, Drawing],
    title: str,
    grid: Sequence[Table],
) -> str:
    values = [value for run in runs_of(entries) for value in accuracies(run)]
    compared = summary.compared(entries)
    scenes = any(run.mean_iou is not None for run in runs_of(entries))
    context: dict[str, object] = {
        "style": (files(__package__) / "templates" / "style.css").read_text(encoding="utf-8"),
        "title": title or compared.title,
        "compared": compared,
        "shared": ", ".join(shared),
        "seeds": summary.over_seeds(entries),
        "scenes": scenes,
        "best": summary.best(entries, _of_pixels if scenes else lambda result: result.accuracy),
        "best_own": summary.best(entries, lambda result: result.personal_accuracy),
        "cheapest": {  # by accuracy, which of scenes is not what is compared
            key: None if scenes else cheapest(entries, key) for key in ("both", "flops")
        },
        "means": summary.means(entries[0].result),
        "evaluated": bool(values),
        "facts": summary.facts(entries),
        "grid": grid,
        "entries": entries,
        "figures": drawings.get,
        "drawn": min(len(entries), MANY),
        "stretched": max(values, default=0.0) >= STRETCHED,
        "table_of_pipelines": pipeline_table(entries),
        "trained": trained(entries),
        "paired": sections.paired_table(entries),
        "targets": target_tables(entries) if trained(entries) else [],
        "holdings": [sections.holdings(entry.first) for entry in splits(entries)],
        "ridges": sections.ridge_table(entries),
        "errors": sections.errors(entries),
        "pixels": sections.pixel_table(entries),
        "pictures": pictures(entries),
        "own": sections.own_table(own_models(entries)),
        "models": models_of(entries[:1]),
        "bits": sections.same_bits(entries),
        "reveals": sections.reveals(entries),
        "promises": sections.promises(entries),
        "failures": [failure for run in runs_of(entries) for failure in run.failures],
        "differing": summary.differing(entries),
        "common": summary.common(entries),
        "footer": summary.footer(entries),
    }
    return _environment().get_template("page.html").render(context)


def _of_pixels(result: RunResult) -> Estimate | None:
    return result.over_seeds(lambda run: run.mean_iou)


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        """What a template prints: never None, NaN or a control character."""
        return value if isinstance(value, Markup) else plain(value)

    made = Environment(
        loader=PackageLoader("headstart.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        write.__name__: functools.partial(written, write=write)
        for write in (count, flops, percent, points, size)
    }
    return made


# -- figures ---------------------------------------------------------------------------------------


def _drawings(entries: Sequence[Entry]) -> dict[str, Drawing]:
    """All that there is to draw, by name."""
    few = _clearest(entries)
    heads = [run.head for run in (entry.first for entry in entries) if run.head]
    arrived = [e.first for e in entries if e.first.head and e.first.head.arrivals]
    confused = sections.confusion_of(entries)
    scenes = any(entry.first.mean_iou is not None for entry in entries)  # tested once, at the end
    drawings: list[Drawing | None] = [
        *(curve_figures.price_curves(few) if trained(entries) else ()),
        *([] if trained(entries) or len(few) < 2 else [figures.accuracy_by_upload_size(few)]),
        *([] if trained(entries) else [figures.client_bytes(entries[0].first)]),
        *([] if scenes else [figures.accuracy_by_upload(few)]),
        *(figures.class_coverage(run) for run in arrived[:1] if not scenes),
        *(figures.ridge_path(head) for head in [head for head in heads if head.path][:1]),
        figures.iou_by_class([entry for entry in few if entry.first.mean_iou is not None]),
        *([figures.confusion_matrix(confused[1])] if confused else []),
        curve_figures.mean_iou_by_round(few),
        curve_figures.personal_accuracy(models_of(entries)),
        curve_figures.client_changes(own_models(few)),
        curve_figures.accuracy_by_epoch(few),
        *curve_figures.diagnostics(few),
    ]
    for at, entry in enumerate(splits(entries), 1):
        place = f"who-holds-what{f'-{at}' if at > 1 else ''}"
        drawings.append(figures.who_holds_what(entry.first, name=place))
    return {drawing.name: drawing for drawing in drawings if drawing is not None}


def _clearest(entries: Sequence[Entry]) -> list[Entry]:
    """Those whose curves are drawn: of many, the most accurate."""
    best = sorted(entries, key=lambda entry: -(entry.result.accuracy or 0.0))[:MANY]
    return sorted(best, key=lambda entry: entry.at)

"""Results in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from headstart.console import out, say, show_rows
from headstart.results import RunResult, SeedResult


def show_heads(results: Sequence[RunResult], extra: Sequence[tuple[str, float]] = ()) -> None:
    """The table of fitted heads: accuracy, personal accuracy, bytes."""
    runs = [result.runs[0] for result in results]
    personal = any(run.personal for run in runs)
    table = Table(title=_title(runs[0]), title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("head", no_wrap=True)
    scenes = any(run.mean_iou is not None for run in runs)
    if scenes:
        table.add_column("mIoU", justify="right", no_wrap=True)
    table.add_column("pixel\naccuracy" if scenes else "accuracy", justify="right", no_wrap=True)
    if personal:
        table.add_column("personal: global\n→OLL→prior→ridge", justify="right", no_wrap=True)
    sent = "exact" if runs[0].settings.get("exact") else "sent"
    for column in (f"bytes:\n{sent}", "\nfloat32", "\nint8", "paper's\nformula"):
        table.add_column(column, justify="right", no_wrap=True)
    for run in runs:
        table.add_row(*_cells(run, personal))
    for title, accuracy in extra:
        table.add_row(title, f"{100 * accuracy:.1f}")
    out().print(table)


def _title(run: SeedResult) -> str:
    rest = {key: value for key, value in run.split.settings.items() if key != "clients"}
    settings = ", ".join(f"{key} {value}" for key, value in rest.items())
    title = f"{run.data.name}, {len(run.split.clients)} clients, {run.split.name}"
    title += f" ({settings})" if settings else ""
    return title if run.data.shift is None else f"{title}, colours shifted by {run.data.shift:g}"


def _cells(run: SeedResult, personal: bool) -> list[str]:
    head, scores = run.head, run.personal
    cells = [
        head.title if head else run.pipeline,
        *([] if run.mean_iou is None else [f"{100 * run.mean_iou:.1f}"]),
        "" if run.accuracy is None else f"{100 * run.accuracy:.1f}",
    ]
    if personal:
        cells.append(
            "→".join(f"{100 * scores.weighted(m):.1f}" for m in scores.models) if scores else ""
        )
    sizes = head and (
        head.bytes_per_client,
        head.sizes.get("float32"),
        head.sizes.get("int8"),
        head.formula_bytes_per_client,
    )
    return [*cells, *("" if size is None else f"{size:,.0f}" for size in sizes or ())]


def show_end(results: Sequence[RunResult], folder: Path) -> None:
    """Print the privacy statements, whether federated and pooled totals agree, and the folder."""
    for result in results:
        if result.runs[0].privacy:
            facts = "; ".join(f"{what}: {text}" for what, text in result.runs[0].privacy.facts[:5])
            say(f"{result.pipeline}: {facts}")
    for run in (result.runs[0] for result in results):
        if run.head and run.pooled and run.pooled.digest:
            federated, pooled = run.head.digest, run.pooled.digest
            word = "the same bits" if federated == pooled else "NOT THE SAME"
            say(f"federated total {federated[:16]}…, pooled total {pooled[:16]}…: {word}")
            break
    first = folder / "01" if len(results) > 1 else folder  # the first is the model kept
    say(f"report: {folder / 'report.html'}   model: {first / 'model.safetensors'}")


def show_pipelines(results: Sequence[RunResult], folder: Path) -> None:
    """The first table of the report; the others are in files beside it."""
    from headstart.report.comparison_metrics import make_entries
    from headstart.report.comparison_table import text_table

    header, *rows = text_table(make_entries(results)[0], brief=out().width < 160).text
    show_rows(header, rows)
    say(f"report: {folder / 'report.html'} (its figures in figures/, its numbers as .csv files)")

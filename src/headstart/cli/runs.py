"""Commands that run a federation: `demo`, `run`, `compare`, `fit`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headstart.cli.interrupt import resumable
from headstart.cli.options import (
    ALPHA,
    CLIENTS,
    SEED,
    ColumnOptions,
    FeatureOptions,
    Output,
    SplitOptions,
    config_of,
    with_options,
)
from headstart.console import bar, out, say, show_end, show_results, show_rows
from headstart.errors import HeadstartError

SENTENCE: dict[str, Any] = {"held_out": 0.45}  # a sentence may end at home


def demo(
    clients: Annotated[int, CLIENTS] = 50,
    alpha: Annotated[float, ALPHA] = 0.1,
    seed: Annotated[int, SEED] = 0,
    output: Output = None,
) -> None:
    """Digits over 50 very unlike clients: all heads, one table, one report."""
    from headstart.runs.demo import demo_config, pooled_ridge
    from headstart.runs.execute import run
    from headstart.runs.federate import prepare

    config = demo_config(clients, alpha, seed)
    with run_folder(output, "demo") as (folder, show):
        results = run(config, folder, show)
    ridge = results["heads"][0]["solved"]["ridge"]
    show_results(results, [("pooled ridge", pooled_ridge(prepare(config), ridge))])
    show_end(results, folder)


@with_options
def run(
    what: Annotated[str, typer.Argument(help="a YAML file, or a sentence in quotes")],
    changes: Annotated[list[str] | None, typer.Argument(help="key=value …")] = None,
    *,
    split: SplitOptions,
    features: FeatureOptions,
    columns: ColumnOptions,
    output: Output = None,
) -> None:
    """Run a configuration or a sentence; `key=value` changes it (partition.alpha=0.5)."""
    from headstart.runs.config import read_plain

    split = replace(split, change=[*(changes or []), *(split.change or [])])
    in_file = Path(what).suffix in (".yaml", ".yml") or Path(what).is_file()
    base = read_plain(what) if in_file else {**SENTENCE, "phases": what}
    config = config_of(base, split, features, columns)
    name = Path(what).stem if in_file else "sentence"
    if config.phases is None:
        _fit(config, output, name)
        return
    from headstart.runs.stories import run_sentence

    with run_folder(output, name) as (folder, show):
        results = [run_sentence(config, folder, show)]
    show_sentences(results, folder)


@with_options
def compare(
    sentences: Annotated[list[str], typer.Argument(help="two or more, each in quotes")],
    split: SplitOptions,
    features: FeatureOptions,
    columns: ColumnOptions,
    output: Output = None,
) -> None:
    """Run several sentences on one split: one table, one set of curves."""
    from headstart.runs.stories import compare as run_all

    config = config_of(SENTENCE, split, features, columns)
    with run_folder(output, "compare") as (folder, show):
        results = run_all(sentences, config, folder, show)
    show_sentences(results, folder)


@with_options
def fit(
    split: SplitOptions,
    features: FeatureOptions,
    columns: ColumnOptions,
    head: Annotated[list[str] | None, typer.Option(help="heads to fit; the first is kept")] = None,
    ridge: Annotated[str, typer.Option(help="λ: a number, or gcv")] = "gcv",
    output: Output = None,
) -> None:
    """Fit a federated head to your features: a model, a total and a report."""
    ridges = {"fed3r", "fed3r-rf"}
    heads = [
        {"name": name, **({"ridge": _number(ridge)} if name in ridges else {})}
        for name in head or ["fed3r"]
    ]
    config = config_of({"heads": heads}, split, features, columns)
    if config.phases is not None:
        raise HeadstartError("phases: expected none, for `headstart run` runs sentences")
    _fit(config, output, Path(config.data).stem)


def _fit(config: Any, output: Path | None, name: str) -> None:
    from headstart.runs.execute import run

    with run_folder(output, name) as (folder, show):
        results = run(config, folder, show)
    show_results(results)
    show_end(results, folder)


def show_sentences(results: list[dict[str, Any]], folder: Path) -> None:
    """The first table of the report; the others are in files beside it."""
    from headstart.report.compare import table_rows

    rows = table_rows(results, brief=out.width < 160)
    show_rows(rows.header, rows.body)
    say(f"report: {folder / 'report.html'} (and table.csv, targets.csv)")


@contextmanager
def run_folder(output: Path | None, name: str) -> Iterator[tuple[Path, Any]]:
    """The folder named, or a new one, and a progress bar; who interrupts is told how to go on."""
    folder = output or _fresh(name)
    with resumable(folder, named=output is not None), bar() as show:
        yield folder, show


def _fresh(name: str) -> Path:
    """runs/NAME-1, runs/NAME-2, …: the first that is not there yet."""
    number = 1
    while Path("runs", f"{name}-{number}").exists():
        number += 1
    return Path("runs", f"{name}-{number}")


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text

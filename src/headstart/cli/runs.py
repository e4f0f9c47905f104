"""Commands that run a federation: `demo`, `run`, `compare`, `fit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
    PrivacyOptions,
    SplitOptions,
    config_of,
    with_options,
)
from headstart.cli.watch import Watch, watched
from headstart.console import bar, say
from headstart.errors import HeadstartError

HELD_OUT: dict[str, Any] = {"held_out": 0.45}  # a pipeline may end with each client alone
Seeds = Annotated[int, typer.Option(min=1, help="how many seeds: --seed and those that follow it")]


def demo(
    what: Annotated[str, typer.Argument(help="digits, or streets (drawn scenes)")] = "digits",
    *,
    clients: Annotated[int, CLIENTS] = 50,
    alpha: Annotated[float, ALPHA] = 0.1,
    seed: Annotated[int, SEED] = 0,
    output: Output = None,
    watch: Watch = False,
) -> dict[str, Any]:
    """Digits over 50 very unlike clients, or drawn streets: heads, one table, one report."""
    if what == "streets":
        return _streets(output)
    if what != "digits":
        raise HeadstartError(f"demo: expected digits or streets, got {what!r}")
    from headstart.cli.show import show_end, show_heads
    from headstart.pipeline.demo import PIPELINES, demo_config, pooled_ridge
    from headstart.pipeline.experiment import prepare
    from headstart.pipeline.run import compare as run_all

    config = demo_config(clients, alpha, seed)
    with ExitStack() as after:
        with run_folder(output, "demo") as (folder, show):
            after.enter_context(watched(folder, watch))
            results = run_all(PIPELINES, config, folder, progress=show)
        first = results[0].runs[0].head
        assert first is not None
        pooled = pooled_ridge(prepare(config), first.solved["ridge"])
        show_heads(results, [("pooled ridge", pooled)])
        show_end(results, folder)
        return {**_facts(results, folder), "pooled_ridge": pooled}


def _streets(output: Path | None) -> dict[str, Any]:
    """The class of every pixel of drawn streets, six drives, one message each."""
    from headstart import optional
    from headstart.cli.show import show_end, show_heads
    from headstart.pipeline.config import make_config
    from headstart.pipeline.run import compare as run_all

    optional.check("vision", "demo streets")
    config = make_config({"data": "streets", "extractor": "efficientnet_lite0"})
    with run_folder(output, "streets") as (folder, show):
        results = run_all(("LDA", "Fed3R(ridge=gcv)", "FedNCM"), config, folder, progress=show)
    show_heads(results)
    show_end(results, folder)
    return _facts(results, folder)


@with_options
def run(
    what: Annotated[str, typer.Argument(help="a YAML file, or a pipeline in quotes")],
    changes: Annotated[list[str] | None, typer.Argument(help="key=value …")] = None,
    *,
    split: SplitOptions,
    features: FeatureOptions,
    columns: ColumnOptions,
    privacy: PrivacyOptions,
    seeds: Seeds = 1,
    output: Output = None,
    watch: Watch = False,
) -> dict[str, Any]:
    """Run a configuration or a pipeline; `key=value` changes it (partition.alpha=0.5)."""
    from headstart.pipeline.config import read_plain

    split = replace(split, change=[*(changes or []), *(split.change or [])])
    in_file = Path(what).suffix in (".yaml", ".yml") or Path(what).is_file()
    base = read_plain(what) if in_file else {**HELD_OUT, "pipeline": what}
    several = base.pop("pipelines", None)
    config = config_of(base, split, features, columns, privacy)
    if several is not None and (not isinstance(several, list) or "pipeline" in base):
        raise HeadstartError("pipelines: expected a list of them, and no pipeline beside it")
    name = Path(what).stem if in_file else "run"
    return _run(several or [config.pipeline], config, output, name, seeds, watch)


@with_options
def compare(
    pipelines: Annotated[list[str], typer.Argument(help="two or more, each in quotes")],
    split: SplitOptions,
    features: FeatureOptions,
    columns: ColumnOptions,
    privacy: PrivacyOptions,
    seeds: Seeds = 1,
    output: Output = None,
    watch: Watch = False,
) -> dict[str, Any]:
    """Run several pipelines on the same splits: one table, one set of curves."""
    config = config_of(HELD_OUT, split, features, columns, privacy)
    return _run(pipelines, config, output, "compare", seeds, watch)


@with_options
def fit(
    split: SplitOptions,
    features: FeatureOptions,
    columns: ColumnOptions,
    privacy: PrivacyOptions,
    head: Annotated[list[str] | None, typer.Option(help="heads to fit; the first is kept")] = None,
    ridge: Annotated[
        str | None, typer.Option(help="λ: a number, or gcv (gcv; with --epsilon by the noise)")
    ] = None,
    seeds: Seeds = 1,
    output: Output = None,
    watch: Watch = False,
) -> dict[str, Any]:
    """Fit a federated head to your features: a model, a total and a report."""
    from headstart import heads
    from headstart.pipeline.config import nearest
    from headstart.pipeline.phases import InitHead
    from headstart.pipeline.pipeline import Pipeline

    for name in head or []:
        if name not in heads.HEADS:
            hint = nearest(name, list(heads.HEADS))
            raise HeadstartError(f"head: unknown name {name!r}{hint}")
    config = config_of({}, split, features, columns, privacy)
    if "pipeline" in config.model_fields_set:
        raise HeadstartError("pipeline: expected none, for `headstart run` runs pipelines")
    ridge = ridge if ridge is not None or config.private else "gcv"
    usual = "fed3r" if config.private is None else _expected(config)
    settings: dict[str, Any] = {} if ridge is None else {"ridge": _number(ridge)}
    pipelines = [
        Pipeline(InitHead(name, **(settings if name in {"fed3r", "fed3r-rf"} else {})))
        for name in head or [usual]
    ]
    return _run(pipelines, config, output, Path(config.data).stem, seeds, watch)


def _expected(config: Any) -> str:
    """The head that noise leaves the better one, by a rule of thumb; what to expect is said."""
    from headstart.pipeline.experiment import prepare
    from headstart.privacy.differential import Private

    experiment = prepare(config)
    assert isinstance(experiment.federation, Private)
    plan, clients = experiment.federation.plan, len(experiment.clients)
    dimension = experiment.context().dimension
    name = plan.better_head(dimension, clients)
    signal = plan.signal(dimension, clients)
    say(f"Signal: a class's sum stands {signal:.2g} times above its noise; the head for it: {name}")
    return name


def _run(
    pipelines: Sequence[Any], config: Any, output: Path | None, name: str, seeds: int, watch: bool
) -> dict[str, Any]:
    from headstart.cli.show import show_end, show_heads, show_pipelines
    from headstart.pipeline.run import compare as run_all

    with ExitStack() as after:
        with run_folder(output, name) as (folder, show):
            after.enter_context(watched(folder, watch))
            results = run_all(pipelines, config, folder, seeds, show)
        if seeds == 1 and all(len(result.runs[0].phases) == 1 for result in results):
            show_heads(results)
            show_end(results, folder)
        else:
            show_pipelines(results, folder)
        return _facts(results, folder)


def _facts(results: Sequence[Any], folder: Path) -> dict[str, Any]:
    """A row per pipeline and seed, and where the report is."""
    from headstart.results import seed_rows

    runs = seed_rows(run for result in results for run in result.runs)
    return {"folder": folder, "report": folder / "report.html", "runs": runs}


@contextmanager
def run_folder(output: Path | None, name: str) -> Iterator[tuple[Path, Any]]:
    """The folder named, or a new one, and a progress bar; an interruption says how to go on."""
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

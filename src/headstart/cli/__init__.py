"""The command line. Every mistake of a user's is one line and exit code 2, never a traceback."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from rich.table import Table

from headstart import __version__
from headstart.cli import deploy, grid, ledger
from headstart.console import (
    bar,
    err,
    out,
    say,
    show_change,
    write_csv,
)
from headstart.errors import HeadstartError

typer.core.HAS_RICH = False  # it would escape brackets in our help
app = typer.Typer(
    help="Federated learning in which a client speaks once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(deploy.app, name="deploy")
app.add_typer(ledger.app, name="ledger")
app.add_typer(grid.app, name="grid")
Data = Annotated[str, typer.Option("--data", help="digits, a .csv/.parquet/.npz file or a folder")]
Output = Annotated[Path | None, typer.Option("--out", "-o", help="the run folder to make")]
Column = Annotated[str, typer.Option(help="name of this column")]
Text = Annotated[str | None, typer.Option(help="column of sentences, in a .csv file of text")]
Extractor = Annotated[
    str | None,
    typer.Option(
        help="of images (mobilenet_v2, or another, or an .onnx file) or text (all_minilm_l6_v2)"
    ),
]
DIGITS = {"name": "dirichlet", "clients": 50, "alpha": 0.1}  # how digits are dealt, if not told
Weights = Annotated[str | None, typer.Option(help="the extractor's weight file")]


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without → shows ?
    try:
        app()
    except HeadstartError as error:
        _fail(str(error))
    except OSError as error:  # what no reader or writer has put into its own words
        _fail(f"{error.filename or 'system'}: {error.strerror or error}")
    except MemoryError as error:
        _fail(f"memory: {error or 'not enough'}")
    except KeyboardInterrupt:
        err.print("interrupted; the same command goes on where it stopped")
        sys.exit(130)


def _fail(said: str) -> None:
    err.print(f"error: {said}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(2)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
) -> None:
    if version:
        say(__version__)
        raise typer.Exit


@app.command()
def demo(
    clients: Annotated[int, typer.Option(help="how many clients")] = 50,
    alpha: Annotated[float, typer.Option(help="Dirichlet; smaller is more unlike")] = 0.1,
    seed: int = 0,
    output: Output = None,
) -> None:
    """Digits over 50 very unlike clients: all heads, one table, one report."""
    from headstart.cli.show import show_end, show_heads
    from headstart.runs.demo import demo_config, pooled_ridge
    from headstart.runs.execute import run
    from headstart.runs.federate import prepare

    config = demo_config(clients, alpha, seed)
    folder = output or _fresh("demo")
    with bar() as show:
        results = run(config, folder, show)
    chosen = results[0].runs[0].head
    ridge = float(chosen.solved["ridge"]) if chosen else 0.0
    show_heads(results, [("pooled ridge", pooled_ridge(prepare(config), ridge))])
    show_end(results, folder)


@app.command(name="run")
def run_command(
    what: Annotated[str, typer.Argument(help="a YAML file, or a sentence in quotes")],
    changes: Annotated[list[str] | None, typer.Argument(help="key=value …")] = None,
    data: Annotated[str | None, typer.Option("--data", help="what a sentence is run on")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="key=value, as in `compare`")
    ] = None,
    output: Output = None,
) -> None:
    """Run a configuration or a sentence; `key=value` changes it (partition.alpha=0.5)."""
    from headstart.runs.config import read_config

    changes = [*(changes or []), *(change or [])]
    if Path(what).suffix in (".yaml", ".yml") or Path(what).is_file():
        told = [*changes, *([f"data={data}"] if data else [])]
        config = read_config(what, told)
        folder = output or _fresh(Path(what).stem)
    else:
        config = _sentence_config(data, changes, phases=what)
        folder = output or _fresh("sentence")
    if config.phases is None:
        _run(config, folder)
        return
    from headstart.cli.show import show_pipelines
    from headstart.runs.stories import run_sentence

    with bar() as show:
        results = [run_sentence(config, folder, show)]
    show_pipelines(results, folder)


@app.command()
def compare(
    sentences: Annotated[list[str], typer.Argument(help="two or more, each in quotes")],
    data: Data,
    change: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="key=value, for all of them")
    ] = None,
    output: Output = None,
) -> None:
    """Run several sentences on one split: one table, one set of curves."""
    from headstart.cli.show import show_pipelines
    from headstart.runs.stories import compare as run_all

    config = _sentence_config(data, change)
    folder = output or _fresh("compare")
    with bar() as show:
        results = run_all(sentences, config, folder, show)
    show_pipelines(results, folder)


def _sentence_config(data: str | None, changes: list[str] | None, **told: Any) -> Any:
    """A configuration on the command line; digits, which name no clients, are dealt to 50."""
    from headstart.runs.config import apply_change, make_config

    if data is None:
        raise HeadstartError("data: expected --data with a sentence, got none")
    given: dict[str, Any] = {"data": data, "held_out": 0.45, **told}
    for one in changes or []:
        apply_change(given, one)
    made = given.get("partition", {})
    if data == "digits" and isinstance(made, dict) and "name" not in made:
        given["partition"] = {**DIGITS, **made}
    return make_config(given)


@app.command()
def fit(
    data: Data,
    head: Annotated[list[str] | None, typer.Option(help="heads to fit; the first is kept")] = None,
    text: Text = None,
    extractor: Extractor = None,
    weights: Annotated[str | None, typer.Option(help="the extractor's weight file")] = None,
    download: Annotated[bool, typer.Option(help="fetch published weights")] = False,
    skip_corrupt: Annotated[bool, typer.Option(help="leave out what cannot be decoded")] = False,
    ridge: Annotated[str, typer.Option(help="λ: a number, or gcv")] = "gcv",
    partition: Annotated[str | None, typer.Option(help="make clients: dirichlet, iid, …")] = None,
    clients: Annotated[int | None, typer.Option(help="how many, for the partition")] = None,
    alpha: Annotated[float | None, typer.Option(help="for Dirichlet partitions")] = None,
    held_out: Annotated[float, typer.Option(help="of each client, for personal accuracy")] = 0.0,
    exact: Annotated[bool, typer.Option(help="bit-identical totals")] = True,
    seed: int = 0,
    label: Column = "label",
    client: Column = "client",
    domain: Column = "domain",
    split: Column = "split",
    output: Output = None,
) -> None:
    """Fit a federated head to your features: a model, a total and a report."""
    from headstart.runs.config import make_config

    ridges = {"fed3r", "fed3r-rf"}
    told: dict[str, Any] = {
        "data": data,
        "heads": [
            {"name": name, **({"ridge": _number(ridge)} if name in ridges else {})}
            for name in head or ["fed3r"]
        ],
        "text": text,
        "extractor": extractor,
        "weights": weights,
        "download": download,
        "skip_corrupt": skip_corrupt,
        "held_out": held_out,
        "exact": exact,
        "seed": seed,
        **_columns(label, client, domain, split),
    }
    made = {"name": partition, "clients": clients, "alpha": alpha}
    if partition is None and (clients is not None or alpha is not None):
        made["name"] = "dirichlet"
    if made["name"] is not None:
        told["partition"] = {key: value for key, value in made.items() if value is not None}
    elif data == "digits":
        told["partition"] = DIGITS
    _run(make_config(told), output or _fresh(Path(data).stem))


def _run(config: Any, folder: Path) -> None:
    from headstart.cli.show import show_end, show_heads
    from headstart.runs.execute import run

    with bar() as show:
        results = run(config, folder, show)
    show_heads(results)
    show_end(results, folder)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="model.safetensors, or a run folder")],
    data: Data,
    label: Column = "label",
    client: Column = "client",
    domain: Column = "domain",
    split: Column = "split",
    text: Text = None,
    weights: Weights = None,
) -> None:
    """Test a model on labelled samples (their test part, if they say which it is)."""
    from headstart.evaluate import scores

    head = _model(model)
    samples = _samples(head, data, _columns(label, client, domain, split), weights, text).data
    samples = samples if samples.test is None else samples.test_part()
    found = scores(head, samples.features, samples.labels)
    say(f"samples            {len(samples)}")
    say(f"accuracy           {found.accuracy:.4f}")
    say(f"balanced accuracy  {found.balanced_accuracy:.4f}")
    for pair in found.worst_pairs(5):
        say(f"mistake            {pair['true']} as {pair['predicted']}: {pair['count']}")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="model.safetensors, or a run folder")],
    data: Data,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="CSV; none: print")] = None,
    label: Column = "label",
    client: Column = "client",
    domain: Column = "domain",
    split: Column = "split",
    text: Text = None,
    weights: Weights = None,
) -> None:
    """Predict the class of each sample, with its probability; labels are not needed."""
    head = _model(model)
    columns = _columns(label, client, domain, split)
    found = _samples(head, data, columns, weights, text, labelled=False)
    features = found.data.features
    names = found.names or tuple(map(str, range(len(features))))
    told = {"sample": names, "class": head.predict(features).tolist()}
    if head.temperature:
        told["probability"] = [f"{p:.4f}" for p in head.probabilities(features).max(axis=1)]
    write_csv(told, output)


def _samples(
    head: Any,
    data: str,
    columns: dict[str, str],
    weights: str | None,
    text: str | None,
    *,
    labelled: bool = True,
) -> Any:
    """Samples as the model takes them: through the extractor it was made with."""
    from headstart.runs.inputs import Extraction, holds_images, holds_text, read

    about = head.provenance.get("extractor")
    raw = "sentences" if text else "images" if holds_images(data) else None
    if raw and about is None:
        raise HeadstartError(f"data: {data} holds {raw}, but the model was fitted to features")
    extracted = raw or holds_text(data, about)
    how = Extraction(about["name"], weights, text=text) if extracted else None
    with bar() as show:
        return read(data, columns, how, show, labelled=labelled, about=about)


@app.command()
def features(
    data: Data,
    output: Annotated[Path, typer.Option("--out", "-o", help="the .npz file to write")],
    text: Text = None,
    extractor: Extractor = None,
    weights: Annotated[str | None, typer.Option(help="its weight file")] = None,
    download: Annotated[bool, typer.Option(help="fetch published weights")] = False,
    engine: Annotated[str, typer.Option(help="onnx or torch")] = "onnx",
    skip_corrupt: Annotated[bool, typer.Option(help="leave out what cannot be decoded")] = False,
    label: Column = "label",
    client: Column = "client",
    domain: Column = "domain",
    split: Column = "split",
) -> None:
    """Images or sentences to a file of features, cached and resumable."""
    from headstart.runs.inputs import Extraction, read, write_features

    how = Extraction(extractor, weights, download, engine, skip_corrupt, text)
    with bar("sentences" if text else "images") as show:
        found = read(data, _columns(label, client, domain, split), how, show)
    write_features(found, output)
    say(f"{len(found.data)} samples of dimension {found.data.dimension} in {output}")


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="model.safetensors, or a run folder")],
    output: Annotated[Path, typer.Option("--out", "-o", help="the .onnx file to write")],
    weights: Weights = None,
) -> None:
    """Extractor and head as one ONNX file (the head alone, if images are not what it is for)."""
    from headstart.export import export_head, export_onnx
    from headstart.runs.inputs import Extraction, extractor_of

    head = _model(model)
    about = head.provenance.get("extractor")
    whole = about is not None and "text" not in about  # words are cut outside any ONNX graph
    if whole:
        network = extractor_of(about, Extraction(str(about["name"]), weights))
        export_onnx(network, head, output)
    else:
        export_head(head, output)
    say(f"{'images' if whole else 'features'} to classes: {output}")


@app.command()
def add(
    run_folder: Annotated[Path, typer.Argument(help="a run folder")],
    data: Data,
    client: Annotated[str, typer.Option("--client", help="the new client's id")],
) -> None:
    """A late client joins a saved run."""
    from headstart.runs.change import add as change

    show_change(change(run_folder, client, data), f"{client} is in")


@app.command()
def forget(
    run_folder: Annotated[Path, typer.Argument(help="a run folder, or a ledger")],
    client: Annotated[str, typer.Argument(help="the client to take out")],
    data: Annotated[
        str | None, typer.Option("--data", help="its samples, if no upload was kept")
    ] = None,
) -> None:
    """Take a client out of a saved run or a ledger, as if it had never joined."""
    from headstart.deploy.store import is_ledger
    from headstart.runs.change import forget as change

    if is_ledger(run_folder):
        ledger.forget_client(run_folder, client)
        return
    show_change(change(run_folder, client, data), f"{client} is out")


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="a table or figure; none: what there is")] = (
        None
    ),
    sources: Annotated[
        list[str] | None, typer.Option("--features", help="cifar100=PATH, pacs=PATH, cub200=PATH")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="how many (default: the paper's)")] = None,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="a folder for the rows as JSON")
    ] = None,
) -> None:
    """Run a table or figure of the papers again: paper, ours, difference."""
    from headstart.reproduce import catalogue
    from headstart.reproduce import reproduce as again
    from headstart.reproduce.render import save
    from headstart.reproduce.sources import find

    known = catalogue()
    if name is None:
        for one in known.values():
            say(f"{one.name:<18} {one.paper}: {one.title}")
        return
    if name not in known:
        raise HeadstartError(f"reproduce: expected one of {', '.join(known)}, got {name!r}")
    with bar() as show:
        table = again(name, find(known[name].needs, sources or [], show), seeds, show)
    sys.stdout.write(table.markdown())
    if output is not None:
        say(f"saved: {save(table, output)}")


@app.command(name="list")
def list_command() -> None:
    """Everything that can be named."""
    from headstart import gradient, heads
    from headstart.data.backbones import names as networks
    from headstart.data.backbones import text_names
    from headstart.data.partition import PARTITIONERS
    from headstart.reproduce import catalogue
    from headstart.sentences import PERSONAL
    from headstart.statistics.base import PRECISIONS

    table = Table(box=None, pad_edge=False)
    for column in ("kind", "name", "what it is"):
        table.add_column(column)
    for name, cls in heads.catalogue().items():
        federated = hasattr(cls, "measure")
        table.add_row("head" if federated else "centralized", name, _first_line(cls))
    for name, recipe in gradient.catalogue().items():
        table.add_row("algorithm", name, _first_line(sys.modules[recipe.__module__]))
    for name, kind in PERSONAL.items():
        what = "each client alone, FP(…)" if kind == "full" else "closed-form personalization"
        table.add_row("at home", name, what)
    for name, make in PARTITIONERS.items():
        table.add_row("partition", name, _first_line(make))
    for name, what in {**networks(), **text_names()}.items():
        table.add_row("extractor", name, what)
    for name, one in catalogue().items():
        table.add_row("reproduction", name, f"{one.paper}: {one.title}")
    table.add_row("data", "digits", "8×8 handwritten digits, embedded")
    for name, what in PRECISIONS.items():
        table.add_row("precision", name, what)
    out.print(table)


@app.command()
def doctor() -> None:
    """Versions, extras, and the data that can be found."""
    from headstart.runs.doctor import findings

    table = Table(box=None, pad_edge=False, show_header=False)
    for what, found in findings():
        table.add_row(what, found)
    out.print(table)


def _model(path: Path) -> Any:
    from headstart.heads.linear import LinearHead

    return LinearHead.load(path / "model.safetensors" if path.is_dir() else path)


def _columns(label: str, client: str, domain: str, split: str) -> dict[str, str]:
    return {"label": label, "client": client, "domain": domain, "split": split}


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


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]

"""`headstart grid`: FedDr+'s tables as one command each; the same command goes on after a kill."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headstart.cli.interrupt import saying
from headstart.cli.options import Output, SplitOptions, config_of, with_options
from headstart.cli.runs import run_folder
from headstart.console import bar, say, show_rows
from headstart.errors import HeadstartError

app = typer.Typer(
    help="Grids of runs on images, the tables of FedDr+: 100 clients, by --partition shards (10 a "
    "client) or dirichlet (0.1 by class), unless told otherwise.",
    no_args_is_help=True,
)
Rounds = Annotated[int, typer.Option(min=1, help="of training")]
Rate = Annotated[float | None, typer.Option("--lr", help="for all; none: each method's own")]
Epochs = Annotated[int, typer.Option(min=1, help="local epochs")]


@app.command()
@with_options
def feddr(
    split: SplitOptions,
    rounds: Rounds = 320,
    epochs: Epochs = 3,
    beta: Annotated[float | None, typer.Option(help="for all cells; none: table 12's")] = None,
    algorithm: Annotated[list[str] | None, typer.Option(help="rows; none: all six")] = None,
    term: Annotated[list[str] | None, typer.Option(help="columns; none: all seven")] = None,
    rate: Rate = None,
    output: Output = None,
) -> None:
    """Table 2: six algorithms × seven terms (none, prox, kd, ntd, ld, moon, fd)."""
    name, config = _config(split, "shards")
    from headstart.pipeline import feddr_tables as paper
    from headstart.pipeline.grid import Schedule, feddr_cells

    cells = feddr_cells(
        Schedule(rounds, epochs, rate=rate),
        name,
        beta,
        algorithm or tuple(paper.ALGORITHMS),
        term or paper.TERMS,
    )
    _run("feddr", cells, config, output, "Algorithms and what holds them to the received model")


@app.command()
@with_options
def sensitivity(
    split: SplitOptions,
    rounds: Rounds = 320,
    epochs: Epochs = 3,
    rate: Rate = None,
    output: Output = None,
) -> None:
    """Figure 7: client ratio, local epochs, and FedDr+'s β."""
    _, config = _config(split, "dirichlet")
    from headstart.pipeline.grid import Schedule, sensitivity_cells

    clients = int(config.partition.settings["clients"])
    cells = sensitivity_cells(Schedule(rounds, epochs, rate=rate), clients, config.cohort)
    _run("sensitivity", cells, config, output, "Sensitivity of FedDr+")


@app.command()
@with_options
def personal(
    split: SplitOptions,
    rounds: Rounds = 320,
    epochs: Epochs = 3,
    home: Annotated[int, typer.Option(min=1, help="epochs at home")] = 5,
    rate: Rate = None,
    output: Output = None,
) -> None:
    """Tables 5 and 14: what clients have at home, by the plain mean and its deviation."""
    name, config = _config(split, "shards", {"matched": True})
    from headstart.pipeline.grid import Schedule, personal_cells

    clients = int(config.partition.settings["clients"])
    cells = personal_cells(Schedule(rounds, epochs, rate=rate), name, clients, config.cohort, home)
    _run("personal", cells, config, output, "At home")


@app.command(name="time")
@with_options
def time_(
    split: SplitOptions,
    epochs: Epochs = 3,
    repeats: Annotated[int, typer.Option(min=1, help="rounds a method; the best counts")] = 3,
    method: Annotated[list[str] | None, typer.Option(help="the first is the measure")] = None,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="a CSV file")] = None,
) -> None:
    """Table 4: how long a round takes, next to FedAvg's in the same run."""
    _, config = _config(split, "shards")
    from headstart.console import write_csv
    from headstart.gradient.engine import Training
    from headstart.pipeline.experiment import prepare
    from headstart.pipeline.grid import Schedule, time_rounds

    usual = Schedule(epochs=epochs)
    training = Training(0.01, epochs, usual.batch, usual.decay, usual.momentum)
    with saying("nothing is kept of times"), bar() as show:
        prepared = prepare(config, show)
        found = time_rounds(prepared, training, repeats, method or ())
    first = found[0].method
    header = ("method", "seconds a round", f"to {first}", f"FLOPs to {first}", "the paper")
    rows = [
        (
            one.method,
            f"{one.seconds:.3f}",
            f"{one.ratio:.2f}",
            f"{one.flops:.2f}",
            "–" if one.paper is None else f"{one.paper:.2f}",
        )
        for one in found
    ]
    show_rows(header, rows)
    if output is not None:
        columns = {name: [row[at] for row in rows] for at, name in enumerate(header)}
        write_csv(columns, output)


def _config(
    split: SplitOptions, usual: str, more: Mapping[str, Any] | None = None
) -> tuple[str, Any]:
    """The paper's partition, and its setting with MobileNet at 32 pixels, whatever is changed."""
    from headstart import optional
    from headstart.pipeline import feddr_tables as paper

    optional.check("vision", "network", ("torch", "PIL"))
    name = split.partition or usual
    if name not in paper.SPLITS:
        raise HeadstartError(f"partition: expected one of {', '.join(paper.SPLITS)}, got {name!r}")
    told: dict[str, Any] = {
        **paper.SETTING,
        "partition": dict(paper.SPLITS[name]),
        "evaluate_every": 5,
        **(more or {}),
    }
    config = config_of(told, split)
    if "pipeline" in config.model_fields_set:
        raise HeadstartError("pipeline: expected none, for a grid has its own")
    if config.partition is None or "clients" not in config.partition.settings:
        raise HeadstartError("partition: expected one with a number of clients, got none")
    if "cohort" in config.model_fields_set:
        return name, config
    tenth = max(1, round(0.1 * config.partition.settings["clients"]))
    return name, config_of({**told, "cohort": tenth}, split)


def _run(name: str, cells: Any, config: Any, output: Path | None, title: str) -> None:
    from headstart.pipeline.grid import run_grid
    from headstart.report.grid import grid_tables

    with run_folder(output, name) as (folder, show):
        shown = run_grid(cells, config, folder, title, show)
    for table in grid_tables(shown):
        header, *rows = table.text
        show_rows(header, rows, table.title)
    say(f"tables: {folder / 'report.html'}, grid.md, grid.csv; a folder a cell beside them")

"""`headstart grid`: FedDr+'s tables as one command each; the same command goes on after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headstart.console import bar, say, show_rows

app = typer.Typer(help="Grids of runs: the tables of FedDr+.", no_args_is_help=True)
Data = Annotated[str, typer.Option("--data", help="images: a folder or a dataset's files")]
Output = Annotated[Path, typer.Option("--out", "-o", help="the folder of the grid")]
Change = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="key=value, for all cells (network=vgg11)")
]
Split = Annotated[str, typer.Option(help="shards (10 a client) or dirichlet (0.1 by class)")]
Rounds = Annotated[int, typer.Option(min=1, help="of training")]
Rate = Annotated[float | None, typer.Option("--lr", help="for all; none: each method's own")]
Epochs = Annotated[int, typer.Option(min=1, help="local epochs")]


@app.command()
def feddr(
    data: Data,
    output: Output,
    split: Split = "shards",
    rounds: Rounds = 320,
    epochs: Epochs = 3,
    beta: Annotated[float | None, typer.Option(help="for all cells; none: table 12's")] = None,
    algorithm: Annotated[list[str] | None, typer.Option(help="rows; none: all six")] = None,
    term: Annotated[list[str] | None, typer.Option(help="columns; none: all seven")] = None,
    rate: Rate = None,
    change: Change = None,
) -> None:
    """Table 2: six algorithms × seven terms (none, prox, kd, ntd, ld, moon, fd)."""
    from headstart.runs import feddr_tables as paper
    from headstart.runs.grid import Schedule, feddr_cells

    config = _config(data, split, change)
    cells = feddr_cells(
        Schedule(rounds, epochs, rate=rate),
        split,
        beta,
        algorithm or tuple(paper.ALGORITHMS),
        term or paper.TERMS,
    )
    _run(cells, config, output, "Algorithms and what holds them to the received model")


@app.command()
def sensitivity(
    data: Data,
    output: Output,
    split: Split = "dirichlet",
    rounds: Rounds = 320,
    epochs: Epochs = 3,
    rate: Rate = None,
    change: Change = None,
) -> None:
    """Figure 7: client ratio, local epochs, and FedDr+'s β."""
    from headstart.runs.grid import Schedule, sensitivity_cells

    config = _config(data, split, change)
    clients = int(config.partition.settings["clients"])
    cells = sensitivity_cells(Schedule(rounds, epochs, rate=rate), clients, config.cohort)
    _run(cells, config, output, "Sensitivity of FedDr+")


@app.command()
def personal(
    data: Data,
    output: Output,
    split: Split = "shards",
    rounds: Rounds = 320,
    epochs: Epochs = 3,
    home: Annotated[int, typer.Option(min=1, help="epochs at home")] = 5,
    rate: Rate = None,
    change: Change = None,
) -> None:
    """Tables 5 and 14: what clients have at home, by the plain mean and its deviation."""
    from headstart.runs.grid import Schedule, personal_cells

    config = _config(data, split, ["matched=true", *(change or [])])
    clients = int(config.partition.settings["clients"])
    cells = personal_cells(Schedule(rounds, epochs, rate=rate), split, clients, config.cohort, home)
    _run(cells, config, output, "At home")


@app.command(name="time")
def time_(
    data: Data,
    split: Split = "shards",
    epochs: Epochs = 3,
    repeats: Annotated[int, typer.Option(min=1, help="rounds a method; the best counts")] = 3,
    method: Annotated[list[str] | None, typer.Option(help="the first is the measure")] = None,
    change: Change = None,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="a CSV file")] = None,
) -> None:
    """Table 4: how long a round takes, next to FedAvg's in the same run."""
    from headstart.console import write_csv
    from headstart.gradient.engine import Training
    from headstart.runs.federate import prepare
    from headstart.runs.grid import Schedule, time_rounds

    usual = Schedule(epochs=epochs)
    training = Training(0.01, epochs, usual.batch, usual.decay, usual.momentum)
    with bar() as show:
        prepared = prepare(_config(data, split, change), show)
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


def _config(data: str, split: str, changes: list[str] | None) -> Any:
    """The paper's setting with MobileNet at 32 pixels, and whatever is changed."""
    from headstart.errors import HeadstartError
    from headstart.runs import feddr_tables as paper
    from headstart.runs.config import apply_change, make_config

    if split not in paper.SPLITS:
        raise HeadstartError(f"split: expected one of {', '.join(paper.SPLITS)}, got {split!r}")
    told: dict[str, Any] = {
        "data": data,
        "network": "mobilenet",
        "pixels": 32,
        "batch_norm": "average",
        "partition": dict(paper.SPLITS[split]),
        "evaluate_every": 5,
    }
    for one in changes or []:
        apply_change(told, one)
    if set(told) & {"phases", "heads"}:
        raise HeadstartError("phases: expected none, for a grid has its own sentences")
    config = make_config(told)
    if config.partition is None or "clients" not in config.partition.settings:
        raise HeadstartError("partition: expected one with a number of clients, got none")
    if "cohort" in told:
        return config
    tenth = max(1, round(0.1 * config.partition.settings["clients"]))
    return make_config({**told, "cohort": tenth})


def _run(cells: Any, config: Any, output: Path, title: str) -> None:
    from headstart.report.grid import grid_tables
    from headstart.runs.grid import run_grid

    with bar() as show:
        found = run_grid(cells, config, output, title, show)
    for table in grid_tables(found):
        header, *rows = table.text
        show_rows(header, rows, table.title)
    say(f"tables: {output / 'report.html'}, grid.md, grid.csv; a folder per cell beside them")

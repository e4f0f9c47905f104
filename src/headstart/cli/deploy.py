"""`headstart deploy`: a federation of real clients on Flower, ready to start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headstart.console import say

app = typer.Typer(
    help="Deploy on Flower: real clients, TLS, keys.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="the folder to make")],
    node: Annotated[list[str], typer.Option(help="a node's name; once for each")],
    dimension: Annotated[int, typer.Option(help="of the features")],
    address: Annotated[
        str, typer.Option(help="HOST:PORT at which nodes reach the server")
    ] = "127.0.0.1:9100",
    port: Annotated[int, typer.Option(help="of SuperLink on the server (0: the address's)")] = 0,
    pipeline: Annotated[str, typer.Option(help="what is done")] = "fed3r(ridge=gcv)",
    wanted: Annotated[int, typer.Option(help="uploads to wait for (0: all nodes)")] = 0,
    deadline: Annotated[float, typer.Option(help="seconds")] = 600.0,
    bound: Annotated[float, typer.Option(help="the largest feature")] = 16.0,
    test_data: Annotated[str, typer.Option(help="the server's own test samples")] = "",
    labels: Annotated[str, typer.Option(help="what all labels are: integer or text")] = "integer",
    class_list: Annotated[
        str, typer.Option(help="a file of the agreed classes, one per line")
    ] = "",
    extractor: Annotated[str, typer.Option(help="what makes everybody's features")] = "",
    secure: Annotated[bool, typer.Option("--secure", help="only sums of groups are seen")] = False,
) -> dict[str, Any]:
    """Write a ready project: Flower app, certificates, node keys, commands, units, a container."""
    from headstart.deploy.scaffold import Plan, next_steps
    from headstart.deploy.scaffold import init as write

    plan = Plan(
        tuple(node),
        dimension,
        address,
        port,
        pipeline,
        wanted,
        deadline,
        bound,
        test_data,
        labels,
        class_list,
        extractor,
        secure,
    )
    write(folder, plan)
    say(f"{folder}: ready; README.md there says who needs what. In order:")
    steps = list(next_steps(folder, plan.nodes))
    for step in steps:
        say(f"  {step}")
    return {"folder": folder, "steps": steps}


@app.command()
def key(
    path: Annotated[Path, typer.Argument(help="the new file, on the node's own machine")],
) -> dict[str, Any]:
    """A signing key of a node's own; prints its public half, for everybody's peers.json."""
    from headstart.deploy.scaffold import signing_key

    public = signing_key(path)
    say(public)
    return {"public": public}


@app.command(name="node")
def add_node(
    folder: Annotated[Path, typer.Argument(help="a folder of `headstart deploy init`")],
    name: Annotated[str, typer.Argument(help="the new node's name")],
) -> dict[str, Any]:
    """One more node: its key, its configuration and its commands."""
    from shlex import quote

    from headstart.deploy.scaffold import add_node as write

    place = write(folder, name)
    say(f"{place}: carry it to the node's machine, then delete it here. To let it in:")
    step = f"sh {quote(f'{folder}/operator/register.sh')} {name}"
    say(f"  {step}")
    return {"folder": place, "steps": [step]}

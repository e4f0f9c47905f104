"""`headstart reproduce`: the papers' tables and figures, run again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headstart.cli.interrupt import command, saying
from headstart.console import bar, say
from headstart.errors import HeadstartError


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
    kept = "saved tables and extracted features are kept, this table begins again with: "
    with saying(kept + command()), bar() as show:
        table = again(name, find(known[name].needs, sources or [], show), seeds, show)
    sys.stdout.write(table.markdown())
    if output is not None:
        say(f"saved: {save(table, output)}")

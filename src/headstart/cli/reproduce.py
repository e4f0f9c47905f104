"""`headstart reproduce`: the tables and figures of the papers, run again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from headstart.cli.interrupt import command, saying
from headstart.cli.runs import run_folder
from headstart.console import bar, say, write


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="a table or figure; none: the list of them")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="NAME=PATH of a data set: features, or images; PATH if it needs one"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="how many (default: the paper's)")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", help="key=value: a setting of a table that trains (rounds=60)"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="a folder for the rows as JSON, and for trained runs"),
    ] = None,
) -> list[dict[str, str]] | dict[str, Any]:
    """Run a table or figure of the papers again: paper, ours, difference."""
    from headstart.papers import by_name, catalogue
    from headstart.papers import reproduce as run_again
    from headstart.papers.render import save
    from headstart.papers.sources import find

    if name is None:
        for known in catalogue().values():
            say(f"{known.name:<18} {known.paper}: {known.title}")
        columns = ("name", "paper", "title")
        return [{key: getattr(known, key) for key in columns} for known in catalogue().values()]
    reproduction = by_name(name)
    with _place(reproduction, output) as (folder, show):
        sources = find(reproduction, data or [], show)
        table = run_again(name, sources, seeds, show, changes=change or (), folder=folder)
    write(table.markdown())
    if output is not None:
        say(f"saved: {save(table, output)}")
    made = [name for name in ("report.html", "grid.md", "grid.csv") if (folder / name).exists()]
    if reproduction.resumes and made:
        first, *rest = made
        say(f"tables: {', '.join([str(folder / first), *rest])}; a folder per cell beside them")
    return asdict(table)


@contextmanager
def _place(reproduction: Any, output: Path | None) -> Iterator[tuple[Path, Any]]:
    """Yield the folder of the runs and a progress bar; an interruption says what goes on."""
    if reproduction.resumes:
        with run_folder(output, reproduction.name) as place:
            yield place
        return
    kept = "saved tables and extracted features are kept, this table begins again with: "
    with saying(kept + command()), bar() as show:
        yield output or Path(), show

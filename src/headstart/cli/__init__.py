"""The command line. Every mistake of a user's is one line and exit code 2, never a traceback."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer
import typer.core

from headstart import __version__
from headstart.cli import deploy, ledger, models, runs
from headstart.cli.common import with_common_options
from headstart.cli.examples import FIRST, epilog
from headstart.cli.interrupt import Commands
from headstart.cli.reproduce import reproduce
from headstart.cli.watch import watch
from headstart.console import err, out, say, show_skipped
from headstart.errors import HeadstartError, printable

typer.core.HAS_RICH = False  # it would escape brackets in our help
app = typer.Typer(
    cls=Commands,
    help="\n\n".join((epilog(FIRST, "Try:"), "Federated learning in which a client speaks once.")),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(deploy.app, name="deploy")
app.add_typer(ledger.app, name="ledger")
for _command in (
    *(runs.demo, runs.run, runs.compare, runs.fit, watch),
    *(models.evaluate, models.predict, models.features, models.export),
    *(models.add, models.forget, reproduce),
):
    app.command()(_command)


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without → shows ?
    show_skipped()
    try:
        app()
    except HeadstartError as error:
        _fail(str(error))
    except OSError as error:  # what no reader or writer has turned into an error of its own
        _fail(f"{error.filename or 'system'}: {error.strerror or error}")
    except MemoryError as error:
        _fail(f"memory: {error or 'not enough'}")


def _fail(message: str) -> None:
    shown = printable(message, kept="\n")  # a pipeline's mistake is pointed at in a second line
    err().print(f"error: {shown}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(2)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
) -> None:
    if version:
        say(__version__)
        raise typer.Exit


@app.command(name="list")
def list_command() -> list[dict[str, str]]:
    """Everything that can be named, and where it comes from."""
    from rich.markup import escape
    from rich.table import Table

    from headstart.cli.listing import rows

    columns = ("kind", "name", "from", "what it is")
    found = list(rows())
    table = Table(*columns, box=None, pad_edge=False)
    for row in found:
        table.add_row(*map(escape, row))
    out().print(table)
    return [dict(zip(columns, row, strict=True)) for row in found]


@app.command()
def doctor() -> dict[str, str]:
    """Versions, extras, and the data that can be found."""
    from rich.table import Table

    from headstart.pipeline.doctor import findings

    table = Table(box=None, pad_edge=False, show_header=False)
    found = dict(findings())
    for what, value in found.items():
        table.add_row(what, value)
    out().print(table)
    return found


with_common_options(app)

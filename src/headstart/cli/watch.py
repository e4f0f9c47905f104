"""`headstart watch`: a page that shows runs as they happen; and `--watch`, which opens it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from headstart.console import err, say

Watch = Annotated[bool, typer.Option("--watch", help="show it in a page of your browser")]


def watch(
    paths: Annotated[
        list[Path], typer.Argument(help="run folders, ledgers or deployments; also copies")
    ],
    host: Annotated[
        str, typer.Option(help="where to listen; not loopback: with a random token")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="(8765, or any that is free)")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="for what is not there yet")] = False,
    browser: Annotated[bool, typer.Option("--open", help="in your browser")] = False,
) -> None:
    """Show runs as they happen, or as they were, in a page; it only reads. Ctrl-C ends it."""
    from headstart.live.serve import has_screen
    from headstart.live.serve import watch as serve
    from headstart.live.sources import check

    for path in paths:
        check(path, wait=wait)

    def ready(address: str) -> None:
        say(f"{address}  (Ctrl-C ends the page)")
        sys.stdout.flush()
        if browser and has_screen():
            import webbrowser

            webbrowser.open(address)

    serve(paths, host, port, ready)


@contextmanager
def watched(folder: Path, wanted: bool) -> Iterator[None]:
    """With a page of what happens in `folder`, in a process of its own, until Ctrl-C."""
    if not wanted:
        yield
        return
    from headstart import optional

    optional.check("live", "watch")
    command = [sys.executable, "-m", "headstart", "watch", "--wait", "--open", str(folder)]
    page = subprocess.Popen(command)
    try:
        yield
        with suppress(KeyboardInterrupt):
            err().print("the page stays until Ctrl-C", highlight=False)
            page.wait()
    finally:
        page.terminate()
        page.wait()

"""Ctrl-C: one line that says how to go on, and exit code 130."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import typer
import typer.core

from headstart.console import err

CODE = 130  # 128 and the number of SIGINT, as shells have it


class Commands(typer.core.TyperGroup):
    """Commands of which an interrupted one says so in one line."""

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            text = f"interrupted; {stopped}" if str(stopped) else "interrupted"
            err().print(text, markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(CODE) from None


@contextmanager
def saying(text: str) -> Iterator[None]:
    """What is said of an interruption inside; an inner one has said it already."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise KeyboardInterrupt(str(stopped) or text) from None


def resumable(folder: Path, *, named: bool) -> AbstractContextManager[None]:
    """`saying` which command goes on in `folder`; `named`: this one, which named it."""
    return saying(f"what is done is kept, to go on: {command(() if named else ('--out', folder))}")


def command(more: tuple[object, ...] = ()) -> str:
    """This very command, as one types it into a shell."""
    import shlex

    return shlex.join(["headstart", *sys.argv[1:], *map(str, more)])

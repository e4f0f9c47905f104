"""`--plugin my_file.py`, which every command takes: files of one's own, loaded before it runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from headstart.cli.options import showing
from headstart.registry import load_plugin

Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", help="a .py file of your own that registers heads, methods, …"),
]


def with_plugins(app: typer.Typer) -> None:
    """Give the option to all commands of an application, and to those of its groups."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = _loading(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            with_plugins(group.typer_instance)


def _loading(command: Callable[..., Any]) -> Callable[..., Any]:
    hints = get_type_hints(command, include_extras=True)
    shown = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
    ]
    keyword = inspect.Parameter.KEYWORD_ONLY
    shown.append(inspect.Parameter("plugin", keyword, default=None, annotation=Plugins))

    @functools.wraps(command)
    def run(*args: Any, plugin: list[Path] | None = None, **given: Any) -> Any:
        for path in plugin or []:
            load_plugin(path)
        return command(*args, **given)

    return showing(run, shown)

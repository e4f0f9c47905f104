"""What every command takes: `--plugin my_file.py`, `--quiet`, and `--json` where it has results.

A command returns what it prints, as plain values; its return annotation says whether it does.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from headstart.cli.examples import EXAMPLES, epilog
from headstart.cli.options import showing
from headstart.console import printing

Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", help="a .py file of your own that registers heads, methods, …"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print nothing but mistakes")]
AsJson = Annotated[bool, typer.Option("--json", help="print the results as JSON, and only them")]


def with_common_options(app: typer.Typer, group: str = "") -> None:
    """Give them, and examples, to all commands of an application, and to those of its groups."""
    for command in app.registered_commands:
        if command.callback is not None:
            name = command.name or command.callback.__name__
            command.epilog = epilog(EXAMPLES[f"{group} {name}".strip()])
            command.callback = _common(command.callback)
    for inner in app.registered_groups:
        if inner.typer_instance is not None:
            with_common_options(inner.typer_instance, inner.name or "")


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    hints = get_type_hints(command, include_extras=True)
    shown = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
    ]
    more: dict[str, tuple[Any, Any]] = {"plugin": (Plugins, None), "quiet": (Quiet, False)}
    if hints["return"] is not type(None):
        more["as_json"] = AsJson, False
    for name, (kind, default) in more.items():
        keyword = inspect.Parameter.KEYWORD_ONLY
        shown.append(inspect.Parameter(name, keyword, default=default, annotation=kind))

    @functools.wraps(command)
    def run(
        *args: Any,
        plugin: list[Path] | None = None,
        quiet: bool = False,
        as_json: bool = False,
        **given: Any,
    ) -> Any:
        if plugin:
            _load(plugin)
        with printing(text=not (quiet or as_json), progress=not quiet):
            results = command(*args, **given)
        if as_json:
            import json

            text = json.dumps(plain(results), ensure_ascii=False, indent=1, allow_nan=False)
            sys.stdout.write(text + "\n")

    return showing(run, shown)


def _load(plugins: list[Path]) -> None:
    from headstart.registry import load_plugin

    for path in plugins:
        load_plugin(path)


def plain(value: Any) -> Any:
    """As JSON has it: paths as text, what is not a finite number as null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if abs(value) < float("inf") else None
    return value if value is None or isinstance(value, (str, int)) else str(value)

"""The tables and figures of the papers, run again: paper | ours | difference. One file each.

`catalogue()` lists them; `reproduce(name, data)` runs one on the data it is given. Nothing in the
library's core imports this package.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headstart import __version__
from headstart.data.datasets import Dataset
from headstart.errors import HeadstartError
from headstart.papers.common import describe
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row, Table
from headstart.progress import Progress, silent

__all__ = ["Reproduction", "Row", "Table", "catalogue", "reproduce"]


def catalogue() -> dict[str, Reproduction]:
    """Return every reproduction by its name, found by listing the package."""
    reproductions = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name == "render":  # a script
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        reproduction = getattr(module, "REPRODUCTION", None)
        if isinstance(reproduction, Reproduction):
            reproductions[reproduction.name] = reproduction
    return dict(sorted(reproductions.items()))


def by_name(name: str) -> Reproduction:
    """Return the reproduction of this name; any other name is refused with the list of them."""
    reproductions = catalogue()
    if name not in reproductions:
        names = ", ".join(reproductions)
        raise HeadstartError(f"reproduce: expected one of {names}, got {name!r}")
    return reproductions[name]


def reproduce(
    name: str,
    data: Mapping[str, Any],
    seeds: int | None = None,
    progress: Progress = silent,
    *,
    changes: Sequence[str] = (),
    folder: str | Path | None = None,
) -> Table:
    """Run a table or figure again and return its rows beside the paper's.

    `data`: by the names in its `needs`, datasets of features or, where it `trains`, paths of
    images; `changes` are then its settings as key=value, and `folder` is where its runs are kept.
    """
    reproduction = by_name(name)
    count = _seeds(reproduction, seeds)
    given = {need: data[need] for need in reproduction.needs if need in data}
    if reproduction.needs and not given and not reproduction.elsewhere:
        needs = " or ".join(reproduction.needs)
        raise HeadstartError(f"{name}: expected data of {needs}, got none")
    if changes and not reproduction.trains:
        raise HeadstartError(f"{name}: expected no settings, got {changes[0]!r}")
    place = None if folder is None else Path(folder)
    rows = reproduction.run(Task(given, count, progress, tuple(changes), place))
    return Table(
        name,
        reproduction.title,
        reproduction.paper,
        " ".join((reproduction.command, *_said(reproduction, count, changes))),
        count,
        {need: _about(value) for need, value in given.items()},
        tuple(need for need in reproduction.needs if need not in given),
        tuple(rows),
        reproduction.conclusion(rows)
        if given or not reproduction.elsewhere
        else _absent(reproduction),
        __version__,
    )


def _absent(reproduction: Reproduction) -> str:
    """What is said where nothing was run."""
    needs = " or ".join(f"{need}=PATH" for need in reproduction.needs)
    return f"Nothing was run: it needs --data {needs}. {reproduction.elsewhere}"


def _seeds(reproduction: Reproduction, seeds: int | None) -> int:
    count = reproduction.seeds if seeds is None else seeds
    if count < 1:
        raise HeadstartError(f"seeds: expected at least 1, got {count}")
    if reproduction.trains and count > 1:
        raise HeadstartError(
            f"seeds: expected 1 for {reproduction.name}, got {count}; seed=1 is another training"
        )
    return count


def _said(reproduction: Reproduction, seeds: int, changes: Sequence[str]) -> list[str]:
    other = [f"--seeds {seeds}"] if seeds != reproduction.seeds else []
    return other + [f"-s {change}" for change in changes]


def _about(value: Any) -> str:
    return describe(value) if isinstance(value, Dataset) else f"images of {Path(value).name}"

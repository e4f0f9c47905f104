"""The papers' closed-form tables, run again: paper | ours | difference. One file a table.

`catalogue()` lists them; `reproduce(name, features)` runs one on the features it is given.
"""

from __future__ import annotations

import importlib
import pkgutil

from headstart import __version__
from headstart.errors import HeadstartError
from headstart.progress import Progress, silent
from headstart.reproduce.cases import describe
from headstart.reproduce.table import Features, Reproduction, Row, Table

__all__ = ["Reproduction", "Row", "Table", "catalogue", "reproduce"]


def catalogue() -> dict[str, Reproduction]:
    """Every reproduction by its name, found by listing the package."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name == "render":  # a script
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        one = getattr(module, "REPRODUCTION", None)
        if isinstance(one, Reproduction):
            found[one.name] = one
    return dict(sorted(found.items()))


def reproduce(
    name: str, features: Features, seeds: int | None = None, progress: Progress = silent
) -> Table:
    """Run a table or figure again. `features`: datasets by the names in its `needs`."""
    known = catalogue()
    if name not in known:
        raise HeadstartError(f"reproduce: expected one of {', '.join(known)}, got {name!r}")
    one = known[name]
    count = one.seeds if seeds is None else seeds
    if count < 1:
        raise HeadstartError(f"seeds: expected at least 1, got {count}")
    given = {need: features[need] for need in one.needs if need in features}
    if one.needs and not given:
        raise HeadstartError(f"{name}: expected features of {' or '.join(one.needs)}, got none")
    rows = one.run(given, count, progress)
    return Table(
        name,
        one.title,
        one.paper,
        one.command + (f" --seeds {count}" if count != one.seeds else ""),
        count,
        {need: describe(data) for need, data in given.items()},
        tuple(need for need in one.needs if need not in given),
        tuple(rows),
        one.conclusion(rows),
        __version__,
    )

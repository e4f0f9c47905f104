"""What this installation has: versions, extras, data."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

from headstart import __version__
from headstart.data.backbones.catalogue import NETWORKS, names
from headstart.data.backbones.text import TEXTS
from headstart.errors import HeadstartError
from headstart.optional import EXTRAS, missing, pip_name

_CORE = ("numpy", "scipy", "scikit-learn", "matplotlib")


def findings() -> Iterator[tuple[str, str]]:
    """(what, what was found) pairs."""
    yield "headstart", __version__
    yield "python", f"{platform.python_version()} on {platform.system()}"
    for name in _CORE:
        yield name, _version(name)
    for extra, packages in EXTRAS.items():
        absent = missing(packages)
        named = ", ".join(map(pip_name, absent or packages))
        yield f"extra {extra}", f"no (without {named})" if absent else f"yes ({named})"
    for name in names():
        yield f"weights {name}", _weights(NETWORKS[name].find_weights)
    for name, reader in TEXTS.items():
        yield f"weights {name}", _weights(reader.weights.find)
    yield "processors", str(os.cpu_count())
    place = Path(os.environ.get("HEADSTART_DATA") or "../shared/data")
    present = sorted(item.name for item in place.iterdir()) if place.is_dir() else []
    yield "benchmark data", ", ".join(present) or f"none in {place} (HEADSTART_DATA names a folder)"


def _weights(find: Callable[[], Path]) -> str:
    try:
        return f"found ({find().name})"
    except HeadstartError:
        return "not found"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"

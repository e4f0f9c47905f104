"""Federated training: one engine, and a short file a method in `methods`, which is the catalogue.

Naming and describing methods needs no torch; training does (the `torch` extra).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from headstart.errors import HeadstartError
from headstart.gradient import methods
from headstart.gradient.recipe import Recipe


@functools.cache
def catalogue() -> dict[str, Callable[..., Recipe]]:
    """Every method by its name: the one function of each file that returns a recipe."""
    found = {}
    for info in pkgutil.iter_modules(methods.__path__):
        module = importlib.import_module(f"{methods.__name__}.{info.name}")
        found[info.name.replace("_", "-")] = getattr(module, info.name)
    return dict(sorted(found.items()))


def make(name: str, settings: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe from its name and settings, as a sentence, a config or a step says them."""
    known = catalogue()
    if name not in known:
        raise HeadstartError(f"algorithm: expected one of {', '.join(known)}, got {name!r}")
    expected = inspect.signature(known[name]).parameters
    unknown = [key for key in settings or {} if key not in expected]
    if unknown:
        wanted = ", ".join(expected) or "none"
        raise HeadstartError(f"{name}: expected settings among {wanted}, got {', '.join(unknown)}")
    return known[name](**(settings or {}))

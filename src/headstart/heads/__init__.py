"""Closed-form heads, one file each. This listing is the catalogue: adding a file adds a method."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from typing import Any

from headstart.errors import HeadstartError


def catalogue() -> dict[str, type[Any]]:
    """Every method of this package by its name, found by listing the package."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for thing in vars(module).values():
            named = isinstance(thing, type) and isinstance(getattr(thing, "name", None), str)
            if named and thing.__module__ == module.__name__:
                found[thing.name] = thing
    return dict(sorted(found.items()))


def federated() -> dict[str, type[Any]]:
    """Those a federation can run: they measure on clients and solve on the server."""
    return {name: cls for name, cls in catalogue().items() if hasattr(cls, "measure")}


def name_of(head: Any) -> str:
    """The name of a head, given as its class or an instance; another object is refused."""
    kind = head if isinstance(head, type) else type(head)
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or catalogue().get(name) is not kind:
        raise HeadstartError(f"head: expected one of {', '.join(federated())}, got {head!r}")
    return name


def make(name: str, settings: dict[str, Any] | None = None) -> Any:
    """A head from its name and settings, as a config or a step names it."""
    known = federated()
    if name not in known:
        raise HeadstartError(f"head: expected one of {', '.join(known)}, got {name!r}")
    try:
        return known[name](**(settings or {}))
    except TypeError:
        expected = ", ".join(field.name for field in dataclasses.fields(known[name])) or "none"
        raise HeadstartError(
            f"{name}: expected settings among {expected}, got {', '.join(settings or {})}"
        ) from None

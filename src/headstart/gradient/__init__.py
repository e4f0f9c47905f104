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
from headstart.gradient.terms import mixed

MIX = {"term": "none", "mix": 0.9}  # of any method: mix·objective + (1 − mix)·term


@functools.cache
def catalogue() -> dict[str, Callable[..., Recipe]]:
    """Every method by its name: the one function of each file that returns a recipe."""
    found = {}
    for info in pkgutil.iter_modules(methods.__path__):
        module = importlib.import_module(f"{methods.__name__}.{info.name}")
        found[info.name.replace("_", "-")] = getattr(module, info.name)
    return dict(sorted(found.items()))


def name_of(method: Callable[..., Recipe]) -> str:
    """The name of a method, given as the function that makes its recipe; another is refused."""
    for name, known in catalogue().items():
        if known is method:
            return name
    raise HeadstartError(f"algorithm: expected one of {', '.join(catalogue())}, got {method!r}")


@functools.cache
def settings_of(name: str) -> tuple[str, ...]:
    """What a method can be told: its own, and the term that any takes."""
    return (*inspect.signature(catalogue()[name]).parameters, *MIX)


def make(name: str, settings: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe from its name and settings, as a pipeline, a config or a step says them."""
    known = catalogue()
    if name not in known:
        raise HeadstartError(f"algorithm: expected one of {', '.join(known)}, got {name!r}")
    told, expected = dict(settings or {}), settings_of(name)
    unknown = [key for key in told if key not in expected]
    if unknown:
        wanted = ", ".join(expected)
        raise HeadstartError(f"{name}: expected settings among {wanted}, got {', '.join(unknown)}")
    if "mix" in told and "term" not in told:
        raise HeadstartError("mix: expected a term to mix with, got none")
    term, mix = (told.pop(key, usual) for key, usual in MIX.items())
    return mixed(known[name](**told), term, mix)

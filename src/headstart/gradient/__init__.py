"""Federated training: one engine, and a short file a method in `methods`; `@register_method` adds
one's own.

Naming and describing methods needs no torch; training does (the `torch` extra).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from headstart.errors import HeadstartError
from headstart.gradient import methods
from headstart.gradient.objectives import LOSSES
from headstart.gradient.recipe import Recipe
from headstart.gradient.terms import mixed
from headstart.registry import Registry

Method = Callable[..., Recipe]
M = TypeVar("M", bound=Method)
MIX = {"term": "none", "mix": 0.9}  # of any method: mix·objective + (1 − mix)·term


def _package() -> dict[str, Method]:
    """The one function of each file that returns a recipe."""
    by_name = {}
    for info in pkgutil.iter_modules(methods.__path__):
        module = importlib.import_module(f"{methods.__name__}.{info.name}")
        by_name[info.name.replace("_", "-")] = getattr(module, info.name)
    return by_name


def _check(name: str, method: Any) -> None:
    if not callable(method):
        raise HeadstartError(f"method {name}: expected a function, got {method!r:.200}")
    for key, parameter in inspect.signature(method).parameters.items():
        if parameter.default is inspect.Parameter.empty:
            raise HeadstartError(f"method {name}: expected a default for {key}, got none")
        if key in MIX:
            raise HeadstartError(f"method {name}: expected another setting than {key}, got that")


METHODS: Registry[Method] = Registry("method", "headstart.methods", _package, check=_check)


def register_method(function: M) -> M:
    """Let a method of your own be named: `fed_x`, which returns a `Recipe`, is "fed-x".

    Its parameters are the method's settings, and all of them have defaults.
    """
    METHODS.add(function)
    return function


@functools.cache
def _parameters(method: Method) -> tuple[str, ...]:
    return tuple(inspect.signature(method).parameters)


def settings_of(name: str) -> tuple[str, ...]:
    """The settings of a method: its own, and the term that any takes."""
    return (*_parameters(METHODS[name]), *MIX)


def make(name: str, settings: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe from its name and settings, as a pipeline, a config or a step says them."""
    method, expected = METHODS[name], settings_of(name)
    chosen = dict(settings or {})
    unknown = [key for key in chosen if key not in expected]
    if unknown:
        wanted = ", ".join(expected)
        raise HeadstartError(f"{name}: expected settings among {wanted}, got {', '.join(unknown)}")
    if "mix" in chosen and "term" not in chosen:
        raise HeadstartError("mix: expected a term to mix with, got none")
    term, mix = (chosen.pop(key, usual) for key, usual in MIX.items())
    recipe: Any = method(**chosen)
    if not isinstance(recipe, Recipe):
        raise HeadstartError(f"{name}: expected it to return a Recipe, got {recipe!r:.200}")
    for loss in recipe.objective:
        LOSSES.entry(loss.name)  # which names those that there are
    return mixed(recipe, term, mix)

"""Closed-form heads, one file each: adding a file adds a head. `@register_head` adds one's own."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from headstart.errors import HeadstartError
from headstart.registry import QUALIFIED, Registry, folded

if TYPE_CHECKING:
    from headstart.heads.base import Head

C = TypeVar("C", bound=type[Any])
_PARTS = ("name", "title", "statistic", "measure", "paper_upload_size", "solve")


def _package() -> dict[str, type[Any]]:
    """The classes of this package that measure on clients and solve on the server."""
    by_name = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for thing in vars(module).values():
            named = isinstance(thing, type) and isinstance(getattr(thing, "name", None), str)
            if named and hasattr(thing, "measure") and thing.__module__ == module.__name__:
                by_name[thing.name] = thing
    return by_name


def _check(name: str, cls: Any) -> None:
    is_class: bool = isinstance(cls, type)
    missing = [part for part in _PARTS if not hasattr(cls, part)]
    if not is_class or missing:
        got = f"one without {', '.join(missing)}" if is_class else repr(cls)
        raise HeadstartError(
            f"head {name}: expected a class with {', '.join(_PARTS)}, got {got:.200}"
        )
    params = getattr(cls, "__dataclass_params__", None)
    if params is None or not params.frozen:
        raise HeadstartError(f"head {name}: expected a frozen dataclass, got {cls.__qualname__}")
    if not QUALIFIED.fullmatch(name) and folded(cls.name) != folded(name):
        raise HeadstartError(f"head {name}: expected this name in the class, got {cls.name!r}")


HEADS: Registry[type[Any]] = Registry(
    "head",
    "headstart.heads",
    _package,
    named=lambda cls: str(getattr(cls, "name", cls)),
    check=_check,
)


def register_head(cls: C) -> C:
    """Let a class of your own be named as a head, by its `name`."""
    HEADS.add(cls)
    return cls


def name_of(head: Any) -> str:
    """The name by which a head, or its class, is found again."""
    return HEADS.name_of(head if isinstance(head, type) else type(head))


def _required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def make(name: str, settings: Mapping[str, Any] | None = None) -> Head:
    """A head from its name and settings, as a config or a step names it."""
    cls, given = HEADS[name], dict(settings or {})
    expected = {field.name: field for field in dataclasses.fields(cls) if field.init}
    unknown = [key for key in given if key not in expected]
    if unknown:
        raise HeadstartError(
            f"{name}: expected settings among {', '.join(expected) or 'none'}, "
            f"got {', '.join(unknown)}"
        )
    needed = [key for key, field in expected.items() if key not in given and _required(field)]
    if needed:
        raise HeadstartError(f"{name}: expected {', '.join(needed)} to be given, got none")
    head: Head = cls(**given)
    return head

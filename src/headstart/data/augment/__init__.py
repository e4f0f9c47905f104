"""Augmentations, one file each: adding a file adds one. `@register_augmentation` adds one's own."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, TypeVar

from headstart.data.augment.base import Augmentation, Draw, Frame
from headstart.errors import HeadstartError
from headstart.registry import QUALIFIED, Registry, folded

__all__ = ["AUGMENTATIONS", "Augmentation", "Draw", "Frame", "make", "register_augmentation"]

C = TypeVar("C", bound=type[Augmentation])


def _package() -> dict[str, type[Augmentation]]:
    """The augmentations of this package that are made of settings alone."""
    classes = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for thing in vars(module).values():
            defined_here = isinstance(thing, type) and thing.__module__ == module.__name__
            if defined_here and hasattr(thing, "name") and not _required(thing):
                classes[thing.name] = thing
    return classes


def _required(cls: type[Any]) -> list[str]:
    """Fields that have no default."""
    missing = dataclasses.MISSING
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return [field.name for field in fields if field.default is missing is field.default_factory]


def _check(name: str, cls: Any) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Augmentation)):
        raise HeadstartError(
            f"augmentation {name}: expected a subclass of Augmentation, got {cls!r:.200}"
        )
    params = getattr(cls, "__dataclass_params__", None)
    if params is None or not params.frozen or _required(cls):
        raise HeadstartError(
            f"augmentation {name}: expected a frozen dataclass whose fields have defaults, "
            f"got {cls.__qualname__}"
        )
    if not QUALIFIED.fullmatch(name) and folded(cls.name) != folded(name):
        raise HeadstartError(
            f"augmentation {name}: expected this name in the class, got {cls.name!r}"
        )


AUGMENTATIONS: Registry[type[Augmentation]] = Registry(
    "augmentation",
    "headstart.augmentations",
    _package,
    named=lambda cls: str(getattr(cls, "name", cls)),
    check=_check,
)


def register_augmentation(cls: C) -> C:
    """Let a class of your own be named as an augmentation, by its `name`."""
    AUGMENTATIONS.add(cls)
    return cls


def make(name: str, settings: Mapping[str, Any] | None = None) -> Augmentation:
    """An augmentation from its name and settings; a setting that it has not is refused."""
    cls, given = AUGMENTATIONS[name], dict(settings or {})
    expected = [field.name for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]
    unknown = [key for key in given if key not in expected]
    if unknown:
        raise HeadstartError(
            f"{name}: expected settings among {', '.join(expected) or 'none'}, "
            f"got {', '.join(unknown)}"
        )
    return cls(**given)

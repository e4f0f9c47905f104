"""How long work says how far it is, whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]  # what, done, of


def silent(what: str, done: int, of: int) -> None:
    """No progress shown."""

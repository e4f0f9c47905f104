"""What a setting of a method or a training may be, beside `number`, `choice` and `flag`."""

from __future__ import annotations

from typing import Any

from headstart.errors import HeadstartError


def whole(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise HeadstartError(f"{name}: expected a whole number of at least {least}, got {value!r}")


def fraction(name: str, value: Any) -> None:
    """Refuse what is not a number of at least 0 and below 1 (what is kept of a mean that moves)."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < 1:
        raise HeadstartError(f"{name}: expected a number of at least 0 and below 1, got {value!r}")


def share(name: str, value: Any) -> None:
    """Refuse what is not a number from 0 to 1."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise HeadstartError(f"{name}: expected a number from 0 to 1, got {value!r}")

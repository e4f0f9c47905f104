"""What a file says, as a page may have it: numbers that are numbers, texts that end."""

from __future__ import annotations

import datetime
import math
from typing import Any

_TEXT = 500  # characters of a name or a reason


def number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) < 1e300 and math.isfinite(value) else None


def whole(value: Any) -> int | None:
    """A count; None for anything else."""
    known = number(value)
    return int(known) if known is not None and known >= 0 else None


def text(value: Any) -> str:
    """Text of a bounded length that any file can hold."""
    return str(value)[:_TEXT].encode(errors="replace").decode() if value is not None else ""


def seconds(value: Any) -> float | None:
    """A time as the files have it (ISO 8601), in seconds since 1970."""
    try:
        return datetime.datetime.fromisoformat(value).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None

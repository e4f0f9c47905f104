"""Claims that fail aloud, also where Python's own `assert` is switched off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def require(condition: object, what: str) -> None:
    """Fail with this text unless the condition holds."""
    if not condition:
        raise AssertionError(what)


def refuses(
    work: Callable[[], Any], kind: type[Exception], what: str, mentions: str = ""
) -> Exception:
    """The error that `work` must raise, of this kind, whose text mentions something."""
    try:
        result = work()
    except kind as error:
        require(mentions in str(error), f"{what}: expected {mentions!r} in the error, got: {error}")
        return error
    except Exception as error:
        raise AssertionError(f"{what}: expected {kind.__name__}, got {error!r}") from error
    raise AssertionError(f"{what}: expected {kind.__name__}, got {result!r:.200}")


def near(left: Any, right: Any, what: str, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Two arrays agree: |left − right| ≤ atol + rtol·|right|."""
    first, two = np.asarray(left), np.asarray(right)
    require(first.shape == two.shape, f"{what}: expected shape {two.shape}, got {first.shape}")
    gap = np.abs(first - two) - rtol * np.abs(two)
    worst = float(gap.max(initial=0.0))
    require(worst <= atol, f"{what}: they differ by {worst:.3g} more than rounding allows")

"""Claims that fail aloud, also where Python's own `assert` is switched off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def require(condition: object, said: str) -> None:
    """Fail with this text unless the condition holds."""
    if not condition:
        raise AssertionError(said)


def refuses(
    work: Callable[[], Any], kind: type[Exception], said: str, mentions: str = ""
) -> Exception:
    """The error that `work` must raise, of this kind, whose text mentions something."""
    try:
        found = work()
    except kind as error:
        require(mentions in str(error), f"{said}: expected {mentions!r} in the error, got: {error}")
        return error
    except Exception as error:
        raise AssertionError(f"{said}: expected {kind.__name__}, got {error!r}") from error
    raise AssertionError(f"{said}: expected {kind.__name__}, got {found!r:.200}")


def near(left: Any, right: Any, said: str, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Two arrays agree: |left − right| ≤ atol + rtol·|right|."""
    one, two = np.asarray(left), np.asarray(right)
    require(one.shape == two.shape, f"{said}: expected shape {two.shape}, got {one.shape}")
    gap = np.abs(one - two) - rtol * np.abs(two)
    worst = float(gap.max(initial=0.0))
    require(worst <= atol, f"{said}: they differ by {worst:.3g} more than rounding allows")

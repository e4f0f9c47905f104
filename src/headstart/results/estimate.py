"""A mean over seeds with its deviation."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


class Estimate(float):
    """A mean over seeds that also knows its values: prints as 0.921 ± 0.004."""

    values: tuple[float, ...]

    def __new__(cls, values: Iterable[float]) -> Estimate:
        held = tuple(values)
        made = super().__new__(cls, sum(held) / len(held))
        made.values = held
        return made

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds (n − 1); None for one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    def __repr__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:.4f}"
        return f"{float(self):.4f}{spread}"

    __str__ = __repr__


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Of the values that all seeds have; None where one lacks it."""
    present = list(values)
    if not present or any(value is None for value in present):
        return None
    return Estimate(value for value in present if value is not None)


def in_a_line(accuracy: float | None, personal: float | None) -> str:
    """What a result ends with."""
    parts = (
        f"{name} {value if isinstance(value, Estimate) else Estimate((value,))}"
        for name, value in {"accuracy": accuracy, "personal": personal}.items()
        if value is not None
    )
    return ", ".join(parts) or "nothing was tested"

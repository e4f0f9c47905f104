"""How a curious server reads samples in losses: attacks, each a function of what it can ask."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headstart.heads.linear import TEMPERATURES, LinearHead

Ask = Callable[[LinearHead], np.ndarray]  # a head goes out, its losses at TEMPERATURES come back
_ONE = int(np.argmin(abs(TEMPERATURES - 1)))


def probe(own, direction, shift=0.0) -> LinearHead:
    """Samples of the class `own` lose log(1 + exp((w·x + b)/T)); others are not counted."""
    other = 10**6 if isinstance(own, int) else f"{own} "  # a class that nobody has
    rows = np.stack([np.zeros_like(direction), direction])
    return LinearHead(rows, np.array([0.0, shift]), np.array([own, other]))


def lone_sample(ask: Ask, own, dimension: int) -> np.ndarray:
    """The only sample of a class: one answer per feature."""
    found = np.zeros(dimension)
    for at in range(dimension):
        losses = ask(probe(own, np.eye(dimension)[at]))
        found[at] = np.log(np.expm1(losses[_ONE]))
    return found


def foremost_sample(ask: Ask, own, dimension: int, reach: float, seed: int = 0) -> np.ndarray:
    """The sample of a class that lies farthest along a direction: first alone above a threshold,
    which is found by halving, then a feature at a time. At the lowest temperature T·loss is
    Σ max(0, w·x + b)."""
    rng = np.random.default_rng(seed)
    along = rng.normal(size=dimension)
    along /= np.linalg.norm(along)

    def above(direction, shift) -> float:
        return float(ask(probe(own, direction, shift))[0] * TEMPERATURES[0])

    low, high = -reach, reach  # nobody above at `low`
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if above(along, middle) > 1e-3 else (middle, high)
    shift, step = high, 1e-4
    start = above(along, shift)
    found = [above(along + step * row, shift) - start for row in np.eye(dimension)]
    return np.array(found) / step

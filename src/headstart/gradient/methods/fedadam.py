"""FedAdam (Reddi et al. 2021): Adam on the server; v ← β₂v + (1−β₂)δ²."""

from __future__ import annotations

from headstart.gradient.checks import fraction
from headstart.gradient.recipe import Recipe
from headstart.gradient.servers import Adaptive


def fedadam(
    server_rate: float = 1e-2, momentum: float = 0.9, second: float = 0.99, tau: float = 1e-3
) -> Recipe:
    fraction("second", second)

    def moving(v: float, square: float) -> float:
        return second * v + (1 - second) * square

    return Recipe(server=Adaptive(moving, server_rate, momentum, tau))

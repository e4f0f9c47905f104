"""FedYogi (Reddi et al. 2021): Yogi on the server; v ← v − (1−β₂)·δ²·sign(v − δ²)."""

from __future__ import annotations

from typing import Any

from headstart.gradient.checks import fraction
from headstart.gradient.recipe import Recipe
from headstart.gradient.servers import Adaptive


def fedyogi(
    server_rate: float = 1e-2, momentum: float = 0.9, second: float = 0.99, tau: float = 1e-3
) -> Recipe:
    fraction("second", second)

    def towards(v: Any, square: Any) -> Any:
        sign = (v > square) * 1.0 - (v < square) * 1.0
        return v - (1 - second) * square * sign

    return Recipe(server=Adaptive(towards, server_rate, momentum, tau))

"""FedAdagrad (Reddi et al. 2021): Adagrad on the server; v ← v + δ²."""

from __future__ import annotations

from headstart.gradient.recipe import Recipe
from headstart.gradient.servers import Adaptive


def fedadagrad(server_rate: float = 1e-2, momentum: float = 0.0, tau: float = 1e-3) -> Recipe:

    def growing(v: float, square: float) -> float:
        return v + square

    return Recipe(server=Adaptive(growing, server_rate, momentum, tau))

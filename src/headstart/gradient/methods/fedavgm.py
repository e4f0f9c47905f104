"""FedAvgM (Hsu et al. 2019): FedAvg with momentum on the server; v ← βv + mean δ, θ ← θ + η_g·v."""

from __future__ import annotations

from headstart.gradient.recipe import Recipe
from headstart.gradient.servers import Momentum


def fedavgm(momentum: float = 0.9, server_rate: float = 1.0) -> Recipe:
    return Recipe(server=Momentum(momentum, server_rate))

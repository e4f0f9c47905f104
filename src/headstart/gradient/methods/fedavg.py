"""FedAvg (McMahan et al. 2017): local SGD; θ ← θ + η_g·Σnδ/Σn."""

from __future__ import annotations

from headstart.gradient.recipe import Average, Recipe


def fedavg(server_rate: float = 1.0) -> Recipe:
    return Recipe(server=Average(server_rate))

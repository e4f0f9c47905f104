"""Ditto (Li et al. 2021): beside FedAvg each client keeps v, trained on loss + λ/2·‖v − θᵗ‖²."""

from __future__ import annotations

from headstart.gradient.recipe import Average, Pass, Recipe
from headstart.gradient.terms import towards_received
from headstart.heads.base import number


def ditto(strength: float = 0.1, server_rate: float = 1.0) -> Recipe:
    number("strength", strength)
    personal = Pass("copy", correct=towards_received(strength))
    return Recipe(
        passes=(Pass(), personal), memory={"copy": "received"}, server=Average(server_rate)
    )

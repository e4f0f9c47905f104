"""FedProx (Li et al. 2020): the local loss gets μ/2·‖θ − θᵗ‖², that is g + μ(θ − θᵗ)."""

from __future__ import annotations

from typing import Any

from headstart.gradient.recipe import Correction, Gradient, Local, Recipe
from headstart.gradient.tree import Tree, add, minus, only
from headstart.heads.base import number


def fedprox(mu: float = 0.001) -> Recipe:
    number("mu", mu)
    return Recipe(correct=towards_given(mu))


def towards_given(strength: float) -> Correction:
    """g + strength·(θ − θᵗ)."""

    def correct(gradient: Gradient, params: Tree, local: Local) -> dict[str, Any]:
        found = gradient(params)
        away = minus(only(params, found), local.given)
        return add(found, away, strength)

    return correct

"""FedSOL (Lee et al. 2024): the local gradient where the received model's knowledge is worse.

Step ∇loss at θ + ρ·∇r/‖∇r‖, r = τ²·KL to the received model. Where a client has not moved, ∇r is
0 (what is computed there is rounding) and so is the way to go.
"""

from __future__ import annotations

from typing import Any

from headstart.gradient.recipe import Gradient, Local, Recipe, Term
from headstart.gradient.tree import Tree, each, minus, norms, only, spread
from headstart.heads.base import number


def fedsol(rho: float = 2.0, tau: float = 3.0) -> Recipe:
    number("rho", rho)
    number("tau", tau, strict=True)
    distilled = (Term("kd", tau=tau),)

    def correct(gradient: Gradient, params: Tree, local: Local) -> dict[str, Any]:
        away = gradient(params, of=distilled)
        moved, size = norms(minus(only(params, away), local.received)), norms(away)
        reach = rho * (moved > 0) / (size + (size == 0))
        there = each(lambda at, way: at + spread(reach, at) * way, only(params, away), away)
        return gradient({**params, **there})

    return Recipe(correct=correct)

"""Per-FedAvg (Fallah et al. 2020), first order: a model that is good one step later.

θ′ = θ − α·g(θ; one half of the batch); step g(θ′; the other half). At home the client takes such
steps of length α: one epoch on its samples.
"""

from __future__ import annotations

from typing import Any

from headstart.gradient.recipe import Gradient, Local, Pass, Recipe
from headstart.gradient.tree import Tree, add, only, scaled
from headstart.heads.base import number


def per_fedavg(alpha: float = 0.01) -> Recipe:
    number("alpha", alpha)

    def correct(gradient: Gradient, params: Tree, local: Local) -> dict[str, Any]:
        step = gradient(params, half=0)
        ahead = add(only(params, step), step, -alpha)
        return gradient({**params, **ahead}, half=1)

    def adapt(gradient: Gradient, params: Tree, local: Local) -> dict[str, Any]:
        return scaled(gradient(params), alpha / local.rate)

    return Recipe(
        correct=correct,
        inner_rates={"alpha": alpha},
        weigh="clients",
        adapt=Pass(correct=adapt, epochs=1),
    )

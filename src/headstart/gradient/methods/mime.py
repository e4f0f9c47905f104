"""Mime (Karimireddy et al. 2021): the server's momentum, applied at every local step, unchanged.

c = mean of the clients' full gradients at θᵗ; step (1−β)(g(θ) − g(θᵗ) + c) + βm;
server: m ← (1−β)c + βm. `lite` leaves the correction out: (1−β)g(θ) + βm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.gradient.checks import fraction
from headstart.gradient.recipe import Gradient, Local, Recipe, RoundAggregate
from headstart.gradient.tree import Tree, add, minus, scaled, zeros
from headstart.heads.base import flag


def mime(beta: float = 0.9, lite: bool = False) -> Recipe:
    fraction("beta", beta)
    flag("lite", lite)

    def correct(gradient: Gradient, params: Tree, local: Local) -> dict[str, Any]:
        step = gradient(params)
        if not lite:
            there = gradient({**params, **local.received})
            step = add(minus(step, there), local.server["gradient"])
        return add(scaled(step, 1 - beta), local.server["momentum"], beta)

    state = ("momentum",) if lite else ("momentum", "gradient")
    return Recipe(
        correct=correct,
        needs_full_gradient=True,
        server=Steady(beta),
        broadcast_state=state,
        weigh="clients",
    )


@dataclass(frozen=True)
class Steady:
    """Mime's server step: the mean update, and momentum from the mean full gradient."""

    beta: float

    def start(self, params: Tree) -> dict[str, Tree]:
        return {"momentum": zeros(params)}

    def step(
        self, params: Tree, state: Mapping[str, Tree], sums: RoundAggregate
    ) -> tuple[dict[str, Any], dict[str, Tree]]:
        fresh = scaled(sums.extra["gradient"], 1 - self.beta)
        return add(params, sums.mean), {"momentum": add(fresh, state["momentum"], self.beta)}

"""FedDyn (Acar et al. 2021): a linear and a quadratic term that make local optima the global one.

Step g − h_k + α(θ − θᵗ); then h_k ← h_k − α(θ_k − θᵗ).
Server: h ← h − α/K·Σδ, θ ← mean θ_k − h/α.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.gradient.recipe import Gradient, Local, LocalResult, Recipe, RoundAggregate
from headstart.gradient.terms import towards_received
from headstart.gradient.tree import Tree, add, minus, zeros
from headstart.heads.base import number


def feddyn(alpha: float = 0.1) -> Recipe:
    number("alpha", alpha, strict=True)
    near = towards_received(alpha)

    def correct(gradient: Gradient, params: Tree, local: Local) -> dict[str, Any]:
        return add(near(gradient, params, local), local.memory["drift"], -1.0)

    def remember(end: LocalResult) -> dict[str, Tree]:
        moved = minus(end.params, end.local.received)
        return {"drift": add(end.local.memory["drift"], moved, -alpha)}

    return Recipe(
        correct=correct,
        memory={"drift": "zeros"},
        remember=remember,
        server=Dynamic(alpha),
        weigh="clients",
    )


@dataclass(frozen=True)
class Dynamic:
    """FedDyn's server step: the mean update, less the drift h/α that it accumulates."""

    alpha: float

    def start(self, params: Tree) -> dict[str, Tree]:
        return {"drift": zeros(params)}

    def step(
        self, params: Tree, state: Mapping[str, Tree], sums: RoundAggregate
    ) -> tuple[dict[str, Any], dict[str, Tree]]:
        share = self.alpha * sums.count / sums.clients
        drift = add(state["drift"], sums.mean, -share)
        return add(add(params, sums.mean), drift, -1 / self.alpha), {"drift": drift}

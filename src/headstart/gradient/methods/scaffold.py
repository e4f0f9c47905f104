"""Scaffold (Karimireddy et al. 2020, option II): control variates against client drift.

Step g − c_k + c; then c_k⁺ = c_k − c + (θᵗ − θ)/(T′η). T′ is the number of steps T; with local
momentum m, by which a step moves up to 1/(1−m) as far, T′ = (T − m(1−m^T)/(1−m))/(1−m): divided by
Tη, c_k would be many times the gradient that it stands for.
Server: θ ← θ + η_g·mean δ, c ← c + Σ(c_k⁺ − c_k)/K.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.gradient.recipe import Gradient, Local, LocalResult, Recipe, RoundAggregate
from headstart.gradient.tree import Tree, add, minus, zeros
from headstart.heads.base import number


def scaffold(server_rate: float = 1.0) -> Recipe:
    number("server_rate", server_rate, strict=True)
    return Recipe(
        correct=_correct,
        memory={"control": "zeros"},
        remember=lambda end: {"control": add(end.local.memory["control"], _change(end))},
        extra=lambda end: {"control": _change(end)},
        extra_names=("control",),
        server=Controlled(server_rate),
        broadcast_state=("control",),
        weigh="clients",
    )


def _correct(gradient: Gradient, params: Tree, local: Local) -> dict[str, Any]:
    step = gradient(params)
    return add(add(step, local.memory["control"], -1.0), local.server["control"])


def _change(end: LocalResult) -> dict[str, Any]:
    """c_k⁺ − c_k = (θᵗ − θ)/(T′η) − c."""
    moved = end.by_step(minus(end.local.received, end.params))
    return minus(moved, end.local.server["control"])


@dataclass(frozen=True)
class Controlled:
    """Scaffold's server step: the mean update, and the control variate of all clients."""

    rate: float

    def start(self, params: Tree) -> dict[str, Tree]:
        return {"control": zeros(params)}

    def step(
        self, params: Tree, state: Mapping[str, Tree], sums: RoundAggregate
    ) -> tuple[dict[str, Any], dict[str, Tree]]:
        control = add(state["control"], sums.extra["control"], 1 / sums.clients)
        return add(params, sums.mean, self.rate), {"control": control}

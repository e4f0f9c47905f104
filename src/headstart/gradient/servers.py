"""Server steps with a state: momentum, and the adaptive family of Reddi et al. 2021."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headstart.gradient.checks import fraction
from headstart.gradient.recipe import RoundAggregate
from headstart.gradient.tree import Tree, add, each, scaled, zeros
from headstart.heads.base import number


@dataclass(frozen=True)
class Momentum:
    """v ← βv + mean δ; θ ← θ + η_g·v."""

    momentum: float = 0.9
    rate: float = 1.0

    def __post_init__(self) -> None:
        fraction("momentum", self.momentum)
        number("server_rate", self.rate, strict=True)

    def start(self, params: Tree) -> dict[str, Tree]:
        return {"velocity": zeros(params)}

    def step(
        self, params: Tree, state: Mapping[str, Tree], sums: RoundAggregate
    ) -> tuple[dict[str, Any], dict[str, Tree]]:
        velocity = add(sums.mean, state["velocity"], self.momentum)
        return add(params, velocity, self.rate), {"velocity": velocity}


Second = Callable[[Any, Any], Any]  # (v, δ²) → v


@dataclass(frozen=True)
class Adaptive:
    """m ← β₁m + (1−β₁)·mean δ; v by `second`; θ ← θ + η_g·m/(√v + τ). v begins at τ²."""

    second: Second
    rate: float
    momentum: float
    tau: float

    def __post_init__(self) -> None:
        number("server_rate", self.rate, strict=True)
        fraction("momentum", self.momentum)
        number("tau", self.tau, strict=True)

    def start(self, params: Tree) -> dict[str, Tree]:
        nothing = zeros(params)
        return {"first": nothing, "second": each(lambda a: a + self.tau**2, nothing)}

    def step(
        self, params: Tree, state: Mapping[str, Tree], sums: RoundAggregate
    ) -> tuple[dict[str, Any], dict[str, Tree]]:
        first = add(scaled(state["first"], self.momentum), sums.mean, 1 - self.momentum)
        second = each(lambda v, d: self.second(v, d * d), state["second"], sums.mean)
        ahead = each(lambda m, v: m / (v**0.5 + self.tau), first, second)
        return add(params, ahead, self.rate), {"first": first, "second": second}

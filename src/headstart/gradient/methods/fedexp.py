"""FedExP (Jhunjhunwala et al. 2023): a server step that grows as clients disagree.

η_g = max(1, Σ‖δ‖²/(2M(‖mean δ‖² + ε))); the model that is evaluated is the mean of the last two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.gradient.recipe import Recipe, RoundAggregate
from headstart.gradient.tree import Tree, add, squares
from headstart.heads.base import number


def fedexp(epsilon: float = 0.001) -> Recipe:
    number("epsilon", epsilon, strict=True)
    return Recipe(server=Extrapolated(epsilon), send_norms=True, weigh="clients", window=2)


@dataclass(frozen=True)
class Extrapolated:
    """FedExP's server step: the mean update times max(1, Σ‖δ‖²/(2M(‖mean δ‖² + ε)))."""

    epsilon: float

    def start(self, params: Tree) -> dict[str, Tree]:
        return {}

    def step(
        self, params: Tree, state: Mapping[str, Tree], sums: RoundAggregate
    ) -> tuple[dict[str, Any], dict[str, Tree]]:
        agreed = 2 * sums.count * (squares(sums.mean) + self.epsilon)
        return add(params, sums.mean, max(1.0, sums.squares / agreed)), {}

"""What training costs (Fanì et al. 2025, tables 22 and 23): read from a recipe, not from its name.

b and dC are the parameters of extractor and head, F_φ and F_ψ the FLOPs of their forward pass of
one sample (a multiply-add counts once); a backward pass costs 2F. E local epochs.

    numbers per round and client S up and S down, S what is shared; once more for every vector that
                                 goes along (Scaffold's control variates: twice)
    gradient of a sample         3(F_φ + F_ψ) where the extractor moves, F_φ + 3F_ψ where the head
                                 does; 3F_ψ on features that are kept, F_φ then once in all;
                                 F_φ + F_ψ more for each other model in a term of it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.costs.messages import BYTES_PER_NUMBER
from headstart.gradient.objectives import beside_of, references_of
from headstart.gradient.recipe import Correction, Local, Objective, Part, Pass, Recipe
from headstart.gradient.tree import Tree

_PARTS = {"model": {"extractor", "head"}, "extractor": {"extractor"}, "head": {"head"}}
_ALONE = Recipe()


@dataclass(frozen=True)
class Traffic:
    """Bytes between the server and one client."""

    up: float
    down: float

    @property
    def both(self) -> float:
        return self.up + self.down


def round_bytes(
    recipe: Recipe, train: Part, extractor_params: float, head_params: float
) -> Traffic:
    """A client's bytes in one round, 4 per number: 2(b + dC) of FedAvg, 2b and 2dC of its parts.

    Up go the difference of what is shared, every extra and the gradient at the received model;
    down the model and the server's state. Where everything is personal, nothing goes.
    """
    size = {"extractor": extractor_params, "head": head_params}
    shared = BYTES_PER_NUMBER * sum(size[part] for part in _moved(recipe, train, Pass("shared")))
    up = 1 + len(recipe.extra_names) + recipe.needs_full_gradient
    return Traffic(shared * up, shared * (1 + len(recipe.broadcast_state)))


def sample_flops(
    recipe: Recipe,
    train: Part,
    extractor_flops: float,
    head_flops: float,
    epochs: int,
    *,
    cached: bool = False,
) -> float:
    """A visit to a client, for one of its samples, as it is done here: pass by pass.

    `cached`: where only the head moves, its features are at hand; F_φ per sample, once and not per
    visit, is the caller's to add.
    """
    forward = (extractor_flops, head_flops)
    flops = 0.0
    for pass_ in recipe.passes:
        times = epochs if pass_.epochs is None else pass_.epochs
        gradients, beside = _gradients_per_step(recipe, pass_.correct)
        moved = _moved(recipe, train, pass_)
        flops += times * gradients * _gradient(moved, *forward, cached)
        flops += times * beside * _forward(moved, *forward, cached)
    if recipe.needs_full_gradient:
        moved = _moved(recipe, train, Pass("shared"))
        flops += _gradient(moved, *forward, cached)
        flops += _models_beside(recipe.objective) * _forward(moved, *forward, cached)
    return flops


def formula_flops(
    recipe: Recipe, train: Part, extractor_flops: float, head_flops: float, epochs: int
) -> float:
    """The same as the papers count it: 3E(F_φ + F_ψ), or E(F_φ + 3F_ψ) of the head alone.

    They count one pass over what trains, also where FedAlt makes two; and twice that where a step
    takes several gradients (pFedMe).
    """
    twice = 2 if _gradients_per_step(recipe, None)[0] > 1 else 1
    every = _moved(recipe, train, Pass())
    return twice * epochs * _gradient(every, extractor_flops, head_flops, cached=False)


def local_flops(
    train: Part, extractor_flops: float, head_flops: float, epochs: int, *, cached: bool = False
) -> float:
    """Full personalization, per sample: FedAvg's formulas without its bytes.

    After OLL the papers take F̂_ψ, of the client's own classes; here the others are masked, not
    left out, and F_ψ stays.
    """
    return sample_flops(_ALONE, train, extractor_flops, head_flops, epochs, cached=cached)


def visits(rounds: int, cohort: int, clients: int) -> float:
    """tκ/K: how often a client is expected to take part in t rounds of κ among K."""
    return rounds * cohort / clients


def _moved(recipe: Recipe, train: Part, pass_: Pass) -> set[str]:
    trained = _PARTS[train]
    personal = _PARTS[recipe.personal] if recipe.personal else set()
    return {"personal": trained & personal, "shared": trained - personal}.get(pass_.moves, trained)


def _gradient(moved: set[str], extractor: float, head: float, cached: bool) -> float:
    """One sample's gradient: forward, and twice that back through what moves."""
    if not moved:
        return 0.0
    back = 2 * (extractor + head) if "extractor" in moved else 2 * head
    return _forward(moved, extractor, head, cached) + back


def _forward(moved: set[str], extractor: float, head: float, cached: bool) -> float:
    """One sample through the model; its features may be at hand."""
    if not moved:
        return 0.0
    return head if cached and "extractor" not in moved else extractor + head


def _models_beside(objective: Objective) -> int:
    """How many models a batch goes through besides the one that trains."""
    return references_of(objective) + len(beside_of(objective))


def _gradients_per_step(recipe: Recipe, correct: Correction | None) -> tuple[float, float]:
    """Gradients of a batch that one step asks for, and models beside the one that trains.

    Found by taking a step on zeros.
    """
    gradients = beside = 0.0
    tree: Tree = {"": np.zeros(1)}

    def gradient(at: Tree, half: int | None = None, of: Objective | None = None) -> dict[str, Any]:
        nonlocal gradients, beside
        part = 1.0 if half is None else 0.5
        gradients += part
        beside += part * _models_beside(of or recipe.objective)
        return dict(tree)

    local = Local(
        tree, dict.fromkeys(recipe.memory, tree), dict.fromkeys(recipe.broadcast_state, tree), 1.0
    )
    (correct or recipe.correct)(gradient, tree, local)
    return gradients, beside

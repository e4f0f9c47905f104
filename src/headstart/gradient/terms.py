"""Terms that hold a client to the model it received, and how any recipe takes one more.

    with_term    objective + weight·term
    mixed        β·objective + (1−β)·term, FedDr+'s way to cross algorithms with regularizers

Prox is about parameters, not about a batch: ½‖θ − θᵗ‖² is θ − θᵗ in every gradient.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headstart.errors import HeadstartError
from headstart.gradient.checks import share
from headstart.gradient.objectives import LOSSES, term_names
from headstart.gradient.recipe import (
    Correction,
    Gradient,
    Local,
    LocalResult,
    Objective,
    Pass,
    Recipe,
    Term,
    plain,
)
from headstart.gradient.tree import Tree, add, minus, only
from headstart.registry import folded


def with_term(recipe: Recipe, term: Term) -> Recipe:
    """One more term; of weight 0, none. Clients keep their last model for those that look at it."""
    if not term.weight:
        return recipe
    if term.name == "prox":
        return _pulled(recipe, term.weight)
    changed = replace(recipe, objective=(*recipe.objective, term))
    if LOSSES[term.name].references < 2:
        return changed

    def remember(end: LocalResult) -> dict[str, Tree]:
        return {**recipe.remember(end), "last": end.params}

    return replace(changed, memory={**recipe.memory, "last": "received"}, remember=remember)


def mixed(recipe: Recipe, name: str, beta: float) -> Recipe:
    """β·objective + (1−β)·term; a term by its name."""
    name = _term_named(str(name))
    share("mix", beta)
    if name == "none":
        return recipe
    if name in {term.name for term in recipe.objective} or (
        name == "prox" and recipe.proximal_weight
    ):
        raise HeadstartError(f"term: expected another than {name}, which this method has already")
    less = tuple(replace(term, weight=beta * term.weight) for term in recipe.objective)
    term = Term(name, 1 - beta) if name == "prox" else LOSSES[name].term(name, 1 - beta)
    return with_term(replace(recipe, objective=less), term)


def _term_named(text: str) -> str:
    """The name of a term, however it is written."""
    if folded(text) in ("none", "prox"):
        return folded(text)
    if text not in LOSSES or not LOSSES[text].references:
        raise HeadstartError(f"term: expected one of {', '.join(term_names())}, got {text!r}")
    return LOSSES.entry(text).name


def _pulled(recipe: Recipe, strength: float) -> Recipe:
    """Every pass of it, also those with steps of their own."""

    def nearer(each: Pass) -> Pass:
        return (
            replace(each, correct=towards_received(strength, each.correct))
            if each.correct
            else each
        )

    return replace(
        recipe,
        correct=towards_received(strength, recipe.correct),
        passes=tuple(map(nearer, recipe.passes)),
        adapt=recipe.adapt and nearer(recipe.adapt),
        proximal_weight=recipe.proximal_weight + strength,
    )


def towards_received(strength: float, correct: Correction = plain) -> Correction:
    """Every gradient g of the objective that a step is made of becomes g + strength·(θ − θᵗ)."""

    def nearer(gradient: Gradient, params: Tree, local: Local) -> dict[str, Any]:
        def pulled(
            at: Tree, half: int | None = None, of: Objective | None = None
        ) -> dict[str, Any]:
            step = gradient(at, half, of)
            if of is not None:  # of something else than the objective
                return step
            return add(step, minus(only(at, step), local.received), strength)

        return correct(pulled, params, local)

    return nearer

"""pFedMe (T. Dinh et al. 2020): descend the Moreau envelope of each client's loss.

θ̃ ≈ argmin loss + λ/2·‖θ − w‖² by a few inner steps; w ← w − ηλ(w − θ̃);
server: w ← (1−β)w + β·mean w_k. At home the client solves the inner problem once more, by an epoch
of inner steps. A personal part of w stays with its client and is no part of the mean.
"""

from __future__ import annotations

from typing import Any

from headstart.gradient.checks import whole
from headstart.gradient.recipe import Average, Gradient, Local, Part, Pass, Recipe
from headstart.gradient.terms import towards_received
from headstart.gradient.tree import Tree, add, minus, only, scaled
from headstart.heads.base import choice, number


def pfedme(
    personal: Part | None = None,
    strength: float = 1.0,
    inner_steps: int = 5,
    inner_rate: float = 0.1,
    beta: float = 1.0,
) -> Recipe:
    if personal is not None:
        choice("personal", personal, ("extractor", "head"))
    number("strength", strength, strict=True)
    whole("inner_steps", inner_steps)
    number("inner_rate", inner_rate, strict=True)
    number("beta", beta, strict=True)
    near_given = towards_received(strength)

    def correct(gradient: Gradient, params: Tree, local: Local) -> dict[str, Any]:
        near = dict(params)
        for _ in range(inner_steps):
            step = gradient(near)
            step = add(step, minus(only(near, step), params), strength)
            near |= add(only(near, step), step, -inner_rate)
        return scaled(minus(only(params, step), near), strength)

    def adapt(gradient: Gradient, params: Tree, local: Local) -> dict[str, Any]:
        return scaled(near_given(gradient, params, local), inner_rate / local.rate)

    return Recipe(
        correct=correct,
        inner_rates={"inner_rate": inner_rate},
        personal=personal,
        server=Average(beta),
        weigh="clients",
        adapt=Pass(correct=adapt, epochs=1),
    )

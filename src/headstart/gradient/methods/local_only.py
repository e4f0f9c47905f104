"""Local training: nothing is shared; every client trains alone from the model it was given.

`ETF + local-only(φ, loss=dot-regression)` is FedDr+'s own baseline of that kind.
"""

from __future__ import annotations

from dataclasses import replace

from headstart.gradient.methods.dot_regression import dot_regression
from headstart.gradient.recipe import Recipe
from headstart.heads.base import choice

LOSSES = {"cross-entropy": Recipe, "dot-regression": dot_regression}


def local_only(loss: str = "cross-entropy") -> Recipe:
    choice("loss", loss, tuple(LOSSES))
    return replace(LOSSES[loss](), personal="model")

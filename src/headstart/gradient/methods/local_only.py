"""Local training: nothing is shared; every client trains alone from the model it was given."""

from __future__ import annotations

from headstart.gradient.recipe import Recipe


def local_only() -> Recipe:
    return Recipe(personal="model")

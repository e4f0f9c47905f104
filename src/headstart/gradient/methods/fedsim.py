"""FedSim (Pillutla et al. 2022): shared and personal part move together; the shared is averaged."""

from __future__ import annotations

from headstart.gradient.recipe import PARTS, Part, Recipe
from headstart.heads.base import choice


def fedsim(personal: Part | None = "head") -> Recipe:
    if personal is not None:
        choice("personal", personal, PARTS)
    return Recipe(personal=personal)

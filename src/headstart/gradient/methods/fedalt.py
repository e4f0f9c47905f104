"""FedAlt (Pillutla et al. 2022): the personal part first, then the shared one, averaged."""

from __future__ import annotations

from headstart.gradient.checks import whole
from headstart.gradient.recipe import PARTS, Part, Pass, Recipe
from headstart.heads.base import choice


def fedalt(personal: Part = "head", personal_epochs: int | None = None) -> Recipe:
    choice("personal", personal, PARTS)
    if personal_epochs is not None:
        whole("personal_epochs", personal_epochs)
    return Recipe(personal=personal, passes=(Pass("personal", personal_epochs), Pass("shared")))

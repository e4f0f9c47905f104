"""FedBABU (Oh et al. 2022): the head stays as it began, at random; the extractor trains."""

from __future__ import annotations

from headstart.gradient.recipe import Recipe


def fedbabu() -> Recipe:
    return Recipe(trains="extractor")

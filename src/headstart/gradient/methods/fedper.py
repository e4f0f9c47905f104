"""FedPer (Arivazhagan et al. 2019): the head stays with the client, the rest is FedAvg's."""

from __future__ import annotations

from headstart.gradient.methods.fedsim import fedsim
from headstart.gradient.recipe import Recipe


def fedper() -> Recipe:
    return fedsim("head")

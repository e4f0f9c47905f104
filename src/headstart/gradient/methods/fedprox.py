"""FedProx (Li et al. 2020): the local loss gets μ/2·‖θ − θᵗ‖², that is g + μ(θ − θᵗ)."""

from __future__ import annotations

from headstart.gradient.recipe import Recipe, Term
from headstart.gradient.terms import with_term
from headstart.heads.base import number


def fedprox(mu: float = 0.001) -> Recipe:
    number("mu", mu)
    return with_term(Recipe(), Term("prox", mu))

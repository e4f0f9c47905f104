"""FedNTD (Lee et al. 2022): distil what the received model says of the classes that are not true.

Cross-entropy + β·τ²·KL of the softmaxes without the true class.
"""

from __future__ import annotations

from headstart.gradient.recipe import Recipe, Term
from headstart.gradient.terms import with_term
from headstart.heads.base import number


def fedntd(beta: float = 1.0, tau: float = 3.0) -> Recipe:
    number("beta", beta)
    number("tau", tau, strict=True)
    return with_term(Recipe(), Term("ntd", beta, tau))

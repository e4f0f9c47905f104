"""FedETF (Li et al. 2023): a frozen simplex, normalized features, and a balanced softmax.

Softmax of s·cos(f, v_c) + γ·log n_kc: a client's own class counts are the prior it learns beside,
so that a class it lacks is not pushed away. FedETF's projection and its learned s are left out, as
in FedDr+'s comparison.
"""

from __future__ import annotations

from headstart.gradient.recipe import Recipe, Term
from headstart.heads.base import number


def fedetf(scale: float = 1.0, gamma: float = 1.0) -> Recipe:
    number("scale", scale, strict=True)
    number("gamma", gamma)
    loss = (Term("balanced", scale=scale, gamma=gamma),)
    return Recipe(objective=loss, trains="extractor", directions=True, rate=0.5)

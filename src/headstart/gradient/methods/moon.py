"""MOON (Li et al. 2021): features near those of the received model, far from the client's last.

Cross-entropy − μ·log softmax over {cos(f, fᵍ)/τ, cos(f, f_last)/τ} of the first. Without the
projection that MOON puts after the extractor, as in FedDr+'s comparison.
"""

from __future__ import annotations

from headstart.gradient.recipe import Recipe, Term
from headstart.gradient.terms import with_term
from headstart.heads.base import number


def moon(mu: float = 1.0, tau: float = 0.5) -> Recipe:
    number("mu", mu)
    number("tau", tau, strict=True)
    return with_term(Recipe(), Term("moon", mu, tau))

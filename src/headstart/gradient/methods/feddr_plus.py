"""FedDr+: dot-regression, held to the features of the received model.

β·½(cos(f, v_y) − 1)² + (1−β)·‖f − fᵍ‖²/d, towards a frozen simplex (`ETF + FedDr+`) or any other
head.
"""

from __future__ import annotations

from headstart.gradient.checks import share
from headstart.gradient.methods.dot_regression import dot_regression
from headstart.gradient.recipe import Recipe
from headstart.gradient.terms import mixed


def feddr_plus(beta: float = 0.9) -> Recipe:
    share("beta", beta)
    return mixed(dot_regression(), "fd", beta)

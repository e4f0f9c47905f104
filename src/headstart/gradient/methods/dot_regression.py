"""Dot-regression (Yang et al. 2022): features turn to the frozen row of their class and no more.

Loss ½(cos(f, v_y) − 1)²: of cross-entropy's two forces it keeps the one that pulls.
"""

from __future__ import annotations

from headstart.gradient.recipe import Recipe, Term


def dot_regression() -> Recipe:
    loss = (Term("dot-regression"),)
    return Recipe(objective=loss, trains="extractor", directions=True, rate=5.0)

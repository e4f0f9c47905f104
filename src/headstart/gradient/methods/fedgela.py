"""FedGELA (Fan et al. 2023): a frozen simplex, each class vector scaled by what a client has of it.

Cross-entropy of C·n_kc/n_k·(f·v_c), and so a client predicts at home; a client with equal counts
has the simplex itself, which is what the server tests with.
"""

from __future__ import annotations

from headstart.gradient.recipe import Recipe, Term


def fedgela() -> Recipe:
    return Recipe(objective=(Term("scaled"),), trains="extractor", own_frame=True)

"""SphereFed (Dong et al. 2022): squared error of cosine logits, towards a frozen orthonormal head.

Mean over classes of (s·cos(f, v_c) − [c = y])²; `Orthonormal + SphereFed`.
"""

from __future__ import annotations

from headstart.gradient.recipe import Recipe, Term
from headstart.heads.base import number


def spherefed(scale: float = 1.0) -> Recipe:
    number("scale", scale, strict=True)
    loss = (Term("sphere", scale=scale),)
    return Recipe(objective=loss, trains="extractor", directions=True, rate=6.5)

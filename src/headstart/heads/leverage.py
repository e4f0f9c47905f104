"""How much of a sample's own label is in the score that a ridge head gives it in training.

Without sample i its score is s_i − h_i/(1 − h_i)·(y_i − s_i), h_i = z_iᵀ(A + λI)⁻¹z_i. A client
cannot know h_i without A, but as in generalized cross-validation (Golub, Heath and Wahba 1979) the
mean h = tr((A + λI)⁻¹A)/n stands in for it: sums only, and two numbers are broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.errors import HeadstartError

Array = NDArray[np.float64]
_MOST = 1.0 - 1e-6  # of a head that interpolates; its residuals vanish as 1 − h does


@dataclass(frozen=True)
class Leverage:
    """`mean`: h. `scale`: what a score is multiplied by to be in the units of one-hot labels.

    The default says nothing is known: scores are then taken as they are.
    """

    mean: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.mean < 1:
            raise HeadstartError(
                f"leverage: expected a mean of at least 0, below 1, got {self.mean!r}"
            )
        if not 0 < self.scale < np.inf:
            raise HeadstartError(f"leverage: expected a scale above 0, got {self.scale!r}")

    def left_out(self, scores: Array, truth: NDArray[np.intp]) -> Array:
        """Training scores as if each sample had been left out; `truth`: its label's column."""
        if self.mean == 0:
            return scores
        ratio = self.mean / (1 - self.mean)
        out = scores * (1 + ratio)
        out[np.arange(len(truth)), truth] -= ratio / self.scale
        return out


def leverage(inverse: Array, ridge: float, samples: float, scale: float, bias: bool) -> Leverage:
    """From (M + λI)⁻¹: tr((M + λI)⁻¹M) = d − λ·tr((M + λI)⁻¹); an intercept is one more."""
    freedom = len(inverse) - ridge * float(np.trace(inverse)) + bias
    return Leverage(float(np.clip(freedom / samples, 0.0, _MOST)), scale)

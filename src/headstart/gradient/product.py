"""The gradient of a head's rows, Σ over a batch of slope ⊗ feature, as the product it is.

Computed first, it would be written and read again by the step along it; added onto the parameters,
it is one pass over them. It adds and scales like the array it stands for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Product:
    """by·slopesᵀ·features + rest, for every client."""

    slopes: Tensor  # k×b×C
    features: Tensor  # k×b×d
    by: float = 1.0
    rest: Tensor | None = None

    def whole(self) -> Tensor:
        value = self.by * torch.bmm(self.slopes.transpose(1, 2), self.features)
        return value if self.rest is None else value + self.rest

    def __add__(self, other: Tensor | Product) -> Product:
        more = other.whole() if isinstance(other, Product) else other
        return replace(self, rest=more if self.rest is None else self.rest + more)

    def __radd__(self, other: Tensor) -> Tensor:
        """Added to an array it is one: that is where a recipe takes another gradient."""
        base = other if self.rest is None else other + self.rest
        return torch.baddbmm(base, self.slopes.transpose(1, 2), self.features, alpha=self.by)

    def __mul__(self, by: float) -> Product:
        rest = None if self.rest is None else self.rest * by
        return replace(self, by=self.by * by, rest=rest)

    __rmul__ = __mul__

    def __sub__(self, other: Tensor | Product) -> Product:
        return self + other * -1.0

    def __rsub__(self, other: Tensor) -> Tensor:
        return other + self * -1.0


def whole(array: Tensor | Product) -> Tensor:
    """Return the tensor itself, multiplied out if it is a product."""
    return array.whole() if isinstance(array, Product) else array


def onto(place: Tensor, change: Tensor | Product, keep: float, by: float) -> None:
    """place ← keep·place + by·change. A rest of zeros changes nothing, to the bit."""
    if isinstance(change, Tensor):
        place.mul_(keep).add_(change, alpha=by)
        return
    slopes, factor = change.slopes.mT, by * change.by
    place.baddbmm_(slopes, change.features, beta=keep, alpha=factor)
    if change.rest is not None:
        place.add_(change.rest, alpha=by)

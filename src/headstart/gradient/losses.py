"""What is descended on a batch: losses of logits.

Everything is summed over clients trained together, which are independent: the gradient of the sum
is each client's own. A loss may give its slope ∂/∂logits, so that a head trains without autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

# (logits k×b×C, labels k×b, weights k×b) → a number, or its slope k×b×C
Value = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Loss:
    value: Value
    slope: Value | None = None


def _cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return each @ weights.flatten()


def _cross_entropy_slope(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """w·(softmax − one-hot)."""
    slope = torch.softmax(logits, dim=-1)
    slope *= weights[..., None]
    return slope.scatter_add_(2, labels[..., None], -weights[..., None])


LOSSES = {"cross-entropy": Loss(_cross_entropy, _cross_entropy_slope)}

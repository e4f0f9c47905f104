"""A small network for quick runs at 32 pixels; it begins at random."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F


def build() -> SmallCNN:
    """Return the torch module with random weights."""
    return SmallCNN()


class SmallCNN(nn.Module):
    """Three convolutions with group norm (no running statistics), d = 128: for quick runs."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 128)
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.GroupNorm(8, b) for b in widths[1:])

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.max_pool2d(F.relu(norm(conv(x))), 2)
        return F.adaptive_avg_pool2d(x, 1).flatten(1)

"""SqueezeNet 1.1 (Iandola et al. 2016): squeeze to few channels, expand by 1×1 and 3×3 in parallel.

Its classifier is a convolution to 1000 maps before pooling. The features are what that convolution
sees, averaged over the image: the 512 channels of the last fire module, after its ReLU.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def build() -> SqueezeNet:
    """Return the torch module with random weights."""
    return SqueezeNet()


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1, with the module names of its published weights."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 3, stride=2),
            nn.ReLU(),
            _pool(),
            Fire(64, 16, 64),
            Fire(128, 16, 64),
            _pool(),
            Fire(128, 32, 128),
            Fire(256, 32, 128),
            _pool(),
            Fire(256, 48, 192),
            Fire(384, 48, 192),
            Fire(384, 64, 256),
            Fire(512, 64, 256),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Conv2d(512, 1000, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(self.features(x), 1).flatten(1)

    def logits(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(self.classifier(self.features(x)), 1).flatten(1)


class Fire(nn.Module):
    """A fire module: a 1×1 squeeze, then 1×1 and 3×3 expansions side by side."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x))
        return F.relu(torch.cat([self.expand1x1(x), self.expand3x3(x)], 1))


def _pool() -> nn.MaxPool2d:
    return nn.MaxPool2d(3, 2, ceil_mode=True)

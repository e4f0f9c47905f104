"""VGG11 (Simonyan and Zisserman 2014) at 32 pixels: its convolutions; it begins at random."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


def build() -> VGG11:
    """Return the torch module with random weights."""
    return VGG11()


class VGG11(nn.Module):
    """Eight 3×3 convolutions, halved five times; no batch norm, as published."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList()
        width = 3
        for channels, convs in ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)):
            layers: list[nn.Module] = []
            for _ in range(convs):
                conv = nn.Conv2d(width, channels, 3, padding=1)
                nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
                layers += [conv, nn.ReLU()]
                width = channels
            self.stages.append(nn.Sequential(*layers))

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = F.max_pool2d(stage(x), 2, ceil_mode=True)
        return F.adaptive_avg_pool2d(x, 1).flatten(1)

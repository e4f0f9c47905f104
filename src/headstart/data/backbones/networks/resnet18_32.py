"""ResNet-18 (He et al. 2016) at 32 pixels: no pooling at the entrance; it begins at random."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from headstart.data.backbones.networks.mobilenet import conv_norm
from headstart.data.backbones.networks.resnet18 import Block


def build() -> ResNet18At32:
    """Return the torch module with random weights."""
    return ResNet18At32()


class ResNet18At32(nn.Module):
    """Four stages of two residual blocks behind a 3×3 convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_norm(3, 64, 3)
        widths = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
        pairs = [(Block(a, b, stride), Block(b, b, 1)) for a, b, stride in widths]
        self.stages = nn.Sequential(*(block for pair in pairs for block in pair))

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(self.stages(self.stem(x)), 1).flatten(1)

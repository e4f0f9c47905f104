"""MobileNet v1 (Howard et al. 2017) at 32 pixels: no stride at the entrance; begins at random."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


def build() -> MobileNet:
    """Return the torch module with random weights."""
    return MobileNet()


class MobileNet(nn.Module):
    """A convolution, then thirteen pairs: each channel by itself, then all, point by point."""

    blocks = (  # channels, stride
        *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
        *((512, 1),) * 5,
        *((1024, 2), (1024, 1)),
    )

    def __init__(self) -> None:
        super().__init__()
        layers, width = [conv_norm(3, 32, 3)], 32
        for channels, stride in self.blocks:
            layers += [
                conv_norm(width, width, 3, stride, groups=width),
                conv_norm(width, channels, 1),
            ]
            width = channels
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1)


def conv_norm(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Module:
    """A convolution, batch norm and ReLU."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())

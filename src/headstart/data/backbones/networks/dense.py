"""What networks that give a feature vector per cell have in common.

φ is everything before the last 1×1 convolution, ψ that convolution: a segmentation model is a
classifier of cells, and its scores are enlarged to the image afterwards.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from headstart.errors import DataError

MULTIPLE = 32  # of both sides: the deepest branch halves them five times


def check_sides(x: Tensor) -> None:
    height, width = x.shape[2:]
    if height % MULTIPLE or width % MULTIPLE or not height * width:
        raise DataError(
            f"images: expected height and width in multiples of {MULTIPLE}, got {height}×{width}"
        )


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    groups: int = 1,
    dilation: int = 1,
    relu: bool = True,
) -> nn.Sequential:
    """A convolution that keeps the size (but for its stride), batch norm and, mostly, ReLU."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(
        inputs, outputs, kernel, stride, padding, dilation=dilation, groups=groups, bias=False
    )
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), *([nn.ReLU()] if relu else []))


def enlarged(scores: Tensor, size: tuple[int, int]) -> Tensor:
    """Scores of cells, bilinearly, at the size of an image or a mask."""
    return F.interpolate(scores, size, mode="bilinear", align_corners=False)


def start(module: nn.Module) -> None:
    """Kaiming's normal weights by the fan out; biases of 0."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out")
            if part.bias is not None:
                nn.init.zeros_(part.bias)

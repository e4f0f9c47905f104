"""EfficientNet-Lite: EfficientNet (Tan and Le 2019) with ReLU6 and no squeeze and excitation.

Lite0 has B0's stages; the larger ones multiply their widths and depths, but not the depth of the
first and the last stage, nor the widths of stem and head. The weights come from TensorFlow, so
convolutions pad as it does ("SAME"): an odd row or column of zeros goes to the end, and batch norm
has ε = 10⁻³.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

# of Lite0: expansion, channels, repeats, stride of the first, kernel
_STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite up to its pooled features, for a width and a depth factor."""

    def __init__(self, width: float = 1.0, depth: float = 1.0, dropout: float = 0.2) -> None:
        super().__init__()
        self._conv_stem = SameConv(3, 32, 3, 2)
        self._bn0 = _norm(32)
        self._blocks = nn.ModuleList()
        self.ends: list[int] = []  # the last block of each stage
        inputs = 32
        for expansion, channels, repeats, first, kernel in _STAGES:
            outputs = _eights(channels * width)
            for repeat in range(math.ceil(repeats * depth) if repeats > 1 else 1):
                stride = 1 if repeat else first
                self._blocks.append(Block(inputs, outputs, expansion, stride, kernel))
                inputs = outputs
            self.ends.append(len(self._blocks) - 1)
        self._conv_head = SameConv(inputs, 1280, 1)
        self._bn1 = _norm(1280)
        self._dropout = nn.Dropout(dropout)
        self._fc = nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        x = F.relu6(self._bn1(self._conv_head(x)))
        return F.relu6(F.adaptive_avg_pool2d(x, 1).flatten(1))  # a mean of 6s may round above 6

    def stages(self, x: Tensor) -> list[Tensor]:
        """The output of each stage, from stride 2 to 32."""
        x = F.relu6(self._bn0(self._conv_stem(x)))
        found = []
        for at, block in enumerate(self._blocks):
            x = block(x)
            if at in self.ends:
                found.append(x)
        return found

    def logits(self, x: Tensor) -> Tensor:
        scores: Tensor = self._fc(self._dropout(self(x)))
        return scores


class Block(nn.Module):
    """Expand, filter each channel, project without a non-linearity; add the input if it fits."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, kernel: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expands, self.adds = expansion > 1, stride == 1 and inputs == outputs
        if self.expands:
            self._expand_conv = SameConv(inputs, hidden, 1)
            self._bn0 = _norm(hidden)
        self._depthwise_conv = SameConv(hidden, hidden, kernel, stride, groups=hidden)
        self._bn1 = _norm(hidden)
        self._project_conv = SameConv(hidden, outputs, 1)
        self._bn2 = _norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = F.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self.adds else y


class SameConv(nn.Conv2d):
    """Padded so that the output has ⌈input / stride⌉ rows and columns."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, *, groups: int = 1
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        (top, bottom), (left, right) = (self._padding(axis, x.shape[2 + axis]) for axis in (0, 1))
        if top or bottom or left or right:
            x = F.pad(x, (left, right, top, bottom))
        return super().forward(x)

    def _padding(self, axis: int, size: int) -> tuple[int, int]:
        kernel, stride = self.kernel_size[axis], self.stride[axis]
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        return total // 2, total - total // 2


def _eights(channels: float) -> int:
    """The nearest multiple of 8; the one above where that loses more than a tenth."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)

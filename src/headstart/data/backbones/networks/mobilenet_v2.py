"""MobileNetV2: inverted residuals with linear bottlenecks (Sandler et al. 2018, table 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# expansion t, channels c, repeats n, stride s of the first
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def build() -> MobileNetV2:
    """Return the torch module with random weights."""
    return MobileNetV2()


class MobileNetV2(nn.Module):
    """MobileNetV2, with the module names of its published weights."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(3, 32, kernel=3, stride=2)]
        width = 32
        for expansion, channels, repeats, first in _STAGES:
            for repeat in range(repeats):
                layers.append(Bottleneck(width, channels, expansion, 1 if repeat else first))
                width = channels
        layers.append(_conv(width, 1280))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        pooled = F.adaptive_avg_pool2d(self.features(x), 1).flatten(1)
        return F.relu6(pooled)  # a mean of 6s may round to above 6

    def stages(self, x: Tensor) -> list[Tensor]:
        """The output of each stage, from stride 2 to 32."""
        ends = [
            sum(repeats for _, _, repeats, _ in _STAGES[: at + 1]) for at in range(len(_STAGES))
        ]
        found = []
        for at, layer in enumerate(self.features[: ends[-1] + 1]):
            x = layer(x)
            if at in ends:
                found.append(x)
        return found

    def logits(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self(x))
        return scores


class Bottleneck(nn.Module):
    """Expand, filter each channel, project without a non-linearity; add the input if it fits."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers: list[nn.Module] = [_conv(inputs, hidden)] if expansion > 1 else []
        layers.append(_conv(hidden, hidden, kernel=3, stride=stride, groups=hidden))
        layers += [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.conv = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return torch.add(x, y) if self.adds else y


def _conv(
    inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    )

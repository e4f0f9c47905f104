"""The torch modules that can be trained, by name: the published ones, and our own for 32 pixels.

    small_cnn     three convolutions with group norm, d = 128, for quick runs
    vgg11         VGG11 (Simonyan and Zisserman 2014), its convolutions, d = 512
    mobilenet     MobileNet v1 (Howard et al. 2017), d = 1024
    resnet18_32   ResNet-18 (He et al. 2016), d = 512

At 32 pixels, as is usual there: no pooling and no stride at the entrance. They begin at random.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headstart.data.backbones.catalogue import NETWORKS
from headstart.data.backbones.networks.resnet18 import Block
from headstart.gradient.job import dimension_of
from headstart.memory import keep_freed


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


class MobileNet(nn.Module):
    """A convolution, then thirteen pairs: each channel by itself, then all, point by point."""

    blocks = (  # channels, stride
        *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
        *((512, 1),) * 5,
        *((1024, 2), (1024, 1)),
    )

    def __init__(self) -> None:
        super().__init__()
        layers, width = [_conv(3, 32, 3)], 32
        for channels, stride in self.blocks:
            layers += [_conv(width, width, 3, stride, groups=width), _conv(width, channels, 1)]
            width = channels
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1)


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


class ResNet18At32(nn.Module):
    """Four stages of two residual blocks behind a 3×3 convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 64, 3)
        widths = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
        pairs = [(Block(a, b, stride), Block(b, b, 1)) for a, b, stride in widths]
        self.stages = nn.Sequential(*(block for pair in pairs for block in pair))

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(self.stages(self.stem(x)), 1).flatten(1)


OWN: dict[str, type[SmallCNN | VGG11 | MobileNet | ResNet18At32]] = {
    "small_cnn": SmallCNN,
    "vgg11": VGG11,
    "mobilenet": MobileNet,
    "resnet18_32": ResNet18At32,
}
_CLASSIFIERS = ("classifier", "_fc", "fc", "heads")  # of the published task: no part of φ


def module_of(name: str) -> nn.Module:
    """An extractor, its random weights those of one seed."""
    dimension_of(name)
    keep_freed()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if name in OWN:
            return OWN[name]()
        built: nn.Module = NETWORKS[name].build()
        for own in _CLASSIFIERS:
            if hasattr(built, own):
                setattr(built, own, nn.Identity())
        return built


def scaling(name: str) -> tuple[Tensor, Tensor]:
    """Mean and deviation a channel of x/255, as the network was trained with them."""
    known = NETWORKS.get(name)
    mean, std = (known.preprocess.mean, known.preprocess.std) if known else ((0.0,), (1.0,))
    return torch.tensor(mean).view(1, -1, 1, 1), torch.tensor(std).view(1, -1, 1, 1)

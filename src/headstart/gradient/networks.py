"""The torch modules that can be trained, by name: the published ones, and a small one."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headstart.data.backbones.catalogue import NETWORKS
from headstart.errors import HeadstartError


class SmallCNN(nn.Module):
    """Three convolutions with group norm (no running statistics), d = 128: for quick runs."""

    dimension = 128

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 128)
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.GroupNorm(8, b) for b in widths[1:])

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.max_pool2d(F.relu(norm(conv(x))), 2)
        return F.adaptive_avg_pool2d(x, 1).flatten(1)


DIMENSIONS = {
    "small_cnn": SmallCNN.dimension,
    **{name: network.dimension for name, network in NETWORKS.items()},
}
_CLASSIFIERS = ("classifier", "_fc", "fc", "heads")  # of the published task: no part of φ


def module_of(name: str) -> nn.Module:
    """An extractor, its random weights those of one seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if name == "small_cnn":
            return SmallCNN()
        if name in NETWORKS:
            built: nn.Module = NETWORKS[name].build()
            for own in _CLASSIFIERS:
                if hasattr(built, own):
                    setattr(built, own, nn.Identity())
            return built
    raise HeadstartError(f"network: expected one of {', '.join(DIMENSIONS)}, got {name!r}")


def scaling(name: str) -> tuple[Tensor, Tensor]:
    """Mean and deviation a channel of x/255, as the network was trained with them."""
    known = NETWORKS.get(name)
    mean, std = (known.preprocess.mean, known.preprocess.std) if known else ((0.0,), (1.0,))
    return torch.tensor(mean).view(1, -1, 1, 1), torch.tensor(std).view(1, -1, 1, 1)

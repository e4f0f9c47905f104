"""The torch modules that can be trained, by name: published ones, and those from random weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headstart.data.backbones.catalogue import NETWORKS
from headstart.memory import keep_freed

_CLASSIFIERS = ("classifier", "_fc", "fc", "heads")  # of the published task: no part of φ


def module_of(name: str, classes: int | None = None) -> nn.Module:
    """An extractor, its random weights those of one seed.

    `classes`: of a dense network that is to have its auxiliary heads.
    """
    network = NETWORKS[name]
    keep_freed()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built: nn.Module = network.build(classes)
    for layer in _CLASSIFIERS if network.weights or network.stride else ():
        if hasattr(built, layer):
            setattr(built, layer, nn.Identity())
    return built


def scaling(name: str) -> tuple[Tensor, Tensor]:
    """Mean and deviation per channel of x/255, as the network was trained with them."""
    network = NETWORKS[name]
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    if network.weights or network.stride:
        mean, std = network.preprocess.mean, network.preprocess.std
    return torch.tensor(mean).view(1, -1, 1, 1), torch.tensor(std).view(1, -1, 1, 1)

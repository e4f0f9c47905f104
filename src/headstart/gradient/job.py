"""What is trained and how, in plain values; nothing here needs torch until a model is built."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from headstart import gradient
from headstart.data.backbones.catalogue import NETWORKS
from headstart.errors import HeadstartError
from headstart.gradient.checks import fraction, whole
from headstart.gradient.recipe import PARTS, Part, Recipe
from headstart.heads.base import choice, number
from headstart.heads.linear import LinearHead

if TYPE_CHECKING:
    from headstart.gradient.models import Model, Names

Policy = Literal["frozen", "average", "local"]
POLICIES: tuple[Policy, ...] = ("frozen", "average", "local")
DIMENSIONS = {  # of the features of each network that can be trained: ours (`networks`), published
    "small_cnn": 128,
    "vgg11": 512,
    "mobilenet": 1024,
    "resnet18_32": 512,
    **{name: network.dimension for name, network in NETWORKS.items()},
}


def dimension_of(network: str) -> int:
    """Of a network's features."""
    if network not in DIMENSIONS:
        raise HeadstartError(f"network: expected one of {', '.join(DIMENSIONS)}, got {network!r}")
    return DIMENSIONS[network]


@dataclass(frozen=True)
class Spec:
    """A model in plain values, as a step carries it.

    `network`: a name, or None for features; `batch_norm`: its running statistics stay as they are
    ("frozen"), are averaged with the model, or stay with each client ("local"). `dimension`: what
    the head takes, so that of random features where there are any.
    """

    classes: int
    dimension: int
    network: str | None = None
    temperature: float = 1.0
    batch_norm: Policy = "frozen"
    feature_map: tuple[int, float, int] | None = None  # of random features

    def __post_init__(self) -> None:
        whole("classes", self.classes)
        whole("dimension", self.dimension)
        number("temperature", self.temperature, strict=True)
        choice("batch_norm", self.batch_norm, POLICIES)
        mapped = self.feature_map[0] if self.feature_map else self.dimension
        if mapped != self.dimension:
            raise HeadstartError(
                f"dimension: expected the feature map's {mapped}, got {self.dimension}"
            )

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Spec:
        feature_map = values.get("feature_map")
        return cls(**{**values, "feature_map": tuple(feature_map) if feature_map else None})


@dataclass(frozen=True)
class Training:
    """How clients train: SGD, and how much of it."""

    rate: float = 0.1
    epochs: int = 1
    batch: int = 50
    decay: float = 4e-5
    momentum: float = 0.0

    def __post_init__(self) -> None:
        number("rate", self.rate, strict=True)
        if self.rate > 1e30:  # beyond what float32 holds
            raise HeadstartError(f"rate: expected a number up to 1e30, got {self.rate!r}")
        whole("epochs", self.epochs)
        whole("batch", self.batch)
        number("decay", self.decay)
        fraction("momentum", self.momentum)


DEFAULT = Training()


@dataclass(frozen=True)
class Job:
    """What is trained and how: the plain values every step of a training carries."""

    algorithm: str
    spec: Spec
    training: Training = DEFAULT
    train: Part = "head"
    settings: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        choice("train", self.train, PARTS)
        _ = self.recipe  # refuses what it does not know

    @functools.cached_property
    def plain(self) -> dict[str, Any]:
        return {**asdict(self), "spec": self.spec.plain(), "settings": dict(self.settings or {})}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Job:
        return cls(
            values["algorithm"],
            Spec.of(values["spec"]),
            Training(**values["training"]),
            values["train"],
            values["settings"],
        )

    @functools.cached_property
    def model(self) -> Model:
        from headstart.gradient.models import build  # torch begins here

        return build(self.spec)

    @functools.cached_property
    def recipe(self) -> Recipe:
        return gradient.make(self.algorithm, self.settings)

    @functools.cached_property
    def names(self) -> Names:
        return self.model.split(self.train, self.recipe.personal)


def head_params(spec: Spec, head: LinearHead) -> dict[str, NDArray[np.float32]]:
    """A closed-form head as the parameters that training begins with."""
    wanted = (spec.classes, spec.dimension)
    if head.weights.shape != wanted:
        raise HeadstartError(
            f"head: expected classes × dimension {wanted}, got {head.weights.shape}"
        )
    return {
        "head.weight": head.weights.astype(np.float32),
        "head.bias": head.bias.astype(np.float32),
    }

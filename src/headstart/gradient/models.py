"""The model that trains: an extractor (or features that are there already) and a linear head.

logits = (φ(x)·Wᵀ + b)/T, or of random features of φ(x), through which gradients flow; their ω and β
come from a seed and never move. Parameters are named arrays: `head.weight`, `head.bias`, and the
extractor's own names under `extractor.`. On a client each has a leading axis, the clients trained
together: features take any number of clients, an extractor one at a time.

A dense network gives features per cell: b images are b·h·w samples to the head, in the order of
images, rows and columns. Labels are then masks, b×H×W; scores are enlarged to them in the loss.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.data.backbones.catalogue import NETWORKS, Network
from headstart.errors import DataError, HeadstartError
from headstart.gradient.checks import share, whole
from headstart.gradient.losses import OF_CELLS, Cells, Outputs
from headstart.gradient.networks import module_of, scaling
from headstart.gradient.objectives import LOSSES, beside_of, references_of
from headstart.gradient.product import Product
from headstart.gradient.recipe import Local, Objective, Part
from headstart.heads.base import choice, number
from headstart.heads.features import RandomFeatures
from headstart.heads.linear import LinearHead

with warnings.catch_warnings():  # said once per process: features of a cache are read-only, and so
    warnings.simplefilter("ignore")  # torch warns of writing to them, which nobody does
    torch.from_numpy(np.frombuffer(b"0", np.uint8))

Arrays = dict[str, NDArray[np.float32]]
Policy = Literal["frozen", "average", "local"]
POLICIES: tuple[Policy, ...] = ("frozen", "average", "local")


@dataclass(frozen=True)
class Spec:
    """A model in plain values, as a step carries it.

    `network`: a name, or None for features; `batch_norm`: its running statistics stay as they are
    ("frozen"), are averaged with the model, or stay with each client ("local"). `dimension`: what
    the head takes, so that of random features where there are any. `hardest`: of a dense network,
    the share of each image's pixels that its loss is the mean of; None: all that are labelled.
    """

    classes: int
    dimension: int
    network: str | None = None
    temperature: float = 1.0
    batch_norm: Policy = "frozen"
    feature_map: tuple[int, float, int] | None = None  # of random features
    hardest: float | None = None

    def __post_init__(self) -> None:
        whole("classes", self.classes)
        whole("dimension", self.dimension)
        number("temperature", self.temperature, strict=True)
        choice("batch_norm", self.batch_norm, POLICIES)
        if self.hardest is not None:
            share("hardest", self.hardest)
        mapped = self.feature_map[0] if self.feature_map else self.dimension
        if mapped != self.dimension:
            raise HeadstartError(
                f"dimension: expected the feature map's {mapped}, got {self.dimension}"
            )

    def plain(self) -> dict[str, Any]:
        """Without what is as usual, so that a message says no more than it did."""
        return {name: value for name, value in asdict(self).items() if name != "hardest" or value}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Spec:
        feature_map = values.get("feature_map")
        return cls(**{**values, "feature_map": tuple(feature_map) if feature_map else None})


def build(spec: Spec) -> Model:
    """The model of a specification, kept for as long as its network has this definition."""
    return _built(spec, NETWORKS[spec.network] if spec.network else None)


@functools.lru_cache(maxsize=8)
def _built(spec: Spec, network: Network | None) -> Model:
    return Model(spec)


def mapped(map_: RandomFeatures, features: Tensor) -> Tensor:
    """√(2/D)·cos(zω + β), in float64 as there: zω may be large, and a cosine forgets nothing."""
    omega, beta = _frequencies(map_, features.shape[-1])
    turned = torch.cos(features.double() @ omega + beta)
    return (turned * math.sqrt(2 / map_.dimension)).float()


@functools.lru_cache(maxsize=2)
def _frequencies(map_: RandomFeatures, d: int) -> tuple[Tensor, Tensor]:
    omega, beta = map_.frequencies(d)
    return torch.from_numpy(omega), torch.from_numpy(beta)


class Model:
    """Forward and backward of a specification; it holds no parameters."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.stride = NETWORKS[spec.network].stride if spec.network else None
        if spec.hardest is not None and self.stride is None:
            raise HeadstartError(f"hardest: expected a dense network, got {spec.network}")
        heads = spec.classes if self.stride else None  # auxiliary ones are of these classes
        self.module = module_of(spec.network, heads) if spec.network else None
        self.scaling = scaling(spec.network) if spec.network else None
        self.map = RandomFeatures(*spec.feature_map) if spec.feature_map else None
        self.extracted_dimension = (
            NETWORKS[spec.network].dimension if spec.network else spec.dimension
        )
        if self.map is None and self.extracted_dimension != spec.dimension:
            raise HeadstartError(
                f"dimension: expected {self.extracted_dimension} for {spec.network}, "
                f"got {spec.dimension}"
            )
        parameters = dict(self.module.named_parameters()) if self.module else {}
        kept = dict(self.module.named_buffers()) if self.module else {}
        self.shapes: dict[str, tuple[int, ...]] = {
            f"extractor.{name}": tuple(tensor.shape) for name, tensor in parameters.items()
        }
        self.statistics = {
            f"extractor.{name}": tuple(tensor.shape)
            for name, tensor in kept.items()
            if tensor.is_floating_point()  # a counter of batches changes nothing here
        }
        self.shapes |= self.statistics
        self.shapes |= {
            "head.weight": (spec.classes, spec.dimension),
            "head.bias": (spec.classes,),
        }

    @functools.cached_property
    def draws(self) -> bool:
        """Whether training draws numbers of its own: the network has dropout."""
        return self.module is not None and any(
            isinstance(part, torch.nn.Dropout) for part in self.module.modules()
        )

    @property
    def together(self) -> bool:
        """Whether clients can be trained together."""
        return self.module is None

    # -- which parameters are which ------------------------------------------------------------

    def part(self, which: Part | None) -> tuple[str, ...]:
        """The names of a part; statistics of batch norm go with the extractor."""
        if which is None:
            return ()
        wanted = {"model": "", "extractor": "extractor.", "head": "head."}[which]
        return tuple(name for name in self.shapes if name.startswith(wanted))

    def split(self, train: Part, personal: Part | None) -> Names:
        """What is shared, what stays with a client, and what does not move at all."""
        moves = [name for name in self.part(train) if name not in self.statistics]
        mine = set(self.part(personal))
        if self.spec.batch_norm != "frozen" and train != "head":
            moves += self.statistics
            mine |= set(self.statistics) if self.spec.batch_norm == "local" else set()
        if not moves:
            raise HeadstartError(f"train: this model has no {train}; train the head")
        if personal != "model" and mine.issuperset(moves):
            raise HeadstartError(
                f"personal: expected a part of what trains ({train}), got all of it ({personal}); "
                "where nothing is shared, that is local-only"
            )
        return Names(
            shared=tuple(name for name in moves if name not in mine),
            personal=tuple(name for name in moves if name in mine),
            frozen=tuple(name for name in self.shapes if name not in moves),
            learned=frozenset(moves) - set(self.statistics),
        )

    # -- from samples to logits ----------------------------------------------------------------

    def inputs(self, samples: NDArray[Any]) -> Tensor:
        """What a client holds, as the model takes it."""
        if self.module is None:
            samples = self.map(samples) if self.map else samples
            if samples.shape[1:] != (self.spec.dimension,):
                wanted = f"n×{self.spec.dimension}"
                raise DataError(f"features: expected {wanted}, got shape {samples.shape}")
        elif samples.dtype == np.uint8:  # other numbers are a network's input already
            if samples.ndim != 4 or samples.shape[1] != 3:
                raise DataError(f"images: expected n×3×h×w bytes, got shape {samples.shape}")
            return torch.from_numpy(np.ascontiguousarray(samples))
        return torch.from_numpy(np.ascontiguousarray(samples, np.float32))

    def features(self, params: Mapping[str, Tensor], x: Tensor, training: bool = False) -> Tensor:
        """What the head takes, k×b×d: φ(x), or random features of it."""
        features = self.extracted(params, x, training)
        return features if self.module is None or self.map is None else mapped(self.map, features)

    def extracted(self, params: Mapping[str, Tensor], x: Tensor, training: bool = False) -> Tensor:
        """φ(x), k×b×d; a batch of one has no statistics of its own, it takes the running ones.

        Of a dense network, k×(b·h·w)×d.
        """
        if self.module is None or self.scaling is None:
            return x
        if self.stride is not None:
            return _rows(self._called(params, x, training))
        features: Tensor = self._called(params, x, training)
        if features.shape != (x.shape[1], self.extracted_dimension):
            raise HeadstartError(
                f"network: expected {self.spec.network} to give {self.extracted_dimension} "
                f"features per sample, got an array of {tuple(features.shape)} for {x.shape[1]}"
            )
        return features[None]

    def _called(self, params: Mapping[str, Tensor], x: Tensor, training: bool, **how: Any) -> Any:
        """The network on the images of one client, in the mode that its batch norm wants."""
        assert self.module is not None
        self.module.train(training and self.spec.batch_norm != "frozen" and x.shape[1] > 1)
        return self.call(params, x[0], **how)

    def call(self, params: Mapping[str, Tensor], images: Tensor, **how: Any) -> Any:
        """The network on images, in the mode that it is in; bytes are normalized as it wants."""
        assert self.module is not None
        assert self.scaling is not None
        tensors = {
            name.removeprefix("extractor."): params[name][0]
            for name in self.shapes
            if name.startswith("extractor.")
        }
        mean, std = self.scaling
        if images.dtype == torch.uint8:
            images = (images.float().div_(255) - mean) / std
        return torch.func.functional_call(self.module, tensors, (images,), how)

    def cells(
        self, params: Mapping[str, Tensor], x: Tensor, training: bool = False
    ) -> tuple[Tensor, tuple[int, int], tuple[Tensor, ...]]:
        """φ(x) of a dense network, k×(b·h·w)×d; h and w; in training also the auxiliary scores."""
        helped = training and bool(len(getattr(self.module, "auxiliary", ())))
        made = self._called(params, x, training, **({"auxiliary": True} if helped else {}))
        cells, auxiliary = made if helped else (made, ())
        features = _rows(cells)
        if self.map is not None:
            features = mapped(self.map, features)
        return features, (cells.shape[2], cells.shape[3]), tuple(auxiliary)

    def logits(self, params: Mapping[str, Tensor], features: Tensor) -> Tensor:
        weight, bias = params["head.weight"], params["head.bias"]
        # One client's parameters serve all (an axis of 1), or each has its own.
        rows = weight if len(weight) == len(features) else weight.expand(len(features), -1, -1)
        scores = torch.bmm(features, rows.mT).add_(bias.unsqueeze(1))
        return scores if self.spec.temperature == 1 else scores / self.spec.temperature

    def seen(self, params: Mapping[str, Tensor], batch: Batch, training: bool = False) -> Outputs:
        """A batch through the model, as losses look at it."""
        if self.stride is not None:
            return self._seen_cells(params, batch, training)
        features = self.features(params, batch.x, training)
        scores = self.logits(params, features)
        rows = params["head.weight"]
        return Outputs(features, scores, rows, batch.y, batch.weights, batch.counts, batch.mask)

    def _seen_cells(self, params: Mapping[str, Tensor], batch: Batch, training: bool) -> Outputs:
        if batch.y.ndim != 4:
            raise HeadstartError(
                f"network: {self.spec.network} gives features per cell; "
                "expected images with masks, got a label per image"
            )
        features, grid, auxiliary = self.cells(params, batch.x, training)
        return Outputs(
            features,
            self.logits(params, features),
            params["head.weight"],
            batch.y,
            batch.weights,
            batch.counts,
            batch.mask,
            cells=Cells(grid, auxiliary, self.spec.hardest),
        )

    def value(
        self,
        objective: Objective,
        params: Mapping[str, Tensor],
        batch: Batch,
        local: Local | None = None,
        training: bool = False,
    ) -> Tensor:
        """Of an objective on a batch, summed over clients; `local` knows its terms' models."""
        self.check_pixels(objective)
        seen = self.seen(params, batch, training)
        others = references_of(objective)
        if others and local:
            with torch.no_grad():
                received = {**params, **local.received}
                last = {**received, **local.memory.get("last", {})}
                models = [
                    self._beside(reference, batch, training)
                    for reference in (received, last)[:others]
                ]
            seen = replace(seen, through_received=models[0], last=models[-1])
        wanted = beside_of(objective)
        if wanted and local:
            seen = replace(seen, beside=self._told(wanted, params, batch, local))
        parts = [term.weight * LOSSES[term.name].value(seen, term) for term in objective]
        return torch.stack(parts).sum()

    def check_pixels(self, objective: Objective) -> None:
        """Losses that look at a label per sample do not know masks."""
        wrong = [term.name for term in objective if self.stride and term.name not in OF_CELLS]
        if wrong:
            raise HeadstartError(
                f"{wrong[0]}: expected one of {', '.join(OF_CELLS)} for {self.spec.network}, "
                f"whose labels are masks"
            )

    def _beside(self, params: Mapping[str, Tensor], batch: Batch, training: bool) -> Outputs:
        """Another model on the same batch, normalized the same way; its statistics stay."""
        kept = {name: params[name].clone() for name in self.statistics}
        return self.seen({**params, **kept}, batch, training)

    def _told(
        self, wanted: frozenset[str], params: Mapping[str, Tensor], batch: Batch, local: Local
    ) -> dict[str, Outputs]:
        """The batch through models that the server sent, with their own running statistics."""
        trees = {"teacher": local.received, **local.server}
        with torch.no_grad():
            return {
                name: self.seen({**params, **tree}, batch)
                for name, tree in trees.items()
                if name in wanted
            }

    def gradient(
        self,
        objective: Objective,
        params: Mapping[str, Tensor],
        moving: Iterable[str],
        batch: Batch,
        local: Local | None = None,
    ) -> dict[str, Tensor | Product]:
        """∂objective/∂params for the names that move; each client's own. Of a head alone it is
        the product it comes from.

        Where an extractor moves, batch norm updates its running statistics in `params` (unless
        they are frozen).
        """
        moving, first = tuple(moving), LOSSES[objective[0].name]
        deep = not all(name.startswith("head.") for name in moving)
        if first.slope and len(objective) == 1 and not deep and self.stride is None:
            with torch.no_grad():
                features = self.features(params, batch.x)
                logits = batch.masked(self.logits(params, features))
                slope = first.slope(logits, batch.y, batch.weights)
                if self.spec.temperature != 1:
                    slope /= self.spec.temperature
                by, bias = objective[0].weight, slope.sum(dim=1)
                rows, bias = Product(slope, features, by), bias if by == 1 else by * bias
                return {name: rows if name == "head.weight" else bias for name in moving}
        leaves = {name: params[name].detach().requires_grad_() for name in moving}
        with torch.enable_grad():
            value = self.value(objective, {**params, **leaves}, batch, local, deep)
            if not value.requires_grad:  # nothing that moves takes part
                return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
            slopes = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
        return dict(zip(moving, slopes, strict=True))


def _rows(cells: Tensor) -> Tensor:
    """b×d×h×w as 1×(b·h·w)×d."""
    return cells.permute(0, 2, 3, 1).flatten(0, 2)[None]


@dataclass(frozen=True)
class Names:
    """The parameters of a model by who holds them; `learned` are those that gradients move."""

    shared: tuple[str, ...]
    personal: tuple[str, ...]
    frozen: tuple[str, ...]
    learned: frozenset[str]

    @property
    def moving(self) -> tuple[str, ...]:
        return (*self.shared, *self.personal)

    @functools.cached_property
    def steered(self) -> tuple[str, ...]:
        """What is shared and learned: what the server's step and a client's corrections are about.

        The other shared ones are running statistics, which are averaged and nothing else. They
        come last.
        """
        return tuple(name for name in self.shared if name in self.learned)


@dataclass(frozen=True)
class Batch:
    """The same step of several clients: samples k×b×…, labels and weights k×b (0 for padding)."""

    x: Tensor
    y: Tensor
    weights: Tensor
    mask: Tensor | float = 0.0  # k×1×C, −∞ for classes that cannot be predicted (OLL)
    counts: Tensor | None = None  # k×C, of each client's samples

    def masked(self, logits: Tensor) -> Tensor:
        return logits + self.mask if isinstance(self.mask, Tensor) else logits

    def half(self, which: int | None) -> Batch:
        """Every other sample (all of them for a client that has too few)."""
        if which is None:
            return self
        if len(self.x) == 1:  # taken out, so that batch norm does not see the others
            x, y, weights = (part[:, which::2] for part in (self.x, self.y, self.weights))
            size = weights.sum()
            return replace(self, x=x, y=y, weights=weights / size) if size > 0 else self
        taken = self.weights.clone()
        taken[:, 1 - which :: 2] = 0
        size = taken.sum(dim=1, keepdim=True)
        taken = torch.where(size > 0, taken / size.clamp_min(1e-30), self.weights)
        return replace(self, weights=taken)


# -- parameters as arrays --------------------------------------------------------------------------


def initial(model: Model, head: LinearHead | None, seed: int) -> Arrays:
    """Parameters to begin with: a head's own rows, or small random ones."""
    rng = np.random.default_rng([seed, 0x48EAD])
    params: Arrays = {}
    if model.module is not None:
        state = model.module.state_dict()
        params = {
            name: state[name.removeprefix("extractor.")].numpy().astype(np.float32)
            for name in model.shapes
            if name.startswith("extractor.")
        }
    if head is None:
        reach = 1 / np.sqrt(model.spec.dimension)
        weight = rng.uniform(-reach, reach, model.shapes["head.weight"])
        bias = rng.uniform(-reach, reach, model.shapes["head.bias"])
    else:
        weight, bias = head.weights, head.bias
        if weight.shape != model.shapes["head.weight"]:
            wanted = model.shapes["head.weight"]
            raise HeadstartError(f"head: expected classes × dimension {wanted}, got {weight.shape}")
    params["head.weight"] = weight.astype(np.float32)
    params["head.bias"] = bias.astype(np.float32)
    return params


def flat(params: Mapping[str, Any], names: Iterable[str]) -> NDArray[np.float32]:
    """Named arrays as one vector."""
    parts = [np.asarray(params[name], np.float32).ravel() for name in names]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def shaped(
    vector: NDArray[Any], names: Iterable[str], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[Any]]:
    """The inverse of `flat`."""
    sizes = {name: math.prod(shapes[name]) for name in names}
    if len(vector) != sum(sizes.values()):
        raise HeadstartError(
            f"parameters: expected {sum(sizes.values())} numbers, got {len(vector)}"
        )
    result, at = {}, 0
    for name, size in sizes.items():
        result[name] = vector[at : at + size].reshape(shapes[name])
        at += size
    return result

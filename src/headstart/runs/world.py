"""What the phases of a sentence act on: the federation, the story so far, and the model."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.backbones.catalogue import NETWORKS
from headstart.data.backbones.need import need
from headstart.data.backbones.weights import load_into
from headstart.files import write_bytes
from headstart.gradient.follow import features_of
from headstart.gradient.home import predicted
from headstart.gradient.models import Spec, build
from headstart.gradient.networks import dimension_of
from headstart.gradient.steps import Job, tensors
from headstart.heads.leverage import Leverage
from headstart.heads.linear import LinearHead
from headstart.results import Epoch, PersonalScores, Point
from headstart.runs.checkpoint import Checkpoint
from headstart.runs.federate import Prepared, lattice_bound
from headstart.runs.inputs import Progress, silent
from headstart.runs.meter import Meter

Params = dict[str, NDArray[Any]]
DIAGNOSED = 500  # test samples that every client of a round looks at


def unwatched(point: Point) -> None:
    """Nobody writes metrics elsewhere."""


@dataclass(frozen=True, eq=False)
class Stage:
    """The model between two phases, and what is known of it."""

    spec: Spec
    params: Params
    method: Any = None  # that solved the initial head; None: a random one
    head: LinearHead | None = None
    leverage: Leverage = field(default_factory=Leverage)
    job: Job | None = None  # of the last partial personalization, whose memories clients hold
    oll: bool = False
    closed: str | None = None  # the closed-form personalization, if one was said
    last: Job | None = None  # of the last training, whose objective clients go on with at home

    def save(self, path: Path, images: Mapping[str, Any] | None = None) -> None:
        """All parameters by name, and what they are, as safetensors.

        `images`: what was done to the colours of those it was trained on.
        """
        told = {**self.spec.plain(), **({"images": images} if images else {})}
        about = {"headstart": json.dumps(told)}  # one entry: the library has no order of its own
        arrays = {name: np.ascontiguousarray(array) for name, array in self.params.items()}
        write_bytes(path, need("safetensors.numpy").save(arrays, metadata=about))

    @property
    def blind(self) -> bool:
        """Whether the head began without having seen a feature."""
        return getattr(self.method, "blind", False)

    @property
    def plain(self) -> Job:
        """The model as it is, for work that trains nothing."""
        return Job("fedavg", self.spec)


@dataclass(eq=False)
class World:
    prepared: Prepared
    progress: Progress = silent
    checkpoint: Checkpoint | None = None
    watch: Callable[[Point], None] = unwatched
    curve: list[Point] = field(default_factory=list)
    personal: PersonalScores | None = None
    epochs: tuple[Epoch, ...] = ()
    domains: dict[str, float] | None = None  # the last accuracy, by the domain of test images
    meter: Meter = field(default_factory=Meter)
    _predicted: tuple[Params, NDArray[Any]] | None = None  # of the last model that was tested

    @functools.cached_property
    def counts(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The classes that clients train on, and how many samples of each there are."""
        labels = [client.labels for client in self.prepared.simulator.data.values()]
        return np.unique(np.concatenate(labels), return_counts=True)

    @property
    def classes(self) -> NDArray[Any]:
        return self.counts[0]

    def spec(self, head: LinearHead | None) -> Spec:
        """The model: a head's own temperature and feature map, or a plain softmax."""
        config = self.prepared.config
        mapped = head.feature_map if head else None
        own = dimension_of(config.network) if config.network else self.prepared.train.dimension
        return Spec(
            len(self.classes),
            head.dimension if head else own,
            network=config.network,
            temperature=(head.temperature if head else None) or 1.0,
            batch_norm=config.batch_norm,
            feature_map=(mapped.dimension, mapped.bandwidth, mapped.seed) if mapped else None,
        )

    def features(self, params: Params) -> Prepared:
        """The federation as closed forms see it: each client's samples through the extractor."""
        prepared = self.prepared
        if not prepared.config.network:
            return prepared
        model = build(self.spec(None))
        clients = {}
        for done, (name, client) in enumerate(prepared.simulator.data.items(), 1):
            own = client.test_features
            clients[name] = replace(
                client,
                features=features_of(model, params, client.features),
                test_features=None if own is None else features_of(model, params, own),
            )
            self.progress("features", done, len(prepared.simulator.clients))
        test = replace(prepared.test, features=features_of(model, params, prepared.test.features))
        return replace(
            prepared,
            test=test,
            config=prepared.config.model_copy(
                update={"bound": lattice_bound(prepared.config, test, 2.0**10)}
            ),
            simulator=replace(prepared.simulator, data=clients),
        )

    def accuracy(self, stage: Stage) -> float | None:
        """Of the shared model, on the outside test set, if there is one."""
        guess = self.predictions(stage)
        if guess is None:
            return None
        right = guess == self.prepared.test.labels
        self.domains = self.prepared.colours.by_domain(right)
        return float(right.mean())

    def predictions(self, stage: Stage) -> NDArray[Any] | None:
        """Of the shared model on the outside test set; None without one."""
        test = self.prepared.test
        if not len(test):
            return None
        if self._predicted is None or self._predicted[0] is not stage.params:
            at = predicted(stage.plain, tensors(stage.params), test.features)
            self._predicted = stage.params, self.classes[at]
        return self._predicted[1]

    @functools.cached_property
    def outside(self) -> dict[str, NDArray[Any]]:
        """Some test samples of known classes, for diagnostics."""
        test = self.prepared.test
        known = np.flatnonzero(np.isin(test.labels, self.classes))
        rng = np.random.default_rng([self.prepared.config.seed, 0xD1A6])
        some = np.sort(rng.permutation(known)[:DIAGNOSED])
        return {"outside/features": test.features[some], "outside/labels": test.labels[some]}

    def point(
        self,
        phase: int,
        round_: int,
        accuracy: float | None,
        more: Mapping[str, float] | None = None,
    ) -> None:
        """One more point of the curve; `more`: what else is known of its round."""
        up = sum(self.prepared.simulator.sent.values())
        costs = self.meter.costs(up, len(self.prepared.simulator.clients))
        diagnosis = dict(more) if more else None
        self.curve.append(Point(phase, round_, accuracy, **costs, diagnosis=diagnosis))
        self.watch(self.curve[-1])

    def story(self) -> dict[str, Any]:
        curve = [asdict(point) for point in self.curve]
        return {"curve": curve, "meter": asdict(self.meter), "domains": self.domains}

    def retold(self, story: Mapping[str, Any]) -> None:
        self.curve[:] = [Point(**point) for point in story["curve"]]
        self.meter = Meter(**story["meter"])
        self.domains = story.get("domains")


def published(network: str, weights: str | None) -> Params:
    """The published weights of a network, as parameters; none for one that has none."""
    if network not in NETWORKS:
        return {}
    module = NETWORKS[network].build()
    load_into(module, NETWORKS[network].weights.find(weights))
    shapes = build(Spec(1, dimension_of(network), network=network)).part("extractor")
    state = module.state_dict()
    return {
        name: state[name.removeprefix("extractor.")].numpy().astype(np.float32) for name in shapes
    }

"""What the phases of a sentence act on: the federation, the story so far, and the model."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.files import write_bytes
from headstart.gradient.job import Job, Spec, dimension_of
from headstart.heads.leverage import Leverage
from headstart.heads.linear import LinearHead
from headstart.runs.checkpoint import Checkpoint
from headstart.runs.federate import Prepared
from headstart.runs.inputs import Progress, silent
from headstart.runs.meter import Meter
from headstart.statistics import wire

Params = dict[str, NDArray[Any]]
Point = Mapping[str, Any]
DIAGNOSED = 500  # test samples that every client of a round looks at


@contextmanager
def uncounted(prepared: Prepared) -> Iterator[None]:
    """Tests of a simulation: what they send is no part of a method's bytes."""
    sent = dict(prepared.simulator.sent)
    yield
    prepared.simulator.sent.clear()
    prepared.simulator.sent.update(sent)


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
        """All parameters by name, and what they are (`about`, JSON), as safetensors.

        `images`: what was done to the colours of those it was trained on.
        """
        told = {**self.spec.plain(), **({"images": images} if images else {})}
        about = np.frombuffer(json.dumps(told).encode(), np.uint8)
        write_bytes(path, wire.encode("model", {**self.params, "about": about}))

    @property
    def blind(self) -> bool:
        """Whether the head began without having seen a feature."""
        return getattr(self.method, "blind", False)

    @property
    def trained(self) -> bool:
        """Whether anything but a closed form has made it."""
        return self.head is None or self.job is not None or self.last is not None

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
    curve: list[dict[str, Any]] = field(default_factory=list)
    personal: dict[str, Any] | None = None
    epochs: list[dict[str, float]] | None = None
    domains: dict[str, float] | None = None  # the last accuracy, by the domain of test images
    meter: Meter = field(default_factory=Meter)

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
        if not self.prepared.config.network:
            return self.prepared
        from headstart.runs import network

        return network.through(self.prepared, self.spec(None), params, self.progress)

    def accuracy(self, stage: Stage) -> float | None:
        """Of the shared model, on the outside test set, if there is one."""
        test = self.prepared.test
        if not len(test):
            return None
        right = self.predicted(stage, test.features) == test.labels
        self.domains = self.prepared.colours.by_domain(right)
        return float(right.mean())

    def predicted(self, stage: Stage, samples: NDArray[Any]) -> NDArray[Any]:
        """The classes that the shared model gives samples, in the float32 it trains in."""
        if stage.spec.network is None:
            weights, bias = stage.params["head.weight"], stage.params["head.bias"]
            head = replace(self.linear_head(stage), weights=weights, bias=bias)
            return head.predict(samples)
        from headstart.runs import network

        return self.classes[network.positions(stage, samples)]

    def linear_head(self, stage: Stage) -> LinearHead:
        """The shared head as one that closed forms and files know."""
        classes, counts = self.counts
        names = ("head.weight", "head.bias")
        weights, bias = (stage.params[name].astype(np.float64) for name in names)
        if stage.head is not None and not stage.blind:
            return replace(stage.head, weights=weights, bias=bias)
        # Cross-entropy alone leaves the global class frequencies in the scores.
        about = dict(stage.head.provenance) if stage.head else {}
        prior, temperature = counts / counts.sum(), stage.spec.temperature
        return LinearHead(weights, bias, classes, None, prior, temperature, about)

    def tested(self, rows: Mapping[str, tuple[float, float, float]]) -> None:
        """Keep each client's samples tested, and its hits before and after, as the last results."""
        columns = (list(map(float, column)) for column in zip(*rows.values(), strict=True))
        named = dict(zip(("tested", "before", "after"), columns, strict=True))
        self.personal = {"clients": list(rows), **named}

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
        known = {"phase": phase, "round": round_, "accuracy": accuracy, **costs}
        self.curve.append({**known, **(more or {})})
        self.watch(self.curve[-1])

    def story(self) -> dict[str, Any]:
        return {"curve": self.curve, "meter": asdict(self.meter), "domains": self.domains}

    def retold(self, story: Mapping[str, Any]) -> None:
        self.curve[:] = story["curve"]
        self.meter = Meter(**story["meter"])
        self.domains = story.get("domains")

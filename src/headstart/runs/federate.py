"""From a configuration to a federation: load, split, deal to clients."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headstart.data.datasets import Dataset
from headstart.data.heterogeneity import Heterogeneity, describe
from headstart.data.images import ImageSet
from headstart.data.partition import PARTITIONERS, Partition, matched, natural, personal_split
from headstart.data.shifted import shifted
from headstart.errors import DataError
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.runs.colours import Colours, fedrdn
from headstart.runs.config import RunConfig
from headstart.runs.inputs import (
    PIXELS,
    Change,
    Extraction,
    Input,
    Progress,
    holds_images,
    read,
    silent,
)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A federation ready to run: its clients, the outside test set, and what the split is like.

    In its `config` the bound of the lattice is a number. `colours`: what was done to images.
    `test_fraction`: of the data, for testing; None where they have a test part of their own.
    """

    config: RunConfig
    train: Dataset
    test: Dataset
    partition: Partition
    heterogeneity: Heterogeneity
    simulator: Simulator
    extractor: dict[str, Any] | None = None
    colours: Colours = field(default_factory=Colours)
    test_fraction: float | None = None
    blind: bool = False  # the samples are elsewhere: nothing here can be hashed

    def digest(self) -> str:
        """SHA-256 of every client's samples: what an interrupted run must find again."""
        return "" if self.blind else self._digest

    @functools.cached_property
    def _digest(self) -> str:
        state = hashlib.sha256()
        for name, client in self.simulator.data.items():
            state.update(repr((name, client.features.shape, client.labels.tolist())).encode())
            state.update(np.ascontiguousarray(client.features).data)
        return state.hexdigest()

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """All that the clients train on, in one place: the comparison a federation cannot make."""
        taken = np.concatenate(self.partition.indices)
        return self.train.features[taken], self.train.labels[taken]


def read_data(
    source: str,
    config: RunConfig,
    progress: Progress = silent,
    about: Mapping[str, Any] | None = None,
    change: Change | None = None,
) -> Input:
    """Features; images and sentences go through the configuration's extractor (or a head's)."""
    columns = {role: getattr(config, role) for role in ("label", "client", "domain", "split")}
    told = Extraction(
        f"{PIXELS}{config.pixels}" if config.network else config.extractor,
        config.weights,
        config.download,
        config.engine,
        config.skip_corrupt,
        config.text,
    )
    asked = (
        holds_images(source) or config.network or config.text or config.extractor or config.weights
    )
    how = told if asked else None
    return read(source, columns, how, progress, about=about, change=change)


@dataclass(frozen=True, eq=False)
class Dealt:
    """Who holds what: the outside test set, and each client's training and held-out part.

    It depends on labels, clients and domains alone, never on features.
    """

    data: Dataset  # whose `test` says what is outside
    train: Dataset
    test: Dataset
    kept: Partition
    held: Partition


def prepare(config: RunConfig, progress: Progress = silent) -> Prepared:
    change = None if config.shift is None else functools.partial(_shifted, config)
    found = read_data(config.data, config, progress, change=change)
    dealt = deal(config, found.data)
    train, test, kept = dealt.train, dealt.test, dealt.kept
    config = config.model_copy(update={"bound": lattice_bound(config, train, found.bound)})
    clients = _clients(train, kept, dealt.held)
    if config.matched:
        clients = _matched(clients, dealt, config.seed)
    simulator = Simulator(clients, config.seed, config.precision)
    colours = Colours()
    if config.shift is not None:
        colours = Colours.shifted(config.shift, kept.names, len(test), config.seed)
    if config.augment == "fedrdn":
        simulator, test, colours = fedrdn(simulator, test, found.extractor or {}, colours)
    return Prepared(
        config,
        train,
        test,
        kept,
        describe(kept, train.labels),
        simulator,
        found.extractor,
        colours,
        config.test_fraction if found.data.test is None else None,
    )


def deal(config: RunConfig, data: Dataset) -> Dealt:
    """Split and partition."""
    if data.test is None:
        data = data.with_test(config.test_fraction, config.seed)
    train, test = data.train_part(), data.test_part()
    if not len(train) or not len(test):
        raise DataError(f"data: expected training and test samples, got {len(train)}, {len(test)}")
    whole = make_partition(config, train)
    minimum = max(config.minimum, 1)
    kept, held = personal_split(whole, train.labels, config.held_out, minimum, config.seed)
    if not len(kept):
        raise DataError(f"minimum: expected clients with {minimum} samples or more, got none")
    return Dealt(data, train, test, kept, held)


def _shifted(config: RunConfig, images: ImageSet) -> ImageSet:
    """Before their features are known: every client's images, and the test set's, shifted."""
    nothing = np.zeros((len(images), 1), np.float32)
    about = (images.labels, images.clients, images.domains, images.test)
    dealt = deal(config, Dataset(images.name, nothing, *about))
    delta = float(config.shift or 1)
    colours = Colours.shifted(delta, dealt.kept.names, len(dealt.test), config.seed)
    inside, outside = (np.flatnonzero(dealt.data.test == side) for side in (False, True))
    domains = np.full(len(images), "", "U8")
    domains[outside] = colours.test
    for (name, own), (_, rest) in zip(dealt.kept.items(), dealt.held.items(), strict=True):
        domains[inside[np.concatenate([own, rest])]] = colours.clients[name]
    return shifted(images, domains, delta)


def make_partition(config: RunConfig, train: Dataset) -> Partition:
    """The named partitioner on what it asks for; without one, the data's own clients."""
    if config.partition is None:
        if train.clients is None:
            raise DataError(
                f"partition: {train.name} does not say whose a sample is (no column "
                f"{config.client!r}); name a partitioner, such as dirichlet with clients and alpha"
            )
        return natural(train.clients)
    make = PARTITIONERS[config.partition.name]
    parameters = inspect.signature(make).parameters
    sources: dict[str, Any] = {
        "labels": train.labels,
        "n": len(train),
        "ids": train.clients,
        "domains": train.domains,
    }
    first = next(iter(parameters))
    if sources[first] is None:
        raise DataError(f"partition: {config.partition.name} needs {first}, which the data lack")
    settings = {"seed": config.seed, **config.partition.settings}
    needed = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and name not in (first, *settings)
    ]
    if needed:
        raise DataError(f"partition: {config.partition.name} needs {', '.join(needed)}")
    return make(sources[first], **settings)


def _clients(train: Dataset, kept: Partition, held: Partition) -> dict[str, ClientData]:
    return {
        name: ClientData(
            train.features[own],
            train.labels[own],
            train.features[rest],
            train.labels[rest],
        )
        for (name, own), (_, rest) in zip(kept.items(), held.items(), strict=True)
        if len(own)
    }


def _matched(clients: dict[str, ClientData], dealt: Dealt, seed: int) -> dict[str, ClientData]:
    """Each client tested on samples of the outside test set that are like its own."""
    test = dealt.test
    found = dict(
        zip(
            dealt.kept.names,
            matched(dealt.kept, dealt.train.labels, test.labels, seed),
            strict=True,
        )
    )
    return {
        name: replace(
            client,
            test_features=test.features[found[name]],
            test_labels=test.labels[found[name]],
        )
        for name, client in clients.items()
    }


def lattice_bound(config: RunConfig, train: Dataset, own: float | None) -> float:
    """The public bound; "auto" is the extractor's own, or the power of two the features stay in."""
    if config.bound != "auto":
        return float(config.bound)
    if own is not None:
        return own
    largest = float(np.abs(train.features).max(initial=0.0))
    return float(2.0 ** np.ceil(np.log2(largest))) if largest > 0 else 1.0

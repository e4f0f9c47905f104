"""From a configuration to a federation: load, split, deal to clients."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.data.datasets import Dataset
from headstart.data.heterogeneity import Heterogeneity, describe
from headstart.data.partition import PARTITIONERS, Partition, natural, personal_split
from headstart.errors import DataError
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.runs.config import RunConfig
from headstart.runs.inputs import PIXELS, Extraction, Input, Progress, holds_images, read, silent


@dataclass(frozen=True, eq=False)
class Prepared:
    """A federation ready to run: its clients, the outside test set, and what the split is like.

    In its `config` the bound of the lattice is a number.
    """

    config: RunConfig
    train: Dataset
    test: Dataset
    partition: Partition
    heterogeneity: Heterogeneity
    simulator: Simulator
    extractor: dict[str, Any] | None = None

    def digest(self) -> str:
        """SHA-256 of every client's samples: what an interrupted run must find again."""
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
    return read(source, columns, told if asked else None, progress, about=about)


def prepare(config: RunConfig, progress: Progress = silent) -> Prepared:
    found = read_data(config.data, config, progress)
    data = found.data
    if data.test is None:
        data = data.with_test(config.test_fraction, config.seed)
    train, test = data.train_part(), data.test_part()
    if not len(train) or not len(test):
        raise DataError(f"data: expected training and test samples, got {len(train)}, {len(test)}")
    config = config.model_copy(update={"bound": lattice_bound(config, train, found.bound)})
    whole = make_partition(config, train)
    minimum = max(config.minimum, 1)
    kept, held = personal_split(whole, train.labels, config.held_out, minimum, config.seed)
    if not len(kept):
        raise DataError(f"minimum: expected clients with {minimum} samples or more, got none")
    return Prepared(
        config,
        train,
        test,
        kept,
        describe(kept, train.labels),
        Simulator(_clients(train, kept, held), config.seed, config.precision),
        found.extractor,
    )


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


def lattice_bound(config: RunConfig, train: Dataset, own: float | None) -> float:
    """The public bound; "auto" is the extractor's own, or the power of two the features stay in."""
    if config.bound != "auto":
        return float(config.bound)
    if own is not None:
        return own
    largest = float(np.abs(train.features).max(initial=0.0))
    return float(2.0 ** np.ceil(np.log2(largest))) if largest > 0 else 1.0

"""A node's own samples: read where they lie; the features of images are cached on the node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headstart.data.datasets import DATASETS, Dataset
from headstart.data.partition import natural, personal_split
from headstart.deploy.flower.settings import NodeSettings
from headstart.errors import DataError
from headstart.federation.protocol import ClientData
from headstart.pipeline.inputs import Extraction, holds_images, read


@dataclass(frozen=True, eq=False)
class Samples:
    """What the client holds, without a secret or memories; and what made its features."""

    client: ClientData
    extractor: dict[str, Any] | None


def load_samples(node: NodeSettings) -> Samples:
    source = node.data if node.data in DATASETS else str(Path(node.data).expanduser())
    found = read(source, node.columns, _extraction(node, source))
    train, test = _parts(_of_client(found.data, node.client), node)
    tested = (None, None) if test is None else (test.features, test.labels)
    return Samples(ClientData(train.features, train.labels, *tested), _public(found.extractor))


def _public(extractor: dict[str, Any] | None) -> dict[str, Any] | None:
    """What made the features, without where a file of it lies on this node."""
    return None if extractor is None else {**extractor, "name": Path(extractor["name"]).name}


def _extraction(node: NodeSettings, source: str) -> Extraction | None:
    """None where samples are features as they are."""
    if not (node.text or node.extractor or node.weights or holds_images(source)):
        return None
    return Extraction(
        node.extractor or None,
        node.weights or None,
        engine=node.engine,
        skip_corrupt=node.skip_corrupt,
        text=node.text or None,
    )


def _of_client(data: Dataset, client: str) -> Dataset:
    """A table may hold other clients' samples too: they are not this node's to send."""
    if data.clients is None:
        return data
    own = data.clients == client
    if not own.any():
        raise DataError(f"{data.name}: expected samples of client {client!r}, got none")
    return data.subset(own)


def _parts(own: Dataset, node: NodeSettings) -> tuple[Dataset, Dataset | None]:
    """What the node trains on, and what it keeps to test with."""
    if own.test is not None:
        return own.train_part(), own.test_part()
    if not node.held_out:
        return own, None
    whole = natural(np.full(len(own), node.client))
    kept, held = personal_split(whole, own.labels, node.held_out, 1, node.seed)
    return own.subset(kept.indices[0]), own.subset(held.indices[0])

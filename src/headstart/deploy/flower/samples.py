"""A node's own samples: read where they lie, once, and kept in its private folder.

Flower answers every question in a process of its own, so what is kept is a file, good while
the settings and the files that it was made from are the same.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headstart import __version__
from headstart.data.cells import CellSamples, CellSet
from headstart.data.datasets import DATASETS, Dataset
from headstart.data.feature_cache import SETTLED
from headstart.data.partition import last_split, natural, personal_split
from headstart.data.samples import ArraySamples
from headstart.deploy.flower.budget import KINDS
from headstart.deploy.flower.settings import FLOORS, NodeSettings
from headstart.deploy.private import private_folder, write_private
from headstart.errors import DataError, HeadstartError
from headstart.federation.protocol import ClientData
from headstart.pipeline.inputs import Extraction, holds_images, read

_KEPT = ".kept-samples.npz"
_TRAIN, _TEST = ("features", "labels"), ("test_features", "test_labels")  # arrays of that file
_NOT_READ = {*FLOORS, "folder", "small", "train", *KINDS}  # settings that no sample depends on


@dataclass(frozen=True, eq=False)
class Samples:
    """What the client holds, without a secret or memories; and what made its features."""

    client: ClientData
    extractor: dict[str, Any] | None


def load_samples(node: NodeSettings) -> Samples:
    """Return what was kept, if nothing has changed since; else read the samples and keep them."""
    path = private_folder(Path(node.folder).expanduser()) / _KEPT
    stamps = list(_stamps(node))
    key = _key(node, stamps)
    found = _kept(path, key)
    if found is None:
        found = read_samples(node)
        # A file that changed a moment ago may change again within the clock's resolution.
        settled = time.time_ns() - max((max(times) for *_, times in stamps), default=0) >= SETTLED
        ours = all(place != str(path.absolute()) for place, *_ in stamps)
        ours &= not isinstance(found.client.samples, CellSamples)  # the extraction's cache has them
        if settled and ours and list(_stamps(node)) == stamps:
            _keep(path, key, found)
    return found


def read_samples(node: NodeSettings) -> Samples:
    """Read the samples where they lie; features of images come from the extraction's cache."""
    source = node.data if node.data in DATASETS else str(Path(node.data).expanduser())
    found = read(source, node.columns, _extraction(node, source))
    train, test = _parts(_of_client(found.data, node.client), node)
    client = ClientData(train.samples, None if test is None else test.samples)
    return Samples(client, _public(found.extractor))


# -- what is kept ----------------------------------------------------------------------------------

_Stamp = tuple[str, int, tuple[int, int]]  # path, size, times


def _stamps(node: NodeSettings) -> Iterator[_Stamp]:
    """What changes when one of the files does that the samples are made from."""
    for place in (node.data, node.extractor, node.weights):
        root = Path(place).expanduser()
        if place and root.is_file():
            yield _stamp(root)
        for folder, below, files in os.walk(root, followlinks=True) if place else ():
            below.sort()
            for name in sorted(files):
                with suppress(OSError):  # a link to nothing
                    yield _stamp(Path(folder, name))


def _stamp(path: Path) -> _Stamp:
    about = path.stat()
    return str(path.absolute()), about.st_size, (about.st_mtime_ns, about.st_ctime_ns)


def _key(node: NodeSettings, stamps: list[_Stamp]) -> str:
    """One name for these settings and these files."""
    told = {name: value for name, value in asdict(node).items() if name not in _NOT_READ}
    return hashlib.sha256(json.dumps([__version__, told, stamps]).encode()).hexdigest()


def _keep(path: Path, key: str, found: Samples) -> None:
    """An aid, no more: where it cannot be written, samples are read every time."""
    client, buffer = found.client, io.BytesIO()
    arrays: dict[str, Any] = dict(zip(_TRAIN, client.samples.read(), strict=True))
    if client.test is not None:
        arrays |= dict(zip(_TEST, client.test.read(), strict=True))
    about = json.dumps({"key": key, "extractor": found.extractor})
    np.savez(buffer, about=np.array(about), **arrays)
    with suppress(HeadstartError):
        path.unlink(missing_ok=True)
        write_private(path, buffer.getvalue())


def _kept(path: Path, key: str) -> Samples | None:
    """The samples of this key; None where there are none, others, or damaged ones."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as held:
            about = json.loads(str(held["about"]))
            if about["key"] != key:
                return None
            arrays = {name: held[name] for name in held.files if name != "about"}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    train, test = (
        ArraySamples(*(arrays[name] for name in names)) if names[0] in arrays else None
        for names in (_TRAIN, _TEST)
    )
    return None if train is None else Samples(ClientData(train, test), about["extractor"])


# -- what is read ----------------------------------------------------------------------------------


def _public(extractor: dict[str, Any] | None) -> dict[str, Any] | None:
    """What made the features, without where a file of it lies on this node."""
    return None if extractor is None else {**extractor, "name": Path(extractor["name"]).name}


def _extraction(node: NodeSettings, source: str) -> Extraction | None:
    """None where samples are features as they are."""
    named = node.text or node.extractor or node.weights or node.views
    if not (named or holds_images(source)):
        return None
    return Extraction(
        node.extractor or None,
        node.weights or None,
        engine=node.engine,
        skip_corrupt=node.skip_corrupt,
        text=node.text or None,
        views=node.views or None,
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
    if isinstance(own, CellSet):  # neighbours of a frame are much like it
        kept, held = last_split(whole, node.held_out, 1)
    else:
        kept, held = personal_split(whole, own.labels, node.held_out, 1, node.seed)
    return own.subset(kept.indices[0]), own.subset(held.indices[0])

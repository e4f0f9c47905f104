"""One way in: feature files as they are, images through an extractor, the cache in between."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headstart.data.datasets import Dataset, load
from headstart.data.image_set import CorruptImage
from headstart.data.images import is_images, load_images
from headstart.errors import DataError, HeadstartError
from headstart.files import write_bytes

Progress = Callable[[str, int, int], None]  # what, done, of


def silent(what: str, done: int, of: int) -> None:
    """No progress shown."""


@dataclass(frozen=True)
class Extraction:
    """Which extractor turns images into features, and where its weights may come from."""

    name: str = "mobilenet_v2"
    weights: str | None = None
    download: bool = False
    engine: str = "onnx"
    skip_corrupt: bool = False


@dataclass(frozen=True, eq=False)
class Input:
    """Samples with features; for images also what made them, and the name of each."""

    data: Dataset
    extractor: dict[str, Any] | None = None
    bound: float | None = None
    names: tuple[str, ...] | None = None


def read(
    source: str,
    columns: Mapping[str, str],
    extraction: Extraction | None = None,
    progress: Progress = silent,
    *,
    labelled: bool = True,
    about: Mapping[str, Any] | None = None,
) -> Input:
    """The samples at `source`; images need an extractor (the default one unless told).

    `about`: what a saved head remembers of its extractor, which images then go through again.
    """
    if holds_images(source):
        return _images(source, columns, extraction or Extraction(), progress, labelled, about)
    if extraction is not None:
        raise DataError(f"extractor: {source} holds features, not images")
    return Input(load(source, **columns, labelled=labelled))


def holds_images(source: str) -> bool:
    return source != "digits" and is_images(source)


def _images(
    source: str,
    columns: Mapping[str, str],
    how: Extraction,
    progress: Progress,
    labelled: bool,
    about: Mapping[str, Any] | None,
) -> Input:
    from headstart.data.features import as_dataset, extract

    images = load_images(source, **columns, labelled=labelled)
    network = extractor_of(about, how) if about else _network(how, _small(images, how))
    features = extract(
        images,
        network,
        progress=lambda done, of: progress(f"features of {images.name}", done, of),
        on_corrupt="skip" if how.skip_corrupt else "error",
    )
    for where, reason in features.corrupt:
        progress(f"left out: {where}: {reason}", 1, 1)
    names = tuple(images.where(i) for i in range(len(images)) if features.kept[i])
    return Input(as_dataset(images, features), _about(how, network), network.bound, names)


def _small(images: Any, how: Extraction) -> bool:
    """Whether the images are smaller than the network's input: then there is no margin to crop."""
    from headstart.data.backbones.catalogue import NETWORKS

    known = NETWORKS.get(how.name)
    if known is None:
        return False
    for i in range(len(images)):
        try:
            return min(images.open(i).size) < known.preprocess.size
        except CorruptImage:
            if not how.skip_corrupt:
                raise
    return False


def _network(how: Extraction, small: bool) -> Any:
    from headstart.data.backbones import extractor
    from headstart.data.backbones.catalogue import NETWORKS

    prepare = NETWORKS[how.name].preprocess.for_small() if small else None
    return extractor(
        how.name,
        weights=how.weights,
        download=how.download,
        engine=how.engine,
        preprocess=prepare,
    )


def _about(how: Extraction, network: Any) -> dict[str, Any]:
    """What a saved head remembers of the extractor its features came from."""
    return {
        "name": how.name,
        "identity": network.identity,
        "preprocess": network.preprocess.settings(),
    }


def extractor_of(about: Mapping[str, Any], how: Extraction | None = None) -> Any:
    """The extractor a head was made with; another one's features would mean nothing to it."""
    from headstart.data.backbones import Preprocess, extractor

    how = how or Extraction(str(about["name"]))
    network = extractor(
        str(about["name"]),
        weights=how.weights,
        download=how.download,
        engine=how.engine,
        preprocess=Preprocess(**about["preprocess"]),
    )
    if network.identity != about["identity"]:
        raise HeadstartError(
            f"extractor: the model was made with {about['name']} {about['identity'][:12]}…, "
            f"got {network.identity[:12]}… (other weights)"
        )
    return network


def write_features(found: Input, path: Path) -> None:
    """A .npz file that `read` takes back: features, label and whatever else is known."""
    data = found.data
    arrays: dict[str, Any] = {"features": data.features, "label": data.labels}
    known = {"client": data.clients, "domain": data.domains}
    arrays |= {name: values for name, values in known.items() if values is not None}
    if data.test is not None:
        arrays["split"] = np.where(data.test, "test", "train")
    if path.suffix != ".npz":
        raise DataError(f"output: expected a .npz file, got {path.name}")
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_bytes(path, buffer.getvalue())

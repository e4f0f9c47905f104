"""One way in: features as they are, images and sentences through an extractor and its cache."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.data.backbones.preprocess import Preprocess, Whole
from headstart.data.datasets import DATASETS, load
from headstart.data.delimited import TABLES
from headstart.data.image_set import CorruptImage
from headstart.data.images import ImageSet, is_images, load_images
from headstart.data.sample_set import SampleSet
from headstart.data.scene_layouts import is_scenes, load_scenes
from headstart.data.table import OWN_NAMES, Columns
from headstart.data.texts import load_texts
from headstart.errors import DataError, HeadstartError, SkippedWarning
from headstart.files import write_bytes
from headstart.progress import Progress, silent

if TYPE_CHECKING:
    from headstart.data.features import OnCorrupt

Change = Callable[[ImageSet], ImageSet]
PIXELS = "pixels-"  # and the size
IMAGES, TEXTS = "mobilenet_v2", "all_minilm_l6_v2"  # the extractors, if none is named


@dataclass(frozen=True)
class Extraction:
    """Which extractor makes features of images or sentences, where its weights may come from."""

    name: str | None = None  # the usual one
    weights: str | None = None
    download: bool = False
    engine: str = "onnx"
    skip_corrupt: bool = False
    text: str | None = None  # the column of sentences; none: images
    views: str | None = None  # flip: features are means over an image and its mirror image

    @property
    def network(self) -> str:
        return self.name or (TEXTS if self.text else IMAGES)


@dataclass(frozen=True, eq=False)
class Input:
    """Samples with features; of extracted ones also what made them, and a name for each."""

    data: Any  # a Dataset; of scenes a CellSet
    extractor: dict[str, Any] | None = None
    bound: float | None = None
    names: tuple[str, ...] | None = None


def read(
    source: str,
    columns: Columns = OWN_NAMES,
    extraction: Extraction | None = None,
    progress: Progress = silent,
    *,
    about: Mapping[str, Any] | None = None,
    change: Change | None = None,
) -> Input:
    """The samples at `source`; images need an extractor (the default one if none is given).

    `about`: what a saved head remembers of its extractor, which samples then go through again.
    `change`: what is done to images before.
    """
    how = extraction or Extraction()
    if how.text is not None or not holds_images(source):
        held = "features" if how.text is None else "sentences"
        if change is not None:
            raise DataError(f"shift: expected images, whose colours can be shifted, got {held}")
        if how.views is not None:
            raise DataError(f"views: expected images, which can be mirrored, got {held}")
    if how.text is None and holds_text(source, about):
        how = replace(how, text=str((about or {})["text"]))
    if how.text is not None:
        return _sentences(source, columns, how, progress, about)
    if holds_scenes(source):
        return _scenes(source, columns, how, progress, about, change)
    if holds_images(source):
        return _images(source, columns, how, progress, about, change)
    if extraction is not None:
        raise DataError(f"extractor: {source} holds features, not images{_hint(how)}")
    return Input(load(source, columns))


def read_images(
    source: str,
    columns: Columns,
    size: int,
    progress: Progress = silent,
    *,
    skip_corrupt: bool = False,
    change: Change | None = None,
) -> ImageSet:
    """The images at `source` for a network that trains on them, decoded when they are read.

    Those with masks have the class of most of their pixels as a label.

    All are decoded once, to find the corrupt ones before anything trains: they are refused, or
    left out with a warning each. `change`: what is done to images before.
    """
    from headstart.data.features import extract

    if not holds_images(source):
        raise DataError(f"network: {source} holds features, not images")
    images = _scenes_to_train(source, columns, skip_corrupt) or load_images(source, columns)
    images = change(images) if change else images
    on_corrupt: OnCorrupt = "skip" if skip_corrupt else "error"
    tried = extract(images, _trial(size), progress=progress, on_corrupt=on_corrupt)
    _warn(tried.corrupt)
    return images if tried.kept.all() else images.subset(tried.kept)


def _scenes_to_train(source: str, columns: Columns, skip: bool) -> ImageSet | None:
    """Images with masks, all of which can be read; None where there are none."""
    if not holds_scenes(source):
        return None
    from headstart.data.cells import checked
    from headstart.data.scene_samples import labelled

    scenes, wrong = checked(load_scenes(source, columns), skip=skip)
    _warn(wrong)
    return labelled(scenes)


def pixels_of(size: int) -> Preprocess:
    """How an image becomes the input of a network that trains on images of this size."""
    return Preprocess(size=size, resize=size)


def _trial(size: int) -> Any:
    """A number per image, to know that it can be decoded; what was tried is in the cache."""
    from headstart.data.backbones import from_callable

    return from_callable(lambda x: x[:, 0, 0, :1], 1, f"decodes-{size}", pixels_of(size))


def _warn(corrupt: Iterable[tuple[str, str]]) -> None:
    for where, reason in corrupt:
        warnings.warn(f"{where}: {reason}", SkippedWarning, stacklevel=3)


def _hint(how: Extraction) -> str:
    from headstart.data.backbones import text_names

    sentences = how.network in text_names()
    return "; of sentences, name the column (--text)" if sentences else ""


def holds_images(source: str) -> bool:
    """Return whether a path, which is no data set's name, holds images, with masks or without."""
    return holds_scenes(source) or (source not in DATASETS and is_images(source))


def holds_scenes(source: str) -> bool:
    """Images with masks."""
    return source not in DATASETS and is_scenes(source)


def holds_text(source: str, about: Mapping[str, Any] | None) -> bool:
    """Whether a head of sentences takes the table at `source` for one of sentences."""
    return bool(about and "text" in about) and Path(source).suffix.lower() in TABLES


def _images(
    source: str,
    columns: Columns,
    how: Extraction,
    progress: Progress,
    about: Mapping[str, Any] | None,
    change: Change | None,
) -> Input:
    if about and "text" in about:
        raise DataError(f"data: {source} holds images, but the model was fitted to sentences")
    images = load_images(source, columns)
    images = change(images) if change else images
    network = extractor_of(about, how) if about else _network(how, _small(images, how))
    return _extracted(images, network, how, progress, images.where)


def _scenes(
    source: str,
    columns: Columns,
    how: Extraction,
    progress: Progress,
    about: Mapping[str, Any] | None,
    change: Change | None,
) -> Input:
    """Every cell of the images is a sample."""
    from headstart.data.cells import CellSet, checked
    from headstart.data.features import extract

    if change is not None or how.views is not None:
        named = "shift" if change is not None else "views"
        raise DataError(f"{named}: expected images without masks, got scenes")
    if about and "cells" not in about:
        raise DataError(f"data: {source} holds scenes, but the model was fitted to whole images")
    scenes, wrong = checked(load_scenes(source, columns), skip=how.skip_corrupt)
    network = extractor_of(about, how) if about else cell_network(how, scenes.size(0))
    on_corrupt: OnCorrupt = "skip" if how.skip_corrupt else "error"
    features = extract(scenes, network, progress=progress, on_corrupt=on_corrupt)
    _warn((*wrong, *features.corrupt))
    names = tuple(scenes.where(i) for i in range(len(scenes)) if features.kept[i])
    data = CellSet.of(scenes, features, network.grid)
    remembered = {**_about(how, network), "cells": {"classes": list(scenes.names)}}
    return Input(data, remembered, network.bound, names)


def cell_network(how: Extraction, size: tuple[int, int]) -> Any:
    """The stages of the extractor that is named, for images of this width and height."""
    from headstart.data.cells import cell_extractor

    given: dict[str, Any] = {"weights": how.weights, "download": how.download}
    return cell_extractor(how.network, size, engine=how.engine, **given)


def _sentences(
    source: str,
    columns: Columns,
    how: Extraction,
    progress: Progress,
    about: Mapping[str, Any] | None,
) -> Input:
    if how.engine != "onnx":
        raise DataError(f"engine: sentences run on NumPy alone, got {how.engine!r}")
    if about and "text" not in about:
        raise DataError(f"data: {source} holds sentences, but the model was fitted to images")
    samples = load_texts(source, columns, text=str(how.text))
    return _extracted(samples, _reader(how, about), how, progress, samples.open)


def _extracted(
    samples: SampleSet,
    network: Any,
    how: Extraction,
    progress: Progress,
    name: Callable[[int], str],
) -> Input:
    from headstart.data.features import as_dataset, extract

    features = extract(
        samples,
        network,
        progress=progress,
        on_corrupt="skip" if how.skip_corrupt else "error",
    )
    _warn(features.corrupt)
    names = tuple(name(i) for i in range(len(samples)) if features.kept[i])
    return Input(as_dataset(samples, features), _about(how, network), network.bound, names)


def _reader(how: Extraction, about: Mapping[str, Any] | None) -> Any:
    """The extractor of sentences that is named, or the one a head was made with."""
    from headstart.data.backbones import text_extractor
    from headstart.data.backbones.wordpiece import Reading

    if not about:
        return text_extractor(how.network, weights=how.weights)
    reading = Reading(**about["preprocess"])
    network = text_extractor(str(about["name"]), weights=how.weights, reading=reading)
    return _same(network, about)


def _small(images: Any, how: Extraction) -> bool:
    """Whether the images are smaller than the network's input: then there is no margin to crop."""
    from headstart.data.backbones.catalogue import NETWORKS

    network = NETWORKS.get(how.network)
    if network is None:
        return False
    for i in range(len(images)):
        try:
            return min(images.open(i).size) < network.preprocess.size
        except CorruptImage:
            if not how.skip_corrupt:
                raise
    return False


def _network(how: Extraction, small: bool) -> Any:
    from headstart.data.backbones import extractor, from_callable
    from headstart.data.backbones.catalogue import NETWORKS

    if how.network.startswith(PIXELS):  # the pixels themselves, a row for each image
        size = int(how.network.removeprefix(PIXELS))
        return from_callable(
            lambda x: x.reshape(len(x), -1), 3 * size**2, how.network, pixels_of(size)
        )
    prepare = NETWORKS[how.network].preprocess.for_small() if small else None
    return extractor(
        how.network,
        weights=how.weights,
        download=how.download,
        engine=how.engine,
        preprocess=prepare,
        views=how.views,
    )


def _about(how: Extraction, network: Any) -> dict[str, Any]:
    """What a saved head remembers of the extractor its features came from."""
    return {
        "name": how.network,
        "identity": network.identity,
        "preprocess": network.preprocess.settings(),
        **({} if how.text is None else {"text": how.text}),
        **({} if how.text or network.views is None else {"views": network.views}),
    }


def describe(how: Extraction, *, small: bool = False) -> dict[str, Any]:
    """What a head would remember of this extractor, without any samples.

    `small`: images are smaller than the network's input.
    """
    return _about(how, _reader(how, None) if how.text else _network(how, small))


def describe_scenes(
    how: Extraction, size: tuple[int, int], classes: Sequence[str]
) -> tuple[dict[str, Any], int]:
    """The same for scenes of this width and height, and how many cells an image has."""
    network = cell_network(how, size)
    about = {**_about(how, network), "cells": {"classes": list(classes)}}
    return about, network.grid[0] * network.grid[1]


def extractor_of(about: Mapping[str, Any], how: Extraction | None = None) -> Any:
    """The extractor a head was made with; another one's features would mean nothing to it."""
    from headstart.data.backbones import extractor

    how = how or Extraction(str(about["name"]))
    if "cells" in about:
        from headstart.data.cells import cell_extractor

        prepare = Whole(**about["preprocess"])
        named: dict[str, Any] = {"weights": how.weights, "download": how.download}
        size = (prepare.width, prepare.height)
        made = cell_extractor(
            str(about["name"]), size, engine=how.engine, preprocess=prepare, **named
        )
        return _same(made, about)
    network = extractor(
        str(about["name"]),
        weights=how.weights,
        download=how.download,
        engine=how.engine,
        preprocess=Preprocess(**about["preprocess"]),
        views=about.get("views"),
    )
    return _same(network, about)


def _same(network: Any, about: Mapping[str, Any]) -> Any:
    if network.identity != about["identity"]:
        raise HeadstartError(
            f"extractor: the model was made with {about['name']} {about['identity'][:12]}…, "
            f"got {network.identity[:12]}… (other weights)"
        )
    return network


def write_features(source: Input, path: Path) -> None:
    """A .npz file that `read` takes back: features, label and whatever else is known."""
    data = source.data
    arrays: dict[str, Any] = {"features": data.features, "label": data.labels}
    optional = {"client": data.clients, "domain": data.domains}
    arrays |= {name: values for name, values in optional.items() if values is not None}
    if data.test is not None:
        arrays["split"] = np.where(data.test, "test", "train")
    if path.suffix != ".npz":
        raise DataError(f"output: expected a .npz file, got {path.name}")
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_bytes(path, buffer.getvalue())

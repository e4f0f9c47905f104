"""Where the data of a reproduction come from: a path that is given, or the benchmark data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headstart.data.datasets import Dataset
from headstart.errors import DataError, HeadstartError
from headstart.papers.reproduction import Reproduction
from headstart.pipeline.inputs import IMAGES, holds_images, read
from headstart.progress import Progress


@dataclass(frozen=True)
class FeatureSet:
    """Features of a data set: what makes them of its images, and the file that may hold them.

    `pixels`: the input's side for images smaller than the network's own (none: the network's own).
    `file`: below the folder that HEADSTART_DATA names (default ../shared/data).
    """

    dataset: str
    title: str
    file: str
    extractor: str = IMAGES
    views: str | None = None
    pixels: int | None = None


_CIFAR, _LITE2 = "cifar-100-binary", "efficientnet_lite2"
FEATURE_SETS = {
    "cifar100": FeatureSet("cifar100", "MobileNetV2", _CIFAR),
    "cifar100-lite2": FeatureSet(
        "cifar100",
        "Lite2 at 192 px with mirror images",
        _CIFAR,
        _LITE2,
        views="flip",
        pixels=192,
    ),
    "cub200": FeatureSet("cub200", "MobileNetV2", "cub200_features/cub200_mobilenet_v2.npz"),
    "cub200-lite2": FeatureSet(
        "cub200",
        "Lite2 with mirror images",
        "cub200_features/cub200_efficientnet_lite2.npz",
        _LITE2,
        views="flip",
    ),
    "pacs": FeatureSet("pacs", "MobileNetV2", "pacs/pacs_160.zip"),
}
QUANTIZED = ("features_q", "mirrored_q", "top", "label", "is_train")


def find(
    reproduction: Reproduction, given: Sequence[str], progress: Progress
) -> dict[str, Dataset | str]:
    """Return what there is of the needs: paths of images for one that trains, else features.

    `given`: NAME=PATH each, or PATH alone for a reproduction of one data set. The images of a data
    set serve all of its feature sets. What is not given is looked for at its usual place.
    """
    paths = _given(reproduction.needs, given)
    datasets: dict[str, Dataset | str] = {}
    for need in reproduction.needs:
        path = paths.get(need) or _usual(need, paths)
        if path is not None:
            datasets[need] = path if reproduction.trains else _features(need, path, progress)
    return datasets


def data_folder() -> Path:
    """Return the folder of the benchmark data, which HEADSTART_DATA names."""
    return Path(os.environ.get("HEADSTART_DATA", "../shared/data"))


def _given(needs: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    paths = {}
    for item in given:
        name, mark, path = item.partition("=")
        if mark and name in needs:
            paths[name] = path
        elif len(needs) == 1:
            paths[needs[0]] = item
        else:
            expected = ", ".join(f"{need}=PATH" for need in needs) or "none"
            raise HeadstartError(f"data: expected {expected}, got {item!r}")
    return paths


def _usual(need: str, paths: dict[str, str]) -> str | None:
    """Return the images given for the same data set, or the file that lies at its usual place."""
    feature_set = FEATURE_SETS.get(need)
    if feature_set is None:  # which nobody has but who asked for it
        return None
    images = paths.get(feature_set.dataset)
    if images is not None and holds_images(images):
        return images
    file = data_folder() / feature_set.file
    return str(file) if file.exists() else None


def _features(need: str, path: str, progress: Progress) -> Dataset:
    """Return features as they are, or of images; a fifth is held out if there is no split."""
    if holds_images(path):
        data = _extracted(FEATURE_SETS[need], path, progress)
    else:
        data = _quantized(path) or read(path, progress=progress).data
    return data if data.test is not None else data.with_test(0.2, seed=0)


def _extracted(feature_set: FeatureSet, path: str, progress: Progress) -> Dataset:
    """Return the features of images, from the cache if they were extracted before."""
    from headstart.data.backbones import extractor
    from headstart.data.backbones.catalogue import network
    from headstart.data.features import dataset_from_images
    from headstart.data.images import load_images

    images = load_images(path)
    prepare = network(feature_set.extractor).preprocess
    if min(images.open(0).size) < prepare.size:  # no margin to crop away
        prepare = replace(prepare, size=feature_set.pixels or prepare.size).for_small()
    made = extractor(feature_set.extractor, preprocess=prepare, views=feature_set.views)
    return dataset_from_images(images, made, progress=progress)


def _quantized(path: str) -> Dataset | None:
    """Return the mean of features and mirrored features kept in 8 bits, z = top·(q/255)²; or None.

    Such an .npz file holds `features_q`, `mirrored_q`, `top` per column, `label` and `is_train`.
    """
    if Path(path).suffix != ".npz":
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, Any] = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError):
        return None  # the usual reader says what is wrong
    if "features_q" not in arrays:
        return None
    missing = [name for name in QUANTIZED if name not in arrays]
    if missing:
        raise DataError(f"{path}: expected {', '.join(QUANTIZED)}, got no {missing[0]}")
    views = [(arrays[name] / np.float32(255)) ** 2 for name in QUANTIZED[:2]]
    features = (arrays["top"] * (views[0] + views[1]) / 2).astype(np.float32)
    labels = arrays["label"].astype(np.int64)
    return Dataset(Path(path).stem, features, labels, test=~arrays["is_train"].astype(bool))

"""Masks of images that have none: a PNG of class ids each, and an overlay to look at."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.cells import guessed
from headstart.data.images import load_images
from headstart.data.scene_layouts import is_scenes, load_scenes
from headstart.data.table import Columns
from headstart.files import write_bytes
from headstart.heads.linear import LinearHead
from headstart.optional import require
from headstart.pipeline.dense_models import DenseModel
from headstart.pipeline.inputs import Extraction, extractor_of
from headstart.progress import Progress, silent


def segment(
    head: LinearHead,
    source: str,
    out: Path,
    columns: Columns,
    weights: str | None = None,
    progress: Progress = silent,
) -> int:
    """Write NNNN-NAME.png (ids in the order of classes.csv) and NNNN-NAME-overlay.png; how many."""
    about = head.provenance["extractor"]
    names: list[str] = about["cells"]["classes"]
    images = _images(source, columns)
    network = extractor_of(about, Extraction(str(about["name"]), weights))
    ids = np.array([names.index(str(label)) for label in head.classes], np.uint8)

    def masks() -> Iterator[NDArray[np.uint8]]:
        for i in range(len(images)):
            image = images.open(i)
            cells = network(network.preprocess(image)[None]).reshape(-1, network.channels)
            yield ids[guessed(head.scores(cells), network.grid, (image.height, image.width))]

    return _written(images, names, masks(), out, progress)


def segment_densely(
    model: DenseModel, source: str, out: Path, columns: Columns, progress: Progress = silent
) -> int:
    """The same by a network that was trained on masks."""
    images = _images(source, columns)
    found = (mask.astype(np.uint8) for mask in model.masks(images))
    return _written(images, model.names, found, out, progress)


def _images(source: str, columns: Columns) -> Any:
    return load_scenes(source, columns) if is_scenes(source) else load_images(source, columns)


def _written(
    images: Any,
    names: Sequence[str],
    masks: Iterator[NDArray[np.uint8]],
    out: Path,
    progress: Progress,
) -> int:
    out.mkdir(parents=True, exist_ok=True)
    lines = ["id,name", *(f"{place},{name}" for place, name in enumerate(names))]
    write_bytes(out / "classes.csv", "\n".join([*lines, ""]).encode())
    for i, mask in enumerate(masks):
        stem = f"{i:04d}-{PurePosixPath(images.where(i)).stem.replace(':', '')}"
        write_bytes(out / f"{stem}.png", _png(mask))
        colours = np.asarray(images.open(i).convert("RGB"), np.float64)
        mixed = 0.5 * colours + 0.5 * palette(len(names))[mask]
        write_bytes(out / f"{stem}-overlay.png", _png(np.rint(mixed).astype(np.uint8)))
        progress("masks", i + 1, len(images))
    return len(images)


def palette(count: int) -> NDArray[np.uint8]:
    """As many colours, far from each other: hues by the golden ratio, two lights."""
    hue = (np.arange(count) * 0.618034 * 6) % 6
    waves = np.abs((hue[:, None] + np.array([0.0, 4.0, 2.0])) % 6 - 3) - 1
    light = np.where(np.arange(count) % 2, 150, 235)[:, None]
    return np.asarray(np.rint(np.clip(waves, 0, 1) * light + 15), np.uint8)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    require("PIL.Image").fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()

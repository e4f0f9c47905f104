"""Masks of images that have none, with overlays to look at; of test images what a report shows."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.cells import CellSamples, guessed
from headstart.data.images import load_images
from headstart.data.scene_layouts import is_scenes, load_scenes
from headstart.data.scenes import VOID
from headstart.data.table import Columns
from headstart.files import write_bytes
from headstart.heads.linear import LinearHead
from headstart.optional import require
from headstart.pipeline.dense_models import DenseModel
from headstart.pipeline.inputs import Extraction, extractor_of
from headstart.progress import Progress, silent

Array = NDArray[Any]
STREETS = {
    "sky": (120, 180, 230),
    "building": (95, 95, 105),
    "pole": (245, 210, 130),
    "road": (130, 75, 130),
    "pavement": (225, 120, 200),
    "sidewalk": (225, 120, 200),
    "tree": (80, 140, 60),
    "vegetation": (80, 140, 60),
    "terrain": (150, 200, 120),
    "sign": (250, 220, 30),
    "traffic sign": (250, 220, 30),
    "traffic light": (250, 160, 30),
    "fence": (190, 150, 130),
    "wall": (150, 120, 110),
    "car": (30, 60, 170),
    "pedestrian": (220, 40, 60),
    "person": (220, 40, 60),
    "bicyclist": (0, 190, 190),
    "rider": (0, 190, 190),
}
PICTURES, WIDEST = 4, 360  # test images of a report, and pixels of the width of one


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
        mixed = 0.5 * colours + 0.5 * palette(names)[mask]
        write_bytes(out / f"{stem}-overlay.png", _png(np.rint(mixed).astype(np.uint8)))
        progress("masks", i + 1, len(images))
    return len(images)


def write_pictures(head: LinearHead, test: CellSamples, folder: Path) -> None:
    """Some test images, evenly picked, as NAME.jpg: image, truth, prediction, where it errs.

    The colours of the classes are in legend.json. Pictures of an earlier model are taken away.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jpg"):
        old.unlink()
    names, scenes = test.data.names, test.data.scenes
    colours = palette(names)
    ids = np.array([names.index(str(label)) for label in head.classes])
    count = min(PICTURES, len(test.rows))
    for row in test.rows[np.linspace(0, len(test.rows) - 1, count).round().astype(int)].tolist():
        mask = scenes.mask(row)
        guess = ids[guessed(head.scores(test.data.cells(row)), test.data.grid, mask.shape)]
        image = np.asarray(scenes.open(row).convert("RGB"))
        stem = PurePosixPath(scenes.where(row)).stem.replace(":", "")
        write_bytes(folder / f"{row:04d}-{stem}.jpg", _strip(image, mask, guess, colours))
    legend = dict(zip(names, (f"#{r:02x}{g:02x}{b:02x}" for r, g, b in colours), strict=True))
    write_bytes(folder / "legend.json", json.dumps(legend).encode())


def _strip(image: Array, mask: Array, guess: Array, colours: Array) -> bytes:
    """Four panels side by side; void is black, errors are red on a grey image."""
    void, wrong = (mask == VOID)[..., None], ((mask != VOID) & (mask != guess))[..., None]
    grey = np.broadcast_to(0.5 * image.mean(axis=2, keepdims=True) + 100, image.shape)
    panels = [
        image,
        np.where(void, 0, colours[mask]),
        np.where(void, 0, 0.5 * image + 0.5 * colours[guess]),
        np.where(wrong, (204, 40, 40), grey),
    ]
    made = require("PIL.Image").fromarray(np.concatenate(panels, axis=1).astype(np.uint8))
    made.thumbnail((4 * WIDEST, 4 * WIDEST))
    buffer = io.BytesIO()
    made.save(buffer, "jpeg", quality=80)
    return buffer.getvalue()


def palette(names: Sequence[str]) -> NDArray[np.uint8]:
    """A colour for each class: the usual ones of streets, else hues by the golden ratio."""
    hue = (np.arange(len(names)) * 0.618034 * 6) % 6
    waves = np.abs((hue[:, None] + np.array([0.0, 4.0, 2.0])) % 6 - 3) - 1
    light = np.where(np.arange(len(names)) % 2, 150, 235)[:, None]
    found = np.rint(np.clip(waves, 0, 1) * light + 15).astype(np.uint8)
    for at, name in enumerate(names):
        found[at] = STREETS.get(name, found[at])
    return found


def _png(pixels: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    require("PIL.Image").fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()

"""Scenes as a client's samples: images for a network that trains, and with each its mask.

A mask is read in the frame in which its image is: cropped and mirrored alike, its classes never
mixed. It is brought to the network's input for training alone; tests look at the whole one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from headstart.data.augment.base import Frame
from headstart.data.image_samples import KEPT, ImageReader, ImageSamples
from headstart.data.samples import ALL, Positions, Samples
from headstart.data.scenes import VOID, Mask, SceneSet
from headstart.errors import DataError
from headstart.optional import require

_VOID = np.uint8(VOID % 256)  # in a byte


@dataclass(frozen=True, eq=False)
class SceneReader(ImageReader):
    """Scenes and how they become a network's input."""

    _masks: dict[int, NDArray[np.uint8]] = field(default_factory=dict, init=False, repr=False)

    @property
    def scenes(self) -> SceneSet:
        return cast(SceneSet, self.images)

    def mask(self, row: int, frame: Frame) -> Mask:
        """The classes of what a frame shows, h×w as the network's input, by the nearest pixel."""
        pillow = require("PIL.Image")
        height, width = self.preprocess.shape[1:]
        image = pillow.fromarray(self._kept_mask(row))
        held = np.asarray(image.resize((width, height), pillow.Resampling.NEAREST, frame.box))
        found = _places(held)
        return found[:, ::-1] if frame.mirrored else found

    def truth(self, row: int) -> Mask:
        """The whole mask, as it is stored."""
        return _places(self._kept_mask(row))

    def _kept_mask(self, row: int) -> NDArray[np.uint8]:
        """In a byte per pixel, void as 255; the first ones are kept."""
        if row in self._masks:
            return self._masks[row]
        made = self.scenes.mask(row).astype(np.uint8)
        if (len(self._masks) + 1) * made.nbytes <= KEPT:
            self._masks[row] = made
        return made


@dataclass(frozen=True, eq=False)
class SceneSamples(ImageSamples):
    """Some scenes of a reader: n×3×h×w floats and n×h×w places of classes when they are read.

    The label of an image is the class of most of its pixels, for those who ask for one.
    """

    reader: SceneReader

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes, by their places in masks."""
        return self.reader.scenes.names

    def read(
        self, positions: Positions = ALL, key: bytes | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        at = np.arange(len(self))[positions]
        x, frames = self.seen(at, key)
        masks = np.empty((len(at), *self.shape[1:]), np.int16)
        for place, (position, frame) in enumerate(zip(at.tolist(), frames, strict=True)):
            masks[place] = self.reader.mask(int(self.rows[position]), frame)
        return x, masks

    def truth(self, position: int) -> Mask:
        """The whole mask of an image, as it is stored."""
        return self.reader.truth(int(self.rows[position]))

    def content(self) -> Iterator[Any]:
        yield from super().content()
        scenes = self.reader.scenes
        assert scenes.masks is not None
        assert scenes.known is not None
        yield repr((scenes.names, scenes.known.places.tolist())).encode()
        for row in self.rows.tolist():
            yield scenes.masks.read(row)


def _places(held: NDArray[np.uint8]) -> Mask:
    """A byte per pixel as places of classes."""
    found = held.astype(np.int16)
    found[held == _VOID] = VOID
    return found


def truth(samples: Samples, position: int) -> Mask:
    """The mask that a prediction is compared with; of arrays, the one they hold."""
    if isinstance(samples, SceneSamples):
        return samples.truth(position)
    mask: Mask = samples.read(slice(position, position + 1))[1][0]
    if mask.ndim != 2:
        raise DataError("samples: expected images with masks, got a label per image")
    return mask


def labelled(scenes: SceneSet) -> SceneSet:
    """With a label for each image, which partitioners ask for: the class of most of its pixels."""
    names = np.array([*scenes.names, "void"])
    count = len(scenes.names)
    most = []
    for i in range(len(scenes)):
        mask = scenes.mask(i)
        shown = np.bincount(mask[mask != VOID], minlength=count)
        most.append(int(shown.argmax()) if shown.any() else count)
    return replace(scenes, labels=names[most])

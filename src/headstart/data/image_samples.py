"""Images as a client's samples: decoded, resized and augmented where they are needed.

Memory does not grow with the number of images: what is kept of those that were decoded is bounded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.augment.base import Augmentation, Draw, Frame
from headstart.data.backbones.preprocess import Preprocess, Whole, as_rgb
from headstart.data.feature_cache import Hashes, default_cache
from headstart.data.image_set import CorruptImage, ImageSet
from headstart.data.samples import ALL, Positions
from headstart.labels import Labels

if TYPE_CHECKING:
    from PIL.Image import Image

Bytes = NDArray[np.uint8]
Draws = list[tuple[Augmentation, Any]]  # each with what it draws from; None outside training
KEPT = 32 * 2**20  # bytes of resized images, of those that were decoded first


@dataclass(frozen=True, eq=False)
class ImageReader:
    """A set of images and how they become a network's input; clients hold rows of it."""

    images: ImageSet
    preprocess: Preprocess | Whole
    _slots: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    def decoded(self, row: int) -> Image:
        """The image as it is, upright, in three channels; `CorruptImage` when it cannot be read."""
        try:
            return as_rgb(self.images.open(row))
        except CorruptImage:
            raise
        except (ValueError, OSError, SyntaxError) as error:
            raise self._corrupt(row, error) from error

    def resized(self, row: int) -> Bytes:
        """3×h×w colours of the image as it is tested."""
        if row in self._slots:
            return self._kept[self._slots[row]]
        made = planes(self.preprocess.resized(self.decoded(row)))
        if len(self._slots) < len(self._kept):
            slot = len(self._slots)
            self._kept[slot] = made
            self._slots[row] = slot
        return made

    @functools.cached_property
    def _kept(self) -> Bytes:
        """In one piece: thousands of small ones would lie between what training allocates."""
        shape = self.preprocess.shape
        return np.empty((min(len(self.images), KEPT // math.prod(shape)), *shape), np.uint8)

    def content(self, row: int) -> str:
        """The SHA-256 of the image's bytes, from the record of files that have not changed."""
        return self._hashes.get(self.images, row)

    @functools.cached_property
    def _hashes(self) -> Hashes:
        return Hashes.of(default_cache(), self.images)

    def _corrupt(self, row: int, error: Exception) -> CorruptImage:
        return CorruptImage(self.images.where(row), f"cannot be preprocessed: {error}")


@dataclass(frozen=True, eq=False)
class ImageSamples:
    """Some images of a reader, n×3×h×w floats when they are read."""

    reader: ImageReader
    rows: NDArray[np.int64]
    labels: Labels
    augmentations: tuple[Augmentation, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.reader.preprocess.shape

    def __len__(self) -> int:
        return len(self.labels)

    def read(
        self, positions: Positions = ALL, key: bytes | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        at = np.arange(len(self))[positions]
        return self.seen(at, key)[0], self.labels[at]

    def seen(
        self, at: NDArray[np.int64], key: bytes | None
    ) -> tuple[NDArray[np.float32], list[Frame]]:
        """The images at these positions as a model takes them, and the frame of each."""
        pixels = np.empty((len(at), *self.shape), np.uint8)
        means, deviations = (np.empty((len(at), 3)) for _ in "ab")
        frames = [self._whole] * len(at)
        for place, position in enumerate(at.tolist()):
            draws = self._draws(key, position)
            row = int(self.rows[position])
            if key is None:
                pixels[place] = self.reader.resized(row)
            else:
                pixels[place], frames[place] = self._augmented(row, draws)
            means[place], deviations[place] = self._scaling(draws)
        return normalized(pixels, means, deviations), frames

    def _draws(self, key: bytes | None, position: int) -> Draws:
        return [
            (augmentation, None if key is None else Draw(key, augmentation.name, position))
            for augmentation in self.augmentations
        ]

    @property
    def _whole(self) -> Frame:
        height, width = self.shape[1:]
        return Frame(width, height)

    def _augmented(self, row: int, draws: Draws) -> tuple[Bytes, Frame]:
        """The image as training sees it this time, 3×h×w, and which part of it that is."""
        prepare = self.reader.preprocess
        if not any(augmentation.needs_decoded for augmentation in self.augmentations):
            frame = _framed(self._whole, draws)
            return _mirrored(self.reader.resized(row), frame), frame
        image = self.reader.decoded(row)
        for augmentation, draw in draws:
            image = augmentation.image(image, draw)
        frame = _framed(Frame(*image.size), draws)
        made = prepare.resized(image) if frame.box is None else prepare.part(image, frame.box)
        return _mirrored(planes(made), frame), frame

    def _scaling(self, draws: Draws) -> Any:
        """Mean and deviation of the last augmentation that has them, or the network's own."""
        scaling: Any = self.reader.preprocess.mean, self.reader.preprocess.std
        for augmentation, draw in draws:
            scaling = augmentation.scaling(draw) or scaling
        return scaling

    def pixels(self, positions: Positions = ALL) -> Bytes:
        """The colours of the images as they are tested, n×3×h×w bytes."""
        rows = [self.reader.resized(row) for row in self.rows[positions].tolist()]
        return np.stack(rows) if rows else np.zeros((0, *self.shape), np.uint8)

    def relabelled(self, labels: Labels) -> ImageSamples:
        return replace(self, labels=labels)

    def first(self, count: int) -> ImageSamples:
        return replace(self, rows=self.rows[:count], labels=self.labels[:count])

    def augmented(self, augmentations: tuple[Augmentation, ...]) -> ImageSamples:
        """The same images, augmented when they are read for training."""
        return replace(self, augmentations=augmentations)

    def content(self) -> Iterator[Any]:
        yield repr(self.reader.preprocess).encode()
        for row in self.rows.tolist():
            yield self.reader.content(row).encode()


def planes(image: Image) -> Bytes:
    """An RGB image as 3×h×w bytes."""
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def normalized(
    pixels: Bytes, means: NDArray[np.float64], deviations: NDArray[np.float64]
) -> NDArray[np.float32]:
    """(x/255 − mean)/deviation of each image and channel, with the very bits of `Preprocess`."""
    values = pixels * (1 / (255 * deviations)).astype(np.float32)[:, :, None, None]
    values -= (means / deviations).astype(np.float32)[:, :, None, None]
    return values


def _framed(frame: Frame, draws: Draws) -> Frame:
    for augmentation, draw in draws:
        frame = augmentation.frame(frame, draw)
    return frame


def _mirrored(pixels: Bytes, frame: Frame) -> Bytes:
    return pixels[:, :, ::-1] if frame.mirrored else pixels

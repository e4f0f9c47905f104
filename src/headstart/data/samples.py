"""A client's samples, read when they are needed: all of them, or a batch.

What `read` returns is what a model takes. Labels, the number of samples and the shape of one are
known without reading any.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headstart.labels import Labels

Positions: TypeAlias = NDArray[np.integer[Any]] | slice
ALL = slice(None)


class Samples(Protocol):
    """Samples of one client, or of a test set.

    A position is that among these samples: it is what a sample's augmentations are drawn by.
    """

    @property
    def labels(self) -> Labels:
        """The class of each sample."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample, as `read` returns it."""

    def __len__(self) -> int: ...

    def read(
        self, positions: Positions = ALL, key: bytes | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples at these positions, and the target of each.

        With a `key` (a client's secret, the round, the epoch) they are read for training, augmented
        by what is drawn from the key and the position; without one, as they are tested. What is
        returned may be the samples' own memory: it is not written to.
        """

    def relabelled(self, labels: Labels) -> Samples:
        """The same samples with other names of their classes."""

    def first(self, count: int) -> Samples:
        """The first so many of them."""

    def content(self) -> Iterator[Any]:
        """Bytes that are others where the samples are others; labels are not in them."""


@dataclass(frozen=True, eq=False)
class ArraySamples:
    """Samples in memory, the first axis of an array; nothing is drawn."""

    features: NDArray[Any]
    labels: Labels

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.features.shape[1:])

    def __len__(self) -> int:
        return len(self.labels)

    def read(
        self, positions: Positions = ALL, key: bytes | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.features[positions], self.labels[positions]

    def relabelled(self, labels: Labels) -> ArraySamples:
        return ArraySamples(self.features, labels)

    def first(self, count: int) -> ArraySamples:
        return ArraySamples(self.features[:count], self.labels[:count])

    def content(self) -> Iterator[Any]:
        yield np.ascontiguousarray(self.features).data


def pieces(samples: Samples) -> Iterator[slice]:
    """All positions, in parts that fit in memory; of samples that are in memory, one part."""
    own = getattr(samples, "pieces", None)
    yield from [ALL] if own is None else own()


def units(samples: Samples) -> int:
    """What rules about few samples count: images, where every image has many samples."""
    return int(getattr(samples, "units", len(samples)))


def images_of(samples: Samples) -> NDArray[np.intp]:
    """Which image each sample is of, by number; a sample that is no part of one is its own."""
    own = getattr(samples, "image_of", None)
    return np.arange(len(samples)) if own is None else np.asarray(own)


def rows_per_image(samples: Samples) -> int:
    """The most samples that an image can have, whatever it shows; 1: a sample is one."""
    return int(getattr(samples, "per_image", 1))


def block_size(samples: Samples, most: int, numbers: int = 2**22) -> int:
    """How many samples to take at a time: at most `most`, and at most so many numbers in them."""
    return max(1, min(most, numbers // max(1, math.prod(samples.shape))))


def blocks(samples: Samples, most: int, numbers: int = 2**22) -> Iterator[slice]:
    """All positions, at most so many samples and (if one has fewer) so many numbers at a time."""
    size = block_size(samples, most, numbers)
    for start in range(0, len(samples), size):
        yield slice(start, start + size)

"""FedRDN: normalize a training image as some client, drawn at random, would (Yan et al. 2023).

"A simple data augmentation for feature distribution skewed federated learning", arXiv 2306.09363.
Client k measures its images x_i, channel by channel, and averages over its images:

    μ^k = 1/n_k Σ_i mean(x_i),    σ^k = 1/n_k Σ_i deviation(x_i)

so that σ^k is the contrast within an image, not the spread between images. All clients receive all
K pairs. In training each image, each time it is seen, becomes (x − μ^j)/σ^j for one client j drawn
uniformly; at test time a client uses its own pair. The authors' published program departs from this
equation: it draws μ and σ independently, perhaps of two clients, and once a batch. It also divides
the squares by hw − 1; here by hw, so that an image of one pixel has a deviation, zero.

**What it reveals.** Rows, not sums: secure aggregation cannot hide them, for the rows themselves
are what is shared. Every client (not only the server) learns the average colour and contrast of
every other, six numbers each; of a client with one image, those of that image. `collect` drops
names and the order of arrival, so that clients see the rows but not whose they are; the server
knows both.

Images are n×3×h×w. Pixels of uint8 count as x/255, so that clients that store bytes and clients
that store floats from 0 to 1 speak of the same scale.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.data.augment.base import Augmentation, Draw, Scaling
from headstart.data.pixels import Images, as_images
from headstart.errors import DataError

Floats: TypeAlias = NDArray[np.float64]

# A deviation under one grey level of 8 bits is none: (x − μ)/σ would only magnify rounding, and a
# client of blank images has σ = 0.
LEAST_DEVIATION = 1 / 255

_BLOCK = 2**20  # numbers converted to float64 at once


@dataclass(frozen=True, eq=False)
class ChannelStatistics:
    """What a client sends: mean and deviation of each channel (red, green, blue), six numbers."""

    mean: Floats
    deviation: Floats

    def __post_init__(self) -> None:
        for field in ("mean", "deviation"):
            object.__setattr__(self, field, _numbers(field, getattr(self, field), (3,)))
        _check_deviations(self.deviation)


@dataclass(frozen=True, eq=False)
class ChannelTable:
    """What every client receives: the pairs of all K clients (K×3 each), nobody's name."""

    means: Floats
    deviations: Floats

    def __post_init__(self) -> None:
        rows = len(np.atleast_1d(np.asarray(self.means)))
        for field in ("means", "deviations"):
            object.__setattr__(self, field, _numbers(field, getattr(self, field), (rows, 3)))
        if not rows:
            raise DataError("means: expected at least one client, got none")
        _check_deviations(self.deviations)

    def __len__(self) -> int:
        return len(self.means)


# --- Client


def channel_statistics(images: ArrayLike) -> ChannelStatistics:
    """Mean and deviation of each channel of each image, averaged over the images of a client."""
    pixels = as_images(images)
    step = max(1, _BLOCK // max(1, pixels[:1].size))
    return averaged_channels(pixels[at : at + step] for at in range(0, len(pixels), step))


def averaged_channels(blocks: Iterable[Images]) -> ChannelStatistics:
    """The same of images that come a block at a time; refused where none come."""
    count, means, deviations = 0, np.zeros(3), np.zeros(3)
    for pixels in blocks:
        block = _unit(pixels, np.dtype(np.float64))
        means += block.mean(axis=(2, 3)).sum(axis=0)
        deviations += block.std(axis=(2, 3)).sum(axis=0)
        count += len(block)
    if not count:
        raise DataError("images: expected at least one image, got none")
    return ChannelStatistics(means / count, deviations / count)


def rdn(images: ArrayLike, table: ChannelTable, rng: np.random.Generator) -> Images:
    """Training: every image normalized with the pair of a client drawn for it from `table`.

    Floats keep their type; uint8 becomes float32.
    """
    pixels = as_images(images)
    if not isinstance(rng, np.random.Generator):
        raise DataError(f"rng: expected a numpy Generator, got {type(rng).__name__}")
    drawn = rng.integers(len(table), size=len(pixels))
    return _normalized(pixels, table.means[drawn], table.deviations[drawn])


def own(images: ArrayLike, statistics: ChannelStatistics) -> Images:
    """Test time: every image normalized with the client's own pair; types as in `rdn`."""
    return _normalized(as_images(images), statistics.mean[None], statistics.deviation[None])


# --- Server


def collect(rows: Iterable[ChannelStatistics]) -> ChannelTable:
    """The table that goes to all clients, sorted: the same whoever answered first."""
    received = list(rows)
    if not received:
        raise DataError("rows: expected the statistics of at least one client, got none")
    wrong = next((row for row in received if not isinstance(row, ChannelStatistics)), None)
    if wrong is not None:
        raise DataError(f"rows: expected ChannelStatistics, got {type(wrong).__name__}")
    joined = np.array([[*row.mean, *row.deviation] for row in received])
    joined = joined[np.lexsort(joined.T[::-1])]
    return ChannelTable(joined[:, :3], joined[:, 3:])


def middle(table: ChannelTable) -> ChannelStatistics:
    """The mean of all pairs, for images that are no client's: an outside test set."""
    return ChannelStatistics(table.means.mean(axis=0), table.deviations.mean(axis=0))


# --- Augmentation


@dataclass(frozen=True)
class FedRDN(Augmentation):
    """Normalization with the channels of a client drawn at random (clients exchange theirs)."""

    name: ClassVar[str] = "fedrdn"
    channels: ClassVar[bool] = True

    def with_channels(self, mine: ChannelStatistics, table: ChannelTable) -> RandomNormalization:
        return RandomNormalization(mine, table)


@dataclass(frozen=True, eq=False)
class RandomNormalization(Augmentation):
    """(x − μ^j)/σ^j for a client j of the table; outside training with one's own pair."""

    name: ClassVar[str] = FedRDN.name
    own: ChannelStatistics
    table: ChannelTable

    def scaling(self, draw: Draw | None) -> Scaling:
        if draw is None:
            mean, deviation = self.own.mean, self.own.deviation
        else:
            j = draw.below(len(self.table))
            mean, deviation = self.table.means[j], self.table.deviations[j]
        return mean, np.maximum(deviation, LEAST_DEVIATION)


# --- Arithmetic


def _normalized(pixels: Images, means: Floats, deviations: Floats) -> Images:
    """(x − μ)/σ; means and deviations are one row per image, or one row for all."""
    kind = np.dtype(np.float32) if pixels.dtype == np.uint8 else pixels.dtype
    values = _unit(pixels, kind)
    values -= means[:, :, None, None].astype(kind)
    values /= np.maximum(deviations, LEAST_DEVIATION)[:, :, None, None].astype(kind)
    return values


def _unit(pixels: Images, kind: np.dtype[Any]) -> Images:
    """A copy in floats; bytes become x/255."""
    values = pixels.astype(kind)
    if pixels.dtype == np.uint8:
        values /= 255
    return values


def _numbers(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    array = np.asarray(values)
    if array.shape != shape or array.dtype.kind not in "fiu":
        raise DataError(
            f"{name}: expected numbers of shape {shape}, got {array.dtype} of shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise DataError(f"{name}: expected finite numbers, got {array.tolist()}")
    return array.astype(np.float64)


def _check_deviations(values: Floats) -> None:
    if (values < 0).any():
        raise DataError(f"deviation: expected numbers of at least 0, got {values.min()}")

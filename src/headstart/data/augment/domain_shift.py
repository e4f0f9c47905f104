"""A domain shift of intensity δ: in a third of the clients, one colour is too strong.

Fed3R (appendix I, table 24) shifts iNaturalist so, with δ of 1.2, 1.5 and 2. The clients fall at
random into three groups, as even as possible, and so do the images of the outside test set; in the
group of channel g (red, green, blue) every image x becomes

    x_g ← δ·x_g,    x_c ← x_c/δ for the two other channels c.

The shift comes before any normalization. Images of uint8 are rounded to the nearest integer (half
to even) and **clipped to 0..255**, so that a bright channel saturates, as in a camera; images of
floats are multiplied and never clipped (the paper does not say which it did). δ = 1 changes no bit.

It is no draw but a property of an image: `shifted` gives a set of images that are shifted as they
are decoded, before all other preprocessing, for networks that train and for extractors alike. The
shift stands in the bytes of an image as they are read, so that what identifies the image (its hash,
and with it the cache of its features) changes with its domain and with δ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.data import apportion, checks
from headstart.data.augment.base import Augmentation, Draw
from headstart.data.backbones.preprocess import as_rgb
from headstart.data.image_set import ImageSet
from headstart.data.partition import Partition
from headstart.data.pixels import Images, as_images
from headstart.data.sample_set import Source, Stamp
from headstart.errors import DataError
from headstart.optional import require

if TYPE_CHECKING:
    from PIL.Image import Image

Domains: TypeAlias = NDArray[np.str_]

CHANNELS = ("red", "green", "blue")
INTENSITIES = (1.2, 1.5, 2.0)  # the paper's


@dataclass(frozen=True, eq=False)
class Shifted:
    """Shifted images (a copy), the domain of each, and of each client where there are clients.

    A domain is the name of the strengthened channel; an image that no client holds has none, "".
    """

    images: Images
    domains: Domains
    clients: Domains | None = None


def groups(n: int, seed: int = 0) -> Domains:
    """A domain for each of `n` clients or images, at random; group sizes differ by at most one."""
    if not checks.is_integer(n) or n < 0:
        raise DataError(f"n: expected a non-negative integer, got {n!r}")
    dealt = np.repeat(np.array(CHANNELS), apportion.even(n, len(CHANNELS)))
    return checks.generator(seed).permutation(dealt)


def shift(images: ArrayLike, domains: ArrayLike, delta: float) -> Images:
    """A copy of n×3×h×w `images`, each shifted to its domain ("" leaves it alone)."""
    pixels = as_images(images)
    names = checked_domains(domains, len(pixels))
    _check_delta(delta)
    shifted = pixels.copy()
    if delta == 1:
        return shifted
    for strong, domain in enumerate(CHANNELS):
        rows = np.flatnonzero(names == domain)
        for channel in range(len(CHANNELS)):
            factor = float(delta) if channel == strong else 1 / float(delta)
            shifted[rows, channel] = _scaled(pixels[rows, channel], factor)
    return shifted


def shift_clients(images: ArrayLike, partition: Partition, delta: float, seed: int = 0) -> Shifted:
    """The images of every client shifted to the client's domain; those of no client stay.

    The domains depend on the seed and the number of clients alone, so that the training and the
    held-out part of a personal split agree.
    """
    pixels = as_images(images)
    samples, owner = partition.flat()
    if samples.size and int(samples.max()) >= len(pixels):
        raise DataError(
            f"images: expected an image for sample {int(samples.max())} of the partition, "
            f"got {len(pixels)} images"
        )
    clients = groups(len(partition), seed)
    domains = np.full(len(pixels), "", dtype=clients.dtype)
    domains[samples] = clients[owner]
    return Shifted(shift(pixels, domains, delta), domains, clients)


def shift_test(images: ArrayLike, delta: float, seed: int = 0) -> Shifted:
    """The images of the outside test set in three groups, whatever their classes."""
    pixels = as_images(images)
    domains = groups(len(pixels), seed)
    return Shifted(shift(pixels, domains, delta), domains)


@dataclass(frozen=True)
class DomainShift(Augmentation):
    """Groups of clients with one colour stronger in each; set by shift=δ, not in augment."""

    name: ClassVar[str] = "domain-shift"
    needs_decoded: ClassVar[bool] = True
    delta: float = 1.5
    domain: str = ""

    def image(self, image: Image, draw: Draw | None = None) -> Image:
        if not self.domain or self.delta == 1:
            return image
        planes = np.asarray(as_rgb(image)).transpose(2, 0, 1)
        moved = shift(planes[None], [self.domain], self.delta)[0].transpose(1, 2, 0)
        made: Image = require("PIL.Image").fromarray(np.ascontiguousarray(moved))
        return made


@dataclass(frozen=True, eq=False)
class ShiftedImages:
    """The images of a source, each shifted to its domain ("": left alone)."""

    inner: Source
    domains: Domains
    delta: float

    @property
    def root(self) -> Path:
        return self.inner.root

    def __len__(self) -> int:
        return len(self.inner)

    def where(self, i: int) -> str:
        domain = str(self.domains[i])
        return self.inner.where(i) + (f" ({domain} ×{self.delta:g})" if domain else "")

    def read(self, i: int) -> bytes:
        return f"{self.domains[i]} {self.delta!r}\n".encode() + self.inner.read(i)

    def decode(self, data: bytes, where: str) -> Image:
        about, _, rest = data.partition(b"\n")
        domain = about.decode().split(" ")[0]
        image: Image = self.inner.decode(rest, where)
        return DomainShift(self.delta, domain).image(image)

    def stamp(self, i: int) -> Stamp | None:
        return self.inner.stamp(i)


def shifted(images: ImageSet, domains: ArrayLike, delta: float) -> ImageSet:
    """The same set with the images of each domain shifted by `delta`."""
    names = checked_domains(domains, len(images))
    if delta == 1:
        return images
    return replace(images, source=ShiftedImages(images.source, names, float(delta)))


def _scaled(values: NDArray[Any], factor: float) -> NDArray[Any]:
    if values.dtype != np.uint8:
        return np.asarray(values * values.dtype.type(factor))
    # 256 values are possible: a table is exact and needs no copy of the images in floats.
    table = np.clip(np.rint(np.arange(256) * factor), 0, 255).astype(np.uint8)
    return table[values]


def checked_domains(domains: ArrayLike, n: int) -> NDArray[Any]:
    """Return the domains as an array; refuse other than one known name per image."""
    names = np.asarray(domains)
    if names.shape != (n,):
        raise DataError(f"domains: expected one per image ({n}), got shape {names.shape}")
    unknown = [name for name in np.unique(names).tolist() if name not in ("", *CHANNELS)]
    if unknown:
        raise DataError(f"domains: expected {', '.join(CHANNELS)} or '', got {unknown[0]!r}")
    return names


def _check_delta(delta: float) -> None:
    if not isinstance(delta, (int, float, np.number)) or not 1 <= delta < np.inf:
        raise DataError(f"delta: expected a finite number of at least 1, got {delta!r}")

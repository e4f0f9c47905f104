"""A set of images whose colours are shifted as they are decoded, before all other preprocessing.

The shift stands in the bytes of an image as they are read, so that what identifies the image
(its hash, and with it the cache of its features) changes with its domain and with δ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from headstart.data.backbones.preprocess import as_rgb
from headstart.data.image_set import ImageSet
from headstart.data.sample_set import Source, Stamp
from headstart.data.shift import Domains, checked_domains, shift
from headstart.optional import require

if TYPE_CHECKING:
    from PIL.Image import Image


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
        told, _, rest = data.partition(b"\n")
        domain = told.decode().split(" ")[0]
        image: Image = self.inner.decode(rest, where)
        if not domain or self.delta == 1:
            return image
        planes = np.asarray(as_rgb(image)).transpose(2, 0, 1)
        moved = shift(planes[None], [domain], self.delta)[0].transpose(1, 2, 0)
        made: Image = require("PIL.Image").fromarray(np.ascontiguousarray(moved))
        return made

    def stamp(self, i: int) -> Stamp | None:
        return self.inner.stamp(i)


def shifted(images: ImageSet, domains: ArrayLike, delta: float) -> ImageSet:
    """The same set with the images of each domain shifted by `delta`."""
    names = checked_domains(domains, len(images))
    return replace(images, source=ShiftedImages(images.source, names, float(delta)))

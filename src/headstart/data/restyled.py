"""A labelled set in the styles of others: each image takes the style of a row drawn for it.

What a server does to its source before it measures or trains on it. Which row an image takes is a
function of the seed and the image's place alone, so the same set gives the same bits again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headstart.data.augment.base import Draw
from headstart.data.augment.restyle import Restyling
from headstart.data.backbones.preprocess import as_rgb
from headstart.data.image_set import ImageSet, Source, Stamp
from headstart.data.styles import Floats
from headstart.errors import DataError
from headstart.optional import require

Images = TypeVar("Images", bound=ImageSet)


@dataclass(frozen=True, eq=False)
class RestyledImages:
    """The images of a source, each in the style of one of `rows`."""

    inner: Source
    how: Restyling
    rows: Floats
    chosen: NDArray[np.int64]  # of each image: its row

    @property
    def root(self) -> Path:
        root: Path = self.inner.root
        return root

    def __len__(self) -> int:
        return len(self.inner)

    def where(self, i: int) -> str:
        return f"{self.inner.where(i)} ({self.how.name})"

    def read(self, i: int) -> bytes:
        """The style and the file, so that what is cached by its bytes is cached by both."""
        row = self.rows[self.chosen[i]]
        return b"%d %s\n" % (len(row), self.how.name.encode()) + row.tobytes() + self.inner.read(i)

    def decode(self, data: bytes, where: str) -> Any:
        about, _, rest = data.partition(b"\n")
        size = 8 * int(about.split(b" ")[0])
        row = np.frombuffer(rest[:size], np.float64)
        image = as_rgb(self.inner.decode(rest[size:], where))
        pixels = np.asarray(image).transpose(2, 0, 1)[None]
        made = self.how.restyled(pixels, row, Draw(row.tobytes(), self.how.name, 0))[0]
        return require("PIL.Image").fromarray(np.ascontiguousarray(made.transpose(1, 2, 0)))

    def stamp(self, i: int) -> Stamp | None:
        return None  # a record of hashes by name is that of the files as they are


def restyled(images: Images, how: Restyling, rows: Floats, seed: int = 0) -> Images:
    """The same set, every image in the style of a row drawn at random."""
    table = np.ascontiguousarray(np.atleast_2d(np.asarray(rows, np.float64)))
    if table.ndim != 2 or not table.size or not np.isfinite(table).all():
        raise DataError(f"rows: expected styles, a finite row each, got shape {table.shape}")
    chosen = np.random.default_rng([seed, 0x57F1E]).integers(len(table), size=len(images))
    return replace(images, source=RestyledImages(images.source, how, table, chosen))

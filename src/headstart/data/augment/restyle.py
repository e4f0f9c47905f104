"""Images in the style of other clients' images: CFSI, LAB and FDA (see `headstart.data.styles`).

A client sends a style of each of its images (for FDA the mean of them, one row), and receives those
of all other clients, never its own. In training an image takes, with a `probability`, the style of
a row drawn at random; everywhere else images are as they are. FedDrive's published program
translates every other image, always the same ones, which is the same in expectation and mixes less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headstart.data import checks, styles
from headstart.data.augment.base import Augmentation, Draw
from headstart.data.styles import Floats, OtherStyles
from headstart.errors import DataError, HeadstartError
from headstart.optional import require

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 256  # pixels, to which images are brought before their amplitudes are measured


class Restyling(Augmentation):
    """How styles of images are measured, and how one is put on another image."""

    needs_decoded: ClassVar[bool] = True
    styles: ClassVar[bool] = True
    probability: float

    def measured(self, image: Image) -> Floats:
        """The style of an RGB image, a row."""
        raise NotImplementedError

    def sent(self, rows: Floats) -> Floats:
        """What a client sends of its images' styles: a row each."""
        return rows

    def restyled(self, pixels: NDArray[Any], row: Floats, draw: Draw) -> NDArray[Any]:
        """1×3×h×w bytes in the style of a row."""
        raise NotImplementedError

    def image(self, image: Image, draw: Draw) -> Image:
        raise HeadstartError(f"{self.name}: expected the styles of other clients, got none")

    def with_styles(self, bank: OtherStyles) -> Augmentation:
        """Of a client that has received the styles of all others."""
        return Restyled(self, bank)


@dataclass(frozen=True)
class LAB(Restyling):
    """The colours of another client's image, in CIE LAB (clients exchange six numbers an image)."""

    name: ClassVar[str] = "lab"
    probability: float = 0.5
    mean: bool = False  # a client sends the mean row of its images, not a row for each

    def __post_init__(self) -> None:
        checks.share("probability", self.probability)
        if not isinstance(self.mean, bool):
            raise DataError(f"mean: expected true or false, got {self.mean!r}")

    def measured(self, image: Image) -> Floats:
        found: Floats = styles.colours(_pixels(image))[0]
        return found

    def sent(self, rows: Floats) -> Floats:
        return rows.mean(axis=0, keepdims=True) if self.mean else rows

    def restyled(self, pixels: NDArray[Any], row: Floats, draw: Draw) -> NDArray[Any]:
        return styles.lab(pixels, row)


@dataclass(frozen=True)
class CFSI(Restyling):
    """The low frequencies of another client's image, mixed in at random (clients exchange them)."""

    name: ClassVar[str] = "cfsi"
    probability: float = 0.5
    share: float = styles.SHARE  # of a side: how far the window reaches from its centre
    side: int = SIDE

    def __post_init__(self) -> None:
        checks.share("probability", self.probability)
        checks.share("share", self.share)
        checks.count("side", self.side)

    def measured(self, image: Image) -> Floats:
        return _window(image, self.side, styles.half_window(self.side, self.side, self.share)[0])

    def restyled(self, pixels: NDArray[Any], row: Floats, draw: Draw) -> NDArray[Any]:
        return styles.fda(pixels, _square(row), draw.uniform())


@dataclass(frozen=True)
class FDA(Restyling):
    """The mean low frequencies of another client: LADD's source (clients exchange a row each)."""

    name: ClassVar[str] = "fda"
    probability: float = 1.0
    half: int = 1  # a window of 3×3
    side: int = SIDE

    def __post_init__(self) -> None:
        checks.share("probability", self.probability)
        checks.count("side", self.side)
        if not checks.is_integer(self.half) or not 0 <= self.half <= (self.side - 1) // 2:
            most = (self.side - 1) // 2
            raise DataError(f"half: expected a whole number up to {most}, got {self.half!r}")

    def measured(self, image: Image) -> Floats:
        return _window(image, self.side, self.half)

    def sent(self, rows: Floats) -> Floats:
        return rows.mean(axis=0, keepdims=True)

    def restyled(self, pixels: NDArray[Any], row: Floats, draw: Draw) -> NDArray[Any]:
        return styles.fda(pixels, _square(row))


@dataclass(frozen=True, eq=False)
class Restyled(Augmentation):
    """A restyling with the styles of others; a client that is alone sees its images as they are."""

    of: Restyling
    bank: OtherStyles

    needs_decoded: ClassVar[bool] = True

    @property
    def name(self) -> str:  # type: ignore[override]  # of the restyling: draws are by it
        return self.of.name

    def image(self, image: Image, draw: Draw) -> Image:
        if draw.uniform() >= self.of.probability or not len(self.bank):
            return image
        row = self.bank.row(draw.below(len(self.bank)))
        made = self.of.restyled(_pixels(image), row, draw)[0].transpose(1, 2, 0)
        changed: Image = require("PIL.Image").fromarray(np.ascontiguousarray(made))
        return changed


def _pixels(image: Image) -> NDArray[np.uint8]:
    """1×3×h×w bytes of an RGB image."""
    return np.asarray(image).transpose(2, 0, 1)[None]


def _window(image: Image, side: int, half: int) -> Floats:
    """The amplitudes of an image brought to side×side, a row: of one length whatever its size."""
    resampling = require("PIL.Image").Resampling.BILINEAR
    square = image.resize((side, side), resampling)
    return styles.amplitudes(_pixels(square), (half, half)).ravel()


def _square(row: Floats) -> Floats:
    """The window that a row is, 3×k×k."""
    k = math.isqrt(len(row) // 3)
    return row.reshape(3, k, k)

"""From a photograph to a network's input: resize the shorter side, crop the centre, normalize.

The arithmetic (sizes, rounding, order) is that of the recipes the published weights were trained
with, so that the features are those of the papers. Pillow's resizing is antialiased.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart.data import checks
from headstart.errors import DataError
from headstart.optional import require

if TYPE_CHECKING:
    from PIL import Image

Triple = tuple[float, float, float]
IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)
INTERPOLATIONS = ("bilinear", "bicubic")
_SIXTEEN_BIT = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_WIDEST = 16  # beyond this ratio of the sides, ends that the crop drops anyway are not resized


@dataclass(frozen=True)
class Preprocess:
    """Shorter side to `resize`, the central `size`×`size`, then (x/255 − mean)/std per channel."""

    size: int = 224
    resize: int = 256
    interpolation: str = "bilinear"
    mean: Triple = IMAGENET_MEAN
    std: Triple = IMAGENET_STD

    def __post_init__(self) -> None:
        checks.count("size", self.size)
        checks.count("resize", self.resize)
        if self.resize < self.size:
            raise DataError(f"resize: expected at least the size {self.size}, got {self.resize}")
        if self.interpolation not in INTERPOLATIONS:
            raise DataError(
                f"interpolation: expected {' or '.join(INTERPOLATIONS)}, got {self.interpolation!r}"
            )
        object.__setattr__(self, "mean", _triple("mean", self.mean))
        object.__setattr__(self, "std", _triple("std", self.std))
        if min(self.std) <= 0:
            raise DataError(f"std: expected numbers above 0, got {self.std}")

    def for_small(self) -> Preprocess:
        """For images smaller than the input (CIFAR's 32 pixels): no margin to crop away."""
        return replace(self, resize=self.size)

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, self.size, self.size

    def __call__(self, image: Image.Image) -> NDArray[np.float32]:
        """The network's input, (3, size, size), from an image of any mode and orientation."""
        out = np.empty(self.shape, np.float32)
        self.into(image, out)
        return out

    def into(self, image: Image.Image, out: NDArray[np.float32]) -> None:
        """The same, written to a place that is there: fresh memory costs more than the pixels."""
        normalize(self.resized(image), self.mean, self.std, out)

    def resized(self, image: Image.Image) -> Image.Image:
        """The `size`×`size` colours of an image, before they are normalized."""
        try:
            return _central(self._resize(as_rgb(image)), self.size, self.size)
        except (OSError, SyntaxError) as error:  # how Pillow reports a damaged file
            raise DataError(f"image: cannot be decoded: {error}") from error

    def part(self, image: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
        """`size`×`size` colours of the part of an RGB image in a box, of whatever proportions."""
        return image.resize((self.size, self.size), self._filter, box)

    @property
    def _filter(self) -> Any:
        return getattr(require("PIL.Image").Resampling, self.interpolation.upper())

    def _resize(self, image: Image.Image) -> Image.Image:
        most = _WIDEST * min(image.size)
        image = _central(image, most, most)
        longer = int(self.resize * max(image.size) / min(image.size))
        upright = image.width <= image.height
        size = (self.resize, longer) if upright else (longer, self.resize)
        return image.resize(size, self._filter)


@dataclass(frozen=True)
class Whole:
    """The whole image brought to `height`×`width` (multiples of 8), normalized as `Preprocess`."""

    height: int
    width: int
    interpolation: str = "bilinear"
    mean: Triple = IMAGENET_MEAN
    std: Triple = IMAGENET_STD

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            checks.count(name, getattr(self, name))
            if getattr(self, name) % 8:
                raise DataError(f"{name}: expected a multiple of 8, got {getattr(self, name)}")
        object.__setattr__(self, "mean", _triple("mean", self.mean))
        object.__setattr__(self, "std", _triple("std", self.std))

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, self.height, self.width

    def __call__(self, image: Image.Image) -> NDArray[np.float32]:
        out = np.empty(self.shape, np.float32)
        self.into(image, out)
        return out

    def into(self, image: Image.Image, out: NDArray[np.float32]) -> None:
        """As `Preprocess.into`; an image of that size already keeps its pixels."""
        normalize(self.resized(image), self.mean, self.std, out)

    def resized(self, image: Image.Image) -> Image.Image:
        """The `height`×`width` colours of an image, before they are normalized."""
        try:
            rgb = as_rgb(image)
        except (OSError, SyntaxError) as error:
            raise DataError(f"image: cannot be decoded: {error}") from error
        if rgb.size == (self.width, self.height):
            return rgb
        return self.part(rgb, (0, 0, *rgb.size))

    def part(self, image: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
        """`height`×`width` colours of the part of an RGB image in a box."""
        how = getattr(require("PIL.Image").Resampling, self.interpolation.upper())
        return image.resize((self.width, self.height), how, box)


def normalize(image: Image.Image, means: Triple, stds: Triple, out: NDArray[np.float32]) -> None:
    """(x/255 − mean)/std of an RGB image, with one product and one sum, plane by plane."""
    for place, plane, mean, std in zip(out, image.split(), means, stds, strict=True):
        np.multiply(np.asarray(plane), np.float32(1 / (255 * std)), out=place)
        place -= np.float32(mean / std)


def as_rgb(image: Image.Image) -> Image.Image:
    """Upright, 8 bits, three channels; what is transparent becomes white."""
    image = require("PIL.ImageOps").exif_transpose(image)
    if not min(image.size):
        raise DataError(f"image: expected pixels, got a size of {image.width}×{image.height}")
    if image.mode in _SIXTEEN_BIT:
        return _eight_bit(image).convert("RGB")
    if image.mode == "F":
        raise DataError("image: expected 8 or 16 bits per channel, got floating point (mode F)")
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    image = image.convert("RGBA")
    white = require("PIL.Image").new("RGBA", image.size, "white")
    white.alpha_composite(image)
    return white.convert("RGB")


def _eight_bit(image: Image.Image) -> Image.Image:
    """65535 ↦ 255; Pillow's own conversion clips everything above 255 to white."""
    values = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
    scaled: Image.Image = require("PIL.Image").fromarray(((values + 128) // 257).astype(np.uint8))
    return scaled


def _central(image: Image.Image, width: int, height: int) -> Image.Image:
    """The middle of an image, at most this large."""
    width, height = min(width, image.width), min(height, image.height)
    if (width, height) == image.size:
        return image
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))


def _triple(name: str, values: Any) -> Triple:
    numbers = np.asarray(values, np.float64)
    if numbers.shape != (3,) or not np.isfinite(numbers).all():
        raise DataError(f"{name}: expected three finite numbers, got {values!r}")
    red, green, blue = numbers.tolist()
    return red, green, blue

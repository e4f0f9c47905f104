"""Images as samples: the bytes of each are decoded by Pillow, on demand."""

from __future__ import annotations

import struct
import warnings
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, ClassVar

from headstart.data.sample_set import CorruptSample, SampleSet, Source, Stamp
from headstart.optional import require

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["CorruptImage", "ImageSet", "Source", "Stamp", "decode"]

# Only these decoders are tried: another of Pillow's (EPS) would start a program.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")

PIXELS = 2**26  # of an image; a file of a hundred kilobytes can claim many more

_UNDECODABLE = (  # what Pillow's decoders raise on bad bytes; MemoryError is not one of them
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    EOFError,
    NotImplementedError,
    struct.error,
    zlib.error,
)


class CorruptImage(CorruptSample):
    """An image whose bytes cannot be read or decoded."""


class ImageSet(SampleSet):
    """Labelled images; `open` gives each in its own mode."""

    kind: ClassVar[str] = "image"

    def open(self, i: int) -> Image:
        """Image `i`, decoded; `CorruptImage` when it cannot be."""
        image: Image = super().open(i)
        return image


def decode(data: bytes, where: str) -> Image:
    """The image in an encoded file, loaded whole, in its own mode; of an animation, a frame."""
    return _opened(data, where, load=True)


def size(data: bytes, where: str) -> tuple[int, int]:
    """Width and height of the image in an encoded file, from its header."""
    width, height = _opened(data, where, load=False).size
    return width, height


def _opened(data: bytes, where: str, *, load: bool) -> Image:
    pillow = require("PIL.Image")
    if not data:
        raise CorruptImage(where, "expected an image, got an empty file")
    try:
        with warnings.catch_warnings(action="ignore", category=pillow.DecompressionBombWarning):
            image: Image = pillow.open(BytesIO(data), formats=FORMATS)
        if image.width * image.height > PIXELS:  # before its pixels have any memory
            raise ValueError(f"expected at most {PIXELS} pixels, got {image.width}×{image.height}")
        if load:
            image.load()
    except pillow.UnidentifiedImageError as error:
        formats = ", ".join(FORMATS)
        raise CorruptImage(where, f"expected an image ({formats}), got something else") from error
    except (pillow.DecompressionBombError, *_UNDECODABLE) as error:
        raise CorruptImage(where, f"cannot be decoded: {error}") from error
    return image

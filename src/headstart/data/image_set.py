"""A set of images that are decoded one by one, when asked: only labels and names are in memory.

A source (files, an archive, CIFAR records) gives the bytes of a sample and decodes them; what
identifies a sample is the hash of those bytes, wherever they are stored.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError
from headstart.labels import Labels, as_labels

if TYPE_CHECKING:
    from PIL.Image import Image

Stamp: TypeAlias = tuple[int, int, int]  # size, mtime_ns, ctime_ns

# Only these decoders are tried: another of Pillow's (EPS) would start a program.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")

_ADDRESS = re.compile(r" ?<[^<>]* at 0x[0-9a-fA-F]+>")
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


class CorruptImage(DataError):
    """A sample whose bytes cannot be read or decoded; `reason` does not depend on where it is."""

    def __init__(self, where: str, reason: object) -> None:
        self.reason = " ".join(_ADDRESS.sub("", str(reason)).split())[:200]
        super().__init__(f"{where}: {self.reason}")


class Source(Protocol):
    """Where samples come from; safe to use from several threads."""

    @property
    def root(self) -> Path:
        """The file or folder that holds the samples."""

    def __len__(self) -> int: ...

    def where(self, i: int) -> str:
        """The name of sample `i`, for people."""

    def read(self, i: int) -> bytes:
        """The bytes of sample `i`, or `CorruptImage`."""

    def decode(self, data: bytes, where: str) -> Image:
        """The image in the bytes of a sample, loaded whole, or `CorruptImage`."""

    def stamp(self, i: int) -> Stamp | None:
        """What changes when the file of sample `i` does; None when hashing it is as cheap."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled images: decoded by `open`, never held; samples keep the order of the source."""

    name: str
    source: Source
    labels: Labels
    clients: NDArray[np.str_] | None = None
    domains: NDArray[np.str_] | None = None
    test: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", as_labels(self.labels, f"{self.name}: labels"))
        if not len(self.source):
            raise DataError(f"{self.name}: expected at least one image, got none")
        for field in ("labels", "clients", "domains", "test"):
            values = getattr(self, field)
            if values is not None and len(values) != len(self.source):
                raise DataError(
                    f"{self.name}: {field}: expected one an image ({len(self.source)}), "
                    f"got {len(values)}"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def open(self, i: int) -> Image:
        """Image `i`, decoded, in its own mode; `CorruptImage` when it cannot be."""
        return self.source.decode(self.source.read(i), self.where(i))

    def content(self, i: int) -> str:
        """The SHA-256 of the bytes of image `i`; of an unreadable one, that of the reason."""
        return fetch(self.source, i)[1]

    def where(self, i: int) -> str:
        """The name of image `i`, for people."""
        return self.source.where(i)


def fetch(source: Source, i: int) -> tuple[bytes | CorruptImage, str]:
    """The bytes of sample `i`, or why there are none, and the hash that identifies them."""
    try:
        data = source.read(i)
    except CorruptImage as bad:
        return bad, hashlib.sha256(f"unreadable: {bad.reason}".encode()).hexdigest()
    return data, hashlib.sha256(data).hexdigest()


def decode(data: bytes, where: str) -> Image:
    """The image in an encoded file, loaded whole, in its own mode; of an animation, a frame."""
    pillow: Any = import_pillow()
    if not data:
        raise CorruptImage(where, "expected an image, got an empty file")
    try:
        image: Image = pillow.open(BytesIO(data), formats=FORMATS)
        image.load()
    except pillow.UnidentifiedImageError as error:
        known = ", ".join(FORMATS)
        raise CorruptImage(where, f"expected an image ({known}), got something else") from error
    except (pillow.DecompressionBombError, *_UNDECODABLE) as error:
        raise CorruptImage(where, f"cannot be decoded: {error}") from error
    return image


def import_pillow() -> Any:
    """The module PIL.Image, or the error that says how to get it."""
    try:
        import PIL.Image
    except ImportError:
        raise DataError('images need Pillow: pip install "headstart[vision]"') from None
    return PIL.Image

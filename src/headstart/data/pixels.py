"""Images as one array: n×3×h×w, red, green, blue; uint8 from 0 to 255, or float from 0 to 1."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError

Images: TypeAlias = NDArray[Any]  # uint8, float32 or float64, as `as_images` checks

_KINDS = (np.uint8, np.float32, np.float64)


def as_images(values: ArrayLike, name: str = "images") -> Images:
    """`values` as an n×3×h×w array of uint8, float32 or float64; floats must be finite."""
    try:
        images = np.asarray(values)
    except ValueError:
        raise DataError(f"{name}: expected images of one size, got several sizes") from None
    if images.ndim != 4 or images.shape[1] != 3 or not images.shape[2] * images.shape[3]:
        raise DataError(f"{name}: expected n×3×h×w (RGB, channels first), got {_shape(images)}")
    if images.dtype not in _KINDS:
        raise DataError(f"{name}: expected uint8, float32 or float64, got {images.dtype}")
    if images.dtype.kind == "f":
        sound = np.isfinite(images).all(axis=(1, 2, 3))
        if not sound.all():
            bad = int(np.argmin(sound))
            raise DataError(f"{name}: expected finite pixels, got NaN or infinity in image {bad}")
    return images


def _shape(images: Images) -> str:
    return f"shape {images.shape}" if images.ndim else "a single value"

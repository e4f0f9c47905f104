"""Styles of images: what a picture looks like, apart from what is in it, and how to change it.

A style is a row of numbers of one image, or the mean of a client's images:

    amplitudes   |F(x)|/(h·w) of the lowest frequencies, in a centred window of (2a+1)×(2b+1), for
                 each channel. Divided by the pixels, so that images of unlike sizes compare; the
                 centre of the window is the mean colour. The phase, where things are, is left out.
    colours      mean and deviation of L, a and b (CIE LAB, D65), six numbers.

Changing an image x to the style of another:

    FDA          A′ = (1−λ)·A + λ·a inside the window, A elsewhere; x′ = Re F⁻¹(A′·e^{i∠F(x)}),
                 clipped (Yang and Soatto 2020). CFSI (FedDrive, Fantauzzo et al. 2022) is FDA with
                 another image's window of 11% of each side and λ uniform from 0 to 1. Its published
                 program takes the absolute value for the real part, and lets bytes wrap around.
    LAB          (x − μ)/σ·σ′ + μ′ for each channel of CIE LAB, and back, clipped.

**What a bank reveals.** Rows, not sums: each is of one image (or, in LADD, of one client), and all
other clients receive it. Colours are six numbers of an image; a window of amplitudes is what a
thumbnail is without its phase; its centre is the mean colour. No mask hides rows: privacy code
refuses a `StyleBank`, and `StyleRows` on their way, by type.

Images are n×3×h×w, bytes or floats from 0 to 1, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.data import checks
from headstart.data.pixels import Images, as_images
from headstart.errors import DataError

Floats: TypeAlias = NDArray[np.float64]
Half: TypeAlias = tuple[int, int]  # a window reaches so far from its centre, down and across

LEAST_DEVIATION = 100 / 255  # of L, a and b: one grey level; less would only magnify rounding
SHARE = 0.05  # CFSI's: a window reaches so much of each side from its centre

# Linear sRGB to XYZ, relative to the white of D65, so that grey has a = b = 0.
_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
_TO_XYZ = _XYZ / _XYZ.sum(axis=1, keepdims=True)
_TO_RGB = np.linalg.inv(_TO_XYZ)
_TO_LAB = np.array([[0.0, 116.0, 0.0], [500.0, -500.0, 0.0], [0.0, 200.0, -200.0]])
_FROM_LAB = np.linalg.inv(_TO_LAB)
_KNEE = 6 / 29  # below its cube, the cube root is a line


# --- Amplitudes


def half_window(height: int, width: int, share: float = SHARE) -> Half:
    """How far CFSI's window reaches in an image of this size."""
    checks.share("share", share)
    return _fitting((int(share * height), int(share * width)), height, width)


def amplitudes(images: ArrayLike, half: Half = (1, 1)) -> Floats:
    """|F|/(h·w) of each image and channel around frequency 0, n×3×(2a+1)×(2b+1), from 0 to 255.

    Refused where an image is too small for the window.
    """
    values = _grey_levels(as_images(images))
    height, width = values.shape[2:]
    if _fitting(half, height, width) != tuple(half) or min(half) < 0:
        most = _fitting((height, width), height, width)
        raise DataError(f"half: expected from (0, 0) to {most} for {height}×{width}, got {half}")
    down, across = (_waves(reach, side) for reach, side in zip(half, (height, width), strict=True))
    found: Floats = np.abs(down @ (values @ across.T)) / (height * width)
    return found


def fda(images: ArrayLike, windows: ArrayLike, mix: ArrayLike = 1.0) -> Images:
    """Images with the amplitudes of other ones at low frequencies, of the same type.

    `windows`: as `amplitudes` gives them, one per image or one for all (of a window that is larger
    than an image, what fits); `mix`: λ, one per image or one for all.
    """
    pixels = as_images(images)
    return _as(_restyled(pixels, windows, mix).real, pixels.dtype)


def _restyled(pixels: Images, windows: ArrayLike, mix: ArrayLike) -> NDArray[np.complex128]:
    """F⁻¹(A′·e^{i∠F}), in grey levels; its imaginary part is rounding."""
    values, style = _grey_levels(pixels), np.asarray(windows, np.float64)
    height, width = values.shape[2:]
    style = np.broadcast_to(style, (len(values), *style.shape[-3:]))
    told = (style.shape[2] // 2, style.shape[3] // 2)
    half = _fitting(told, height, width)
    style = style[:, :, told[0] - half[0] :, told[1] - half[1] :]
    style = style[:, :, : 2 * half[0] + 1, : 2 * half[1] + 1] * (height * width)
    weight = np.asarray(mix, np.float64).reshape(-1, 1, 1, 1)
    spectrum, at = np.fft.fft2(values), _window(half)
    inside = spectrum[at]
    mixed = (1 - weight) * np.abs(inside) + weight * style
    spectrum[at] = mixed * np.exp(1j * np.angle(inside))
    return np.fft.ifft2(spectrum)


def _waves(reach: int, side: int) -> NDArray[np.complex128]:
    """e^{−2πi·kx/side}, a row for each k from −reach to reach: few frequencies need no whole F."""
    turns = np.outer(np.arange(-reach, reach + 1), np.arange(side)) % side
    return np.exp(-2j * np.pi / side * turns)


def _window(half: Half) -> Any:
    """The places of a centred window in a spectrum, whose frequency 0 is the first."""
    rows, columns = (np.arange(-reach, reach + 1) for reach in half)
    return ..., rows[:, None], columns


def _fitting(half: Half, height: int, width: int) -> Half:
    """At most so far that no frequency stands twice, nor alone without its conjugate."""
    return min(int(half[0]), (height - 1) // 2), min(int(half[1]), (width - 1) // 2)


# --- Colours


def to_lab(images: ArrayLike) -> Floats:
    """CIE LAB of sRGB images, n×3×h×w: L from 0 to 100, a and b around 0."""
    values = _grey_levels(as_images(images)) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    xyz = _mixed(_TO_XYZ, linear)
    root = np.where(xyz > _KNEE**3, np.cbrt(xyz), xyz / (3 * _KNEE**2) + 4 / 29)
    return _mixed(_TO_LAB, root) - np.array([16.0, 0.0, 0.0])[:, None, None]


def from_lab(lab: NDArray[Any], kind: Any = np.float64) -> Images:
    """The sRGB images of CIE LAB, of this type; colours that no screen has are clipped."""
    root = _mixed(_FROM_LAB, lab + np.array([16.0, 0.0, 0.0])[:, None, None])
    xyz = np.where(root > _KNEE, root**3, 3 * _KNEE**2 * (root - 4 / 29))
    linear = _mixed(_TO_RGB, xyz).clip(0, 1)
    values = np.where(
        linear <= 0.04045 / 12.92, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055
    )
    return _as(255 * values, np.dtype(kind))


def colours(images: ArrayLike) -> Floats:
    """Mean and deviation of L, a and b of each image, n×6."""
    lab = to_lab(images)
    return np.concatenate([lab.mean(axis=(2, 3)), lab.std(axis=(2, 3))], axis=1)


def lab(images: ArrayLike, rows: ArrayLike) -> Images:
    """Images with the colours of other ones (rows of `colours`, one per image or one for all)."""
    pixels = as_images(images)
    told = np.atleast_2d(np.asarray(rows, np.float64))[:, :, None, None]
    values = to_lab(pixels)
    mean, deviation = (f(values, axis=(2, 3), keepdims=True) for f in (np.mean, np.std))
    scaled = (values - mean) / np.maximum(deviation, LEAST_DEVIATION) * told[:, 3:]
    return from_lab(scaled + told[:, :3], pixels.dtype)


# --- Banks


@dataclass(frozen=True, eq=False)
class StyleBank:
    """Styles of all clients: a row each (N×m), and whose it is. Rows stack and do not add."""

    rows: NDArray[np.floating[Any]]
    owners: tuple[str, ...]

    is_sum: ClassVar[bool] = False

    def __post_init__(self) -> None:
        rows = np.asarray(self.rows)
        if rows.ndim != 2 or rows.dtype.kind != "f" or not np.isfinite(rows).all():
            raise DataError(
                f"rows: expected finite numbers, a row per style, got shape {rows.shape}"
            )
        if len(self.owners) != len(rows):
            raise DataError(f"owners: expected one per row ({len(rows)}), got {len(self.owners)}")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    @classmethod
    def of(cls, rows: Mapping[str, ArrayLike]) -> StyleBank:
        """Of each client's rows, sorted by their bytes: the same whoever answered first."""
        tables = {name: np.atleast_2d(np.asarray(table)) for name, table in rows.items()}
        lengths = sorted({table.shape[1] for table in tables.values()})
        if len(lengths) != 1:
            raise DataError(f"rows: expected clients with rows of one length, got {lengths}")
        owners = [name for name, table in tables.items() for _ in table]
        joined = np.concatenate(list(tables.values()))
        order = sorted(range(len(joined)), key=lambda i: (joined[i].tobytes(), owners[i]))
        return cls(joined[order], tuple(owners[i] for i in order))

    def without(self, client: str = "") -> OtherStyles:
        """What a client receives: the rows of all others, not whose they are."""
        kept = [place for place, owner in enumerate(self.owners) if owner != client]
        return OtherStyles(self.rows, np.array(kept, np.int64))

    def means(self) -> dict[str, Floats]:
        """The mean row of each client, which is LADD's style."""
        owners = np.array(self.owners)
        rows = self.rows.astype(np.float64)
        return {name: rows[owners == name].mean(axis=0) for name in sorted(set(self.owners))}


@dataclass(frozen=True, eq=False)
class OtherStyles:
    """The rows of a bank that a client may use; in one process all clients share the table."""

    table: NDArray[np.floating[Any]]
    places: NDArray[np.int64]

    is_sum: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.places)

    def row(self, which: int) -> Floats:
        found: Floats = self.table[self.places[which]].astype(np.float64)
        return found


# --- Arithmetic


def _grey_levels(pixels: Images) -> Floats:
    """From 0 to 255, of bytes and of floats."""
    values = pixels.astype(np.float64)
    return values if pixels.dtype == np.uint8 else 255 * values


def _as(values: Floats, kind: np.dtype[Any]) -> Images:
    """Grey levels, clipped, as bytes (rounded) or floats from 0 to 1."""
    clipped = values.clip(0, 255)
    return np.rint(clipped).astype(kind) if kind == np.uint8 else (clipped / 255).astype(kind)


def _mixed(matrix: Floats, channels: NDArray[Any]) -> Floats:
    """matrix × channels, at every pixel."""
    return np.einsum("ij,njhw->nihw", matrix, channels)

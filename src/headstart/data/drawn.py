"""Drawn street scenes: polygons from a seed, with their masks; for demos and tests, no download.

Sky, two rows of houses with windows, trees, fences, a road with marks, pavements, cars, poles,
signs, people and bicycles; then shading, noise and gamma. They are drawings: no figure of them may
stand beside one of photographs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.image_set import Stamp, decode
from headstart.data.scenes import CAMVID, Classes, SceneSet

NAME = "streets"
DRIVES, FRAMES, SIZE = 6, 14, (192, 256)  # height and width
_AT = {name: place for place, name in enumerate(CAMVID)}
_VOID = len(CAMVID)
Colour = Sequence[float] | NDArray[np.float64]
Points = Sequence[tuple[float, float]]  # (x, y), as shares of width and height


@dataclass(frozen=True, eq=False)
class Canvas:
    """Colours (H×W×3) and ids (H×W) that polygons are filled into."""

    colours: NDArray[np.float64]
    ids: NDArray[np.uint8]

    @classmethod
    def empty(cls, height: int, width: int) -> Canvas:
        return cls(np.zeros((height, width, 3)), np.full((height, width), _VOID, np.uint8))

    def fill(self, points: Points, name: str, colour: Colour) -> None:
        """A convex or concave polygon by the even-odd rule, of pixels whose centre is inside."""
        height, width = self.ids.shape
        x, y = (np.array(part) for part in zip(*points, strict=True))
        x, y = x * width, y * height
        top, bottom = max(0, int(y.min())), min(height, int(y.max()) + 1)
        left, right = max(0, int(x.min())), min(width, int(x.max()) + 1)
        if top >= bottom or left >= right:
            return
        inside = _inside(x, y, np.arange(left, right) + 0.5, np.arange(top, bottom) + 0.5)
        self.colours[top:bottom, left:right][inside] = colour
        self.ids[top:bottom, left:right][inside] = _AT[name]

    def box(self, x: float, y: float, w: float, h: float, name: str, colour: Colour) -> None:
        self.fill([(x, y), (x + w, y), (x + w, y + h), (x, y + h)], name, colour)

    def disc(self, x: float, y: float, w: float, h: float, name: str, colour: Colour) -> None:
        """An ellipse of these radii."""
        turn = np.linspace(0, 2 * np.pi, 17)[:-1]
        points = list(zip(x + w * np.cos(turn), y + h * np.sin(turn), strict=True))
        self.fill(points, name, colour)


def _inside(
    x: NDArray[np.float64], y: NDArray[np.float64], px: NDArray[Any], py: NDArray[Any]
) -> NDArray[np.bool_]:
    """Whether a ray to the right from each point of the grid crosses the outline oddly often."""
    found = np.zeros((len(py), len(px)), np.bool_)
    for x0, y0, x1, y1 in zip(x, y, np.roll(x, -1), np.roll(y, -1), strict=True):
        rows = (y0 > py) != (y1 > py)
        if rows.any():
            cross = x0 + (py[rows] - y0) * (x1 - x0) / (y1 - y0)
            found[rows] ^= px[None, :] < cross[:, None]
    return found


def draw(
    seed: int, drive: int = 0, frame: int = 0, size: tuple[int, int] = SIZE
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Image (H×W×3) and ids (H×W): frames of one drive share its light and its street."""
    street = np.random.default_rng([seed, drive])
    rng = np.random.default_rng([seed, drive, 1 + frame])
    canvas = Canvas.empty(*size)
    horizon = 0.42 + 0.06 * street.random()
    light = 0.55 + 0.45 * street.random()
    tint = 1 + 0.16 * (street.random(3) - 0.5)
    _ground(canvas, rng, street, horizon)
    _houses(canvas, rng, horizon)
    _beside(canvas, rng, horizon)
    for depth in np.sort(rng.random(int(rng.integers(2, 6)))):
        _car(canvas, rng, horizon, depth)
    for depth in np.sort(rng.random(int(rng.integers(2, 5)))):
        (_person if rng.random() < 0.6 else _bicycle)(canvas, rng, horizon, depth)
    return _lit(canvas, rng, light * tint), canvas.ids


def _colour(rng: np.random.Generator, base: Colour, spread: float = 0.08) -> NDArray[np.float64]:
    return np.asarray(base) + spread * (rng.random(3) - 0.5) + spread * (rng.random() - 0.5)


def _ground(
    canvas: Canvas, rng: np.random.Generator, street: np.random.Generator, horizon: float
) -> None:
    """Sky, pavements, and a road that narrows to a point of the horizon."""
    canvas.box(0, 0, 1, horizon + 0.02, "sky", _colour(rng, (0.70, 0.80, 0.93), 0.15))
    canvas.box(0, horizon, 1, 1 - horizon, "pavement", _colour(street, (0.58, 0.55, 0.53)))
    away = 0.45 + 0.1 * rng.random()
    left, right = -0.1 + 0.25 * street.random(), 1.1 - 0.25 * street.random()
    road = [(away - 0.03, horizon), (away + 0.03, horizon), (right, 1), (left, 1)]
    canvas.fill(road, "road", _colour(street, (0.36, 0.36, 0.38)))
    for start in np.arange(rng.random() * 0.1, 1, 0.22):  # marks in the middle, wider when near
        y0, y1 = (horizon + (1 - horizon) * s**2 for s in (start, min(1.0, start + 0.1)))
        w0, w1 = (0.004 + 0.012 * (y - horizon) for y in (y0, y1))
        middle = [
            away + ((left + right) / 2 - away) * (y - horizon) / (1 - horizon) for y in (y0, y1)
        ]
        mark = [
            (middle[0] - w0, y0),
            (middle[0] + w0, y0),
            (middle[1] + w1, y1),
            (middle[1] - w1, y1),
        ]
        canvas.fill(mark, "road", (0.85, 0.85, 0.82))


def _houses(canvas: Canvas, rng: np.random.Generator, horizon: float) -> None:
    """A row on each side, lower towards the middle, with windows; trees between them."""
    for side in (0, 1):
        x = 0.0
        while x < 0.42:
            width = 0.07 + 0.1 * rng.random()
            top = horizon - (0.42 - 0.75 * x) * (0.55 + 0.45 * rng.random())
            base = horizon + 0.16 * (0.45 - x)
            at = x if side == 0 else 1 - x - width
            if rng.random() < 0.8:
                wall = _colour(rng, ((0.55, 0.42, 0.35), (0.66, 0.62, 0.55))[rng.integers(2)], 0.2)
                canvas.box(at, top, width, base - top, "building", wall)
                _windows(canvas, rng, at, top, width, base, wall)
            if rng.random() < 0.5:
                _tree(canvas, rng, at + width * rng.random(), base, 0.05 + 0.06 * rng.random())
            x += width


def _windows(
    canvas: Canvas,
    rng: np.random.Generator,
    x: float,
    top: float,
    width: float,
    base: float,
    wall: NDArray[np.float64],
) -> None:
    for row in np.arange(top + 0.03, base - 0.06, 0.075):
        for column in np.arange(x + 0.015, x + width - 0.02, 0.035):
            canvas.box(column, row, 0.016, 0.035, "building", wall * (0.4 + 0.25 * rng.random()))


def _tree(canvas: Canvas, rng: np.random.Generator, x: float, base: float, size: float) -> None:
    canvas.box(x - 0.006, base - 2.2 * size, 0.012, 2.2 * size, "tree", (0.30, 0.22, 0.16))
    for _ in range(6):
        dx, dy = (rng.random(2) - 0.5) * 1.3 * size
        leaf = _colour(rng, (0.22, 0.36, 0.16), 0.12)
        radius = size * (0.55 + 0.4 * rng.random())
        canvas.disc(x + dx, base - 2.6 * size + dy, radius, radius * 1.1, "tree", leaf)


def _beside(canvas: Canvas, rng: np.random.Generator, horizon: float) -> None:
    """What stands on the pavements: fences, poles, signs."""
    for side in (0, 1):
        if rng.random() < 0.6:
            start, length = 0.02 + 0.15 * rng.random(), 0.12 + 0.12 * rng.random()
            xs = [start, start + length]
            low = [horizon + 0.30 * (0.5 - x) for x in xs]
            if side:
                xs = [1 - x for x in xs]
            high = [y - 0.035 - 0.06 * (y - horizon) for y in low]
            fence = [(xs[0], high[0]), (xs[1], high[1]), (xs[1], low[1]), (xs[0], low[0])]
            canvas.fill(fence, "fence", _colour(rng, (0.40, 0.33, 0.26), 0.15))
        for _ in range(int(rng.integers(1, 4))):
            x = 0.36 * rng.random()
            base = horizon + 0.34 * (0.5 - x)
            at = x if side == 0 else 1 - x
            tall = 0.25 + 0.5 * (0.4 - x)
            canvas.box(at, base - tall, 0.008, tall, "pole", _colour(rng, (0.32, 0.32, 0.33)))
            if rng.random() < 0.7:
                sign = ((0.80, 0.15, 0.15), (0.15, 0.25, 0.70), (0.90, 0.80, 0.20))[rng.integers(3)]
                wide = 0.02 + 0.03 * (0.4 - x)
                canvas.box(at - wide / 2, base - tall, wide, 1.5 * wide, "sign", sign)


def _near(horizon: float, depth: float) -> tuple[float, float]:
    """Where something at this depth (1: nearest) stands, and how large it is."""
    return horizon + 0.03 + (0.95 - horizon) * depth**1.5, 0.05 + 0.28 * depth**1.5


def _car(canvas: Canvas, rng: np.random.Generator, horizon: float, depth: float) -> None:
    base, size = _near(horizon, 0.75 * depth)
    x = 0.5 + (0.15 + 0.5 * rng.random()) * (1 if rng.random() < 0.5 else -1) * (0.3 + 0.5 * depth)
    paint = np.array(((0.75, 0.1, 0.1), (0.1, 0.2, 0.5), (0.8, 0.8, 0.82), (0.12, 0.12, 0.13)))
    body = _colour(rng, paint[rng.integers(4)])
    high = 0.55 * size
    canvas.box(x - size / 2, base - high * 0.65, size, high * 0.55, "car", body)
    roof = [(x - 0.38 * size, base - high * 0.6), (x - 0.26 * size, base - high * 1.15)]
    roof += [(x + 0.26 * size, base - high * 1.15), (x + 0.38 * size, base - high * 0.6)]
    canvas.fill(roof, "car", body * 0.95)
    glass = [(a * 0.85 + x * 0.15, b + 0.08 * high) for a, b in roof]
    canvas.fill(glass, "car", (0.25, 0.30, 0.35))
    for wheel in (-0.32, 0.32):
        canvas.disc(
            x + wheel * size, base - 0.1 * high, 0.1 * size, 0.16 * high, "car", (0.06,) * 3
        )


def _person(canvas: Canvas, rng: np.random.Generator, horizon: float, depth: float) -> None:
    base, size = _near(horizon, 0.6 * depth)
    x = 0.04 + 0.92 * rng.random()
    high, coat = 1.1 * size, _colour(rng, (0.35, 0.25, 0.3), 0.6)
    for leg in (-0.05, 0.05):
        canvas.box(x + (leg - 0.03) * size, base - 0.45 * high, 0.06 * size, 0.45 * high, *_LEGS)
    canvas.box(x - 0.13 * size, base - 0.85 * high, 0.26 * size, 0.45 * high, "pedestrian", coat)
    canvas.disc(x, base - 0.93 * high, 0.07 * size, 0.08 * high, "pedestrian", (0.8, 0.6, 0.5))


_LEGS = ("pedestrian", (0.15, 0.15, 0.2))


def _bicycle(canvas: Canvas, rng: np.random.Generator, horizon: float, depth: float) -> None:
    base, size = _near(horizon, 0.6 * depth)
    x = 0.08 + 0.84 * rng.random()
    for wheel in (-0.3, 0.3):
        canvas.disc(x + wheel * size, base - 0.2 * size, 0.2 * size, 0.24 * size, *_WHEEL)
    shirt = _colour(rng, (0.2, 0.5, 0.6), 0.6)
    body = [(x - 0.15 * size, base - 0.4 * size), (x + 0.25 * size, base - 0.45 * size)]
    body += [(x + 0.15 * size, base - 1.0 * size), (x - 0.08 * size, base - 0.95 * size)]
    canvas.fill(body, "bicyclist", shirt)
    canvas.disc(x + 0.05 * size, base - 1.08 * size, 0.08 * size, 0.1 * size, *_FACE)


_WHEEL = ("bicyclist", (0.12, 0.12, 0.12))
_FACE = ("bicyclist", (0.75, 0.55, 0.45))


def _lit(canvas: Canvas, rng: np.random.Generator, light: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Light of the drive, a shade from one side, a small blur, noise, gamma; bytes."""
    height, width = canvas.ids.shape
    slope = 1 + 0.2 * (rng.random() - 0.5) * np.linspace(-1, 1, width)[None, :, None]
    seen = canvas.colours * light * slope
    padded = np.pad(seen, ((1, 1), (1, 1), (0, 0)), mode="edge")
    around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    seen = 0.6 * seen + 0.1 * around + 0.03 * rng.standard_normal((height, width, 1))
    gamma = 0.85 + 0.3 * rng.random()
    bytes_: NDArray[np.uint8] = np.rint(255 * np.clip(seen, 0, 1) ** gamma).astype(np.uint8)
    return bytes_


# --- As a dataset


@dataclass(frozen=True, eq=False)
class DrawnImages:
    """Images (PPM files) or masks of drives, drawn when they are read."""

    seed: int
    drives: int
    frames: int
    size: tuple[int, int]  # width and height
    masks: bool = False
    root: Path = field(default_factory=lambda: Path(NAME))

    def __len__(self) -> int:
        return self.drives * self.frames

    def where(self, i: int) -> str:
        kind = "mask" if self.masks else "image"
        return f"{NAME}: {kind} {i % self.frames} of drive {i // self.frames}"

    def read(self, i: int) -> bytes:
        width, height = self.size
        image, ids = _scene(self.seed, i // self.frames, i % self.frames, (height, width))
        if self.masks:
            return ids.tobytes()
        return b"P6 %d %d 255\n" % (width, height) + image.tobytes()

    def decode(self, data: bytes, where: str) -> Any:
        if self.masks:
            return np.frombuffer(data, np.uint8).reshape(self.size[::-1])
        return decode(data, where)

    def stamp(self, i: int) -> Stamp | None:
        return None


@functools.lru_cache(maxsize=2)
def _scene(
    seed: int, drive: int, frame: int, size: tuple[int, int]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    return draw(seed, drive, frame, size)


def streets(
    drives: int = DRIVES, frames: int = FRAMES, size: tuple[int, int] = SIZE, seed: int = 0
) -> SceneSet:
    """Drawn street scenes: a client is a drive, in its own light; the last quarter is the test."""
    height, width = size
    images, masks = (
        DrawnImages(seed, drives, frames, (width, height), masks) for masks in (False, True)
    )
    names = np.repeat([f"drive-{number}" for number in range(drives)], frames)
    made = SceneSet(
        NAME,
        images,
        np.full(len(images), "", np.str_),
        names,
        masks=masks,
        known=Classes.counted(CAMVID, [_VOID]),
    )
    return made.with_test(0.25)

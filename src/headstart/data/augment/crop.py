"""Random resized crop (Szegedy et al. 2015): a part of the image, of random size and proportions.

The share of the area is uniform from `scale` to 1, the ratio of width to height log-uniform from
3/4 to 4/3; a part that does not fit is drawn again, ten times at most, and then the whole width or
height is taken. The part is resized to the network's input, whatever its proportions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import ClassVar

from headstart.data import checks
from headstart.data.augment.base import Augmentation, Draw, Frame

WIDEST = 4 / 3
_TRIES = 10
_EXACT = Context(prec=28)  # its exponential is rounded correctly, on every machine the same
_REACH = _EXACT.ln(_EXACT.divide(Decimal(4), Decimal(3)))


@dataclass(frozen=True)
class Crop(Augmentation):
    """Random resized crop of at least this share of the area."""

    name: ClassVar[str] = "crop"
    needs_decoded: ClassVar[bool] = True
    scale: float = 0.08

    def __post_init__(self) -> None:
        checks.share("scale", self.scale)

    def frame(self, frame: Frame, draw: Draw) -> Frame:
        area = frame.width * frame.height
        for _ in range(_TRIES):
            part = area * (self.scale + (1 - self.scale) * draw.uniform())
            ratio = _log_uniform(draw)
            width, height = round(math.sqrt(part * ratio)), round(math.sqrt(part / ratio))
            left, top = draw.uniform(), draw.uniform()
            if 0 < width <= frame.width and 0 < height <= frame.height:
                x = math.floor(left * (frame.width - width + 1))
                y = math.floor(top * (frame.height - height + 1))
                return replace(frame, box=(x, y, x + width, y + height))
        return replace(frame, box=_central(frame))


def _log_uniform(draw: Draw) -> float:
    """exp(u·ln(4/3)), u from −1 to 1."""
    power = _EXACT.multiply(_REACH, Decimal(2 * draw.uniform() - 1))
    return float(_EXACT.exp(power))


def _central(frame: Frame) -> tuple[int, int, int, int]:
    """The middle of an image that is wider or higher than any part may be."""
    width = min(frame.width, max(1, round(frame.height * WIDEST)))
    height = min(frame.height, max(1, round(frame.width * WIDEST)))
    x, y = (frame.width - width) // 2, (frame.height - height) // 2
    return x, y, x + width, y + height

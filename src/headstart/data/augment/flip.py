"""Images are mirrored, left to right, every other time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from headstart.data import checks
from headstart.data.augment.base import Augmentation, Draw, Frame


@dataclass(frozen=True)
class Flip(Augmentation):
    """Horizontal flip with this probability."""

    name: ClassVar[str] = "flip"
    probability: float = 0.5

    def __post_init__(self) -> None:
        checks.share("probability", self.probability)

    def frame(self, frame: Frame, draw: Draw) -> Frame:
        mirrored = draw.uniform() < self.probability
        return replace(frame, mirrored=frame.mirrored != mirrored)

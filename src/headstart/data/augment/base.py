"""What an augmentation is: how an image may differ each time that it is read for training.

Whatever is drawn comes from a key (a client's secret, the round and the epoch), the augmentation's
name and the position of the sample, by SHA-256: it is the same on every machine, and does not
depend on what else is in a batch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

Box = tuple[int, int, int, int]  # left, upper, right, lower
Scaling = tuple[NDArray[np.float64], NDArray[np.float64]]  # mean and deviation of each channel


class Draw:
    """A stream of random numbers of its own for one augmentation of one sample."""

    def __init__(self, key: bytes, name: str, position: int) -> None:
        about = b"%d %s %s %d" % (len(key), key, name.encode(), position)
        self._seed = hashlib.sha256(b"headstart augmentation " + about).digest()
        self._count = 0

    def word(self) -> int:
        """The next 64 bits."""
        self._count += 1
        block = hashlib.sha256(self._seed + self._count.to_bytes(8, "little")).digest()
        return int.from_bytes(block[:8], "little")

    def uniform(self) -> float:
        """From 0 to less than 1, of 53 bits."""
        return (self.word() >> 11) * 2.0**-53

    def below(self, n: int) -> int:
        """A whole number from 0 to n − 1."""
        return self.word() % n


@dataclass(frozen=True)
class Frame:
    """Which part of an image is read, in pixels of the whole, and whether it is mirrored.

    What else goes with the image, as a mask of its pixels does, is read in the same frame.
    """

    width: int
    height: int
    box: Box | None = None  # None: as tested, the centre
    mirrored: bool = False


class Augmentation:
    """A frozen dataclass with a `name`, whose fields are its settings; it has any of these hooks.

    `needs_decoded`: it needs the image as it was decoded, before it is resized. `channels`: it
    is made of what clients send of their colours, by `with_channels`. `styles`: of the styles that
    all other clients send, by `with_styles` (see `headstart.data.augment.restyle`).
    """

    name: ClassVar[str]
    needs_decoded: ClassVar[bool] = False
    channels: ClassVar[bool] = False
    styles: ClassVar[bool] = False

    def image(self, image: Image, draw: Draw) -> Image:
        """An RGB image with other colours, in training."""
        return image

    def frame(self, frame: Frame, draw: Draw) -> Frame:
        """Another part of the image, in training."""
        return frame

    def scaling(self, draw: Draw | None) -> Scaling | None:
        """Mean and deviation by which x/255 is normalized; None: the network's own.

        Outside training nothing is drawn, and `draw` is None.
        """
        return None

    def with_channels(self, mine: Any, table: Any) -> Augmentation:
        """Of a client with its `own` channel statistics, when all clients' are in the `table`."""
        return self

    def with_styles(self, bank: Any) -> Augmentation:
        """Of a client that has received the `bank` of all others' styles."""
        return self

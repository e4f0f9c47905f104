"""Small images, an extractor that needs no network, and what lies in a cache."""

import time
from dataclasses import dataclass, field

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image


def preprocess(image):
    pixels = np.asarray(image.convert("RGB").resize((8, 8)), np.float32) / 255
    return pixels.transpose(2, 0, 1)


@dataclass
class Fake:
    """Every feature depends on the whole batch, so that any other batch would show."""

    identity: str = "fake-1"
    batch: int = 4
    dimension: int = 6
    name: str = "fake"
    bound: float = 9.0
    pause: float = 0.0
    parallel: int = 1
    preprocess: object = preprocess
    shapes: list = field(default_factory=list)

    def __call__(self, pixels):
        self.shapes.append(pixels.shape)
        time.sleep(self.pause)
        flat = pixels.reshape(len(pixels), -1)[:, : self.dimension]
        return flat + np.float32(pixels.mean())


def picture(path, seed):
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(256, size=(12, 10, 3), dtype=np.uint8)).save(path)


def folder(root, count=27):
    for i in range(count):
        picture(root / f"client{i % 2}" / f"class{i % 3}" / f"{i:04d}.png", i)
    return root


def files(cache):
    """The slots of a cache: what every file of each holds, but for the lock."""
    return {
        path.relative_to(cache).as_posix(): path.read_bytes()
        for path in sorted(cache.rglob("*"))
        if path.is_file() and path.name != "lock" and path.parent.name != "hashes"
    }


class StopError(Exception):
    pass

"""Pipelines on digits and on painted pictures, and parts of their results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image

from headstart.pipeline.config import parsed
from headstart.pipeline.run import simulate

DIGITS = {
    "data": "digits",
    "held_out": 0.4,
    "partition": {"name": "dirichlet", "clients": 12, "alpha": 0.3},
}


def run(experiment, text, **how):
    """The result, the model and the context of a pipeline."""
    return simulate(experiment, parsed(text), **how)


def result_of(experiment, text):
    return run(experiment, text)[0]


def model_of(experiment, text):
    return run(experiment, text)[1]


def timeless(result):
    """A result without when it was made and how long that took."""
    return replace(result, seconds=None, created="")


def shared(result):
    return result.personal.weighted("global")


def own(result):
    return result.personal.weighted()


def spent(before, after, keys=("flops", "counted")):
    return [getattr(after, key) - getattr(before, key) for key in keys]


def painted(folder, wrong=99):
    """Four clients, three classes told by colour, 12 pixels; every so many are of another class."""
    rng = np.random.default_rng(0)
    for client in range(4):
        for at in range(18):
            pixels = rng.integers(0, 90, (12, 12, 3))
            pixels[:, :, at % 3] += 110
            place = folder / f"c{client}" / f"k{(at + (at % wrong == 5)) % 3}" / f"{at}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(place)
    return {"data": str(folder), "network": "small_cnn", "pixels": 8, "held_out": 0.3, "cohort": 2}

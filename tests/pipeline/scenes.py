"""Painted scenes, small and quick: drives of other light, three classes, masks beside them."""

from __future__ import annotations

import numpy as np
from PIL import Image

SIDES = (32, 64)
NAMES = ("road", "sky", "car")
QUICK = "batch=4, lr=0.02, hardest=0.25"


def painted_scenes(folder, drives=3, frames=10, unseen=4):
    """A generic layout: drives d0 … whose frames train, and one of other light that is the test."""
    rng = np.random.default_rng(0)
    rows = ["name,split,client"]
    for drive in range(drives + 1):
        light = rng.uniform(0.4, 1.0, 3)
        for frame in range(frames if drive < drives else unseen):
            mask = np.full(SIDES, 1, np.uint8)
            mask[16 + frame % 4 :] = 0
            left = int(rng.integers(0, 48))
            mask[12:24, left : left + 16] = 2
            mask[:2] = 9
            colours = np.array([[60, 60, 60], [120, 170, 230], [220, 60, 40], *[[0] * 3] * 7])
            image = colours[mask] * light + rng.integers(0, 25, (*SIDES, 3))
            name = f"d{drive}_{frame:02d}"
            for place, pixels in (("images", image), ("masks", mask)):
                (folder / place).mkdir(parents=True, exist_ok=True)
                made = Image.fromarray(np.asarray(pixels).astype(np.uint8))
                made.save(folder / place / f"{name}.png")
            rows.append(f"{name},{'train' if drive < drives else 'test'},d{drive}")
    (folder / "meta.csv").write_text("\n".join(rows) + "\n")
    classes = ["id,name,void", *(f"{at},{name}," for at, name in enumerate(NAMES)), "9,nothing,1"]
    (folder / "classes.csv").write_text("\n".join(classes) + "\n")
    return {
        "data": str(folder),
        "network": "bisenetv2_quarter",
        "pixels": "32x64",
        "held_out": 0.2,
        "cohort": 2,
    }

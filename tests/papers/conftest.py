"""Small pictures, as the folder of a data set."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Four classes of coloured squares, 16 of each."""
    from PIL import Image

    root, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for name, colour in zip("abcd", rng.integers(40, 216, (4, 3)), strict=True):
        (root / name).mkdir()
        for number in range(16):
            noise = rng.normal(0, 30, (8, 8, 3))
            pixels = np.clip(colour + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root

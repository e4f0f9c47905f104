"""Where the features of a reproduction come from: a path that is given, or the benchmark data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headstart.data.datasets import Dataset
from headstart.errors import HeadstartError
from headstart.pipeline.inputs import read
from headstart.progress import Progress

# Below the folder that HEADSTART_DATA names (default ../shared/data).
USUAL = {"cub200": "cub200_features/cub200_mobilenet_v2.npz", "pacs": "pacs/pacs_160.zip"}


def find(needs: Sequence[str], told: Sequence[str], progress: Progress) -> dict[str, Dataset]:
    """The feature sets among `needs` that are told of (NAME=PATH) or lie at their usual place."""
    paths = {}
    for item in told:
        name, mark, path = item.partition("=")
        if not mark or name not in needs:
            known = ", ".join(f"{need}=PATH" for need in needs) or "none"
            raise HeadstartError(f"features: expected {known}, got {item!r}")
        paths[name] = path
    root = Path(os.environ.get("HEADSTART_DATA", "../shared/data"))
    for name in needs:
        if name not in paths and name in USUAL and (root / USUAL[name]).exists():
            paths[name] = str(root / USUAL[name])
    return {name: _read(path, progress) for name, path in paths.items()}


def _read(path: str, progress: Progress) -> Dataset:
    """Features as they are, images through MobileNetV2; a fifth is held out if no split is told."""
    data = read(path, progress=progress).data
    return data if data.test is not None else data.with_test(0.2, seed=0)

"""Pictures of scenes beside a run: image, truth, prediction and errors of some test images."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import NamedTuple

from headstart.report.comparison_metrics import Entry

PICTURES = "pictures"  # the folder of a run that holds them, with the colours of classes


class Pictures(NamedTuple):
    """Strips of four panels as data URIs with their names, and the colour of each class."""

    label: str
    strips: list[tuple[str, str]]
    legend: dict[str, str]


def pictures(entries: Sequence[Entry]) -> Pictures | None:
    """Return those of the first run that has some; None where there are none."""
    for entry in entries:
        root = entry.result.path
        seed = None if root is None else root / f"seed-{entry.first.seed}"
        for folder in (place / PICTURES for place in (root, seed) if place is not None):
            paths = sorted(folder.glob("*.jpg"))
            if paths and (folder / "legend.json").exists():
                strips = [
                    (
                        path.stem[5:],
                        "data:image/jpeg;base64," + base64.b64encode(path.read_bytes()).decode(),
                    )
                    for path in paths
                ]
                legend = json.loads((folder / "legend.json").read_text(encoding="utf-8"))
                return Pictures(entry.label, strips, legend)
    return None

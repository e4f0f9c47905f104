"""Clients whose samples lie in files, each read where it is needed: for federations of our own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headstart.errors import DataError
from headstart.federation.protocol import ClientData
from headstart.pipeline.inputs import Extraction, holds_images, read


@dataclass(frozen=True)
class Source:
    """A client's samples where they lie: a file of features, or images for an extractor.

    Features of images are cached on the machine that reads them.
    """

    path: str
    extractor: str | None = None

    def __call__(self) -> ClientData:
        images = self.extractor or holds_images(self.path)
        source = read(self.path, extraction=Extraction(self.extractor) if images else None)
        return ClientData(source.data.samples)


def folders(root: str | Path, extractor: str | None = None) -> dict[str, Source]:
    """A client for each folder (of class/file images) or file of features in `root`."""
    if not Path(root).is_dir():
        raise DataError(f"data: expected a folder of clients, got {root}")
    places = sorted(place for place in Path(root).iterdir() if not place.name.startswith("."))
    if not places:
        raise DataError(f"data: expected a folder of clients, got nothing in {root}")
    sources: dict[str, Source] = {}
    for place in places:
        name = place.name if place.is_dir() else place.stem
        if name in sources:
            raise DataError(f"data: expected one place per client, got two of {name!r} in {root}")
        sources[name] = Source(str(place), extractor)
    return sources

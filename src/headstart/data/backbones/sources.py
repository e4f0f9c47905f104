"""Where features come from: a published network, an ONNX file, or a function.

A source opens as a function from a full batch of images to their features; what it cannot give
(a torch module, an ONNX graph) it names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headstart.data.backbones import graphs
from headstart.data.backbones.catalogue import Network
from headstart.data.backbones.weights import load_into
from headstart.errors import DataError
from headstart.files import write_bytes
from headstart.memory import keep_freed
from headstart.optional import require

Images: TypeAlias = NDArray[np.float32]
Run: TypeAlias = Callable[[Images], NDArray[Any]]
ENGINES = ("onnx", "torch")


class Source(Protocol):
    """Where an extractor's network comes from: an ONNX file or a torch module."""

    def open(self, batch: int) -> Run:
        """A function of exactly `batch` images."""

    def module(self) -> Any:
        """A torch module of its own, with the weights, in evaluation mode."""

    def onnx(self) -> bytes:
        """An ONNX model from images to features."""

    @property
    def output(self) -> str:
        """The name of the features in that model."""


@dataclass(frozen=True)
class Published:
    """A network of the catalogue with its weights, run by onnxruntime or by torch."""

    network: Network
    weights: Path
    size: int | tuple[int, int]  # of the side, or height and width
    identity: str
    properties: Mapping[str, str]
    engine: str = "onnx"
    threads: int | None = None
    cache: Path | None = None
    output: str = graphs.FEATURES

    def open(self, batch: int) -> Run:
        return self._open_torch() if self.engine == "torch" else self._open_onnx(batch)

    def module(self) -> Any:
        built = self.network.build()
        load_into(built, self.weights)
        return built.eval()

    def onnx(self) -> bytes:
        """From the cache; the first time, exported to it."""
        path = (self.cache or cache_folder()) / "extractors" / f"{self.identity}.onnx"
        if path.is_file():
            return graphs.read(path)
        data = graphs.export(self.module(), self.size, self.properties)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
        return data

    def _open_onnx(self, batch: int) -> Run:
        session = graphs.session(self.onnx(), self.network.name, threads=self.threads, batch=batch)
        return lambda images: np.asarray(session.run([graphs.FEATURES], {graphs.IMAGES: images})[0])

    def _open_torch(self) -> Run:
        torch, module = require("torch", "vision"), self.module()
        keep_freed()

        def run(images: Images) -> NDArray[Any]:
            before = torch.get_num_threads()
            torch.set_num_threads(self.threads or before)
            try:
                with torch.inference_mode():
                    return np.asarray(module(torch.from_numpy(images)))
            finally:
                torch.set_num_threads(before)

        return run


@dataclass(frozen=True)
class Stages(Published):
    """The outputs of a network's stages side by side, for every cell of an image."""

    def module(self) -> Any:
        from headstart.data.backbones.networks.stages import SideBySide

        return SideBySide(super().module()).eval()


@dataclass(frozen=True)
class File:
    """Any ONNX model with one input, the images; maps (4-D) are averaged over the image."""

    path: Path
    output: str
    data: bytes = field(repr=False)
    session: Any = field(repr=False)

    def open(self, batch: int) -> Run:
        def run(images: Images) -> NDArray[Any]:
            features = np.asarray(self.session.run([self.output], {name: images})[0])
            return features.mean((2, 3)) if features.ndim == 4 else features

        name = self.session.get_inputs()[0].name
        return run

    def module(self) -> Any:
        raise DataError(f"{self.path}: an ONNX file has no torch module; name a network instead")

    def onnx(self) -> bytes:
        return self.data


@dataclass(frozen=True)
class Function:
    """Any function from a batch of images to a row of features each."""

    name: str
    call: Run
    output: str = graphs.FEATURES

    def open(self, batch: int) -> Run:
        return self.call

    def module(self) -> Any:
        raise DataError(f"{self.name}: a function has no torch module; name a network instead")

    def onnx(self) -> bytes:
        raise DataError(f"{self.name}: a function has no ONNX graph; name a network or a file")


@dataclass(frozen=True)
class Mirrored:
    """Another source's features, averaged over an image and its mirror image."""

    one: Source

    @property
    def output(self) -> str:
        return self.one.output

    def open(self, batch: int) -> Run:
        run = self.one.open(batch)

        def both(images: Images) -> NDArray[Any]:
            mirrored = np.ascontiguousarray(images[..., ::-1])
            return (run(images) + run(mirrored)) / 2

        return both

    def module(self) -> Any:
        raise DataError("views: a torch module sees one view; build the extractor without flip")

    def onnx(self) -> bytes:
        return graphs.with_mirror(self.one.onnx(), self.output)


def cache_folder() -> Path:
    """HEADSTART_CACHE, or the user's cache folder."""
    folder = os.environ.get("HEADSTART_CACHE")
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder or os.path.join(cache, "headstart")).expanduser()

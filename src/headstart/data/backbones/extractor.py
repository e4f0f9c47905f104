"""Frozen extractors: images in, features out, the same bits whatever else is in the batch.

Every batch is filled up to one fixed shape: libraries choose their kernels by shape, and with it
the order of their sums; within one shape an image's features depend on that image alone.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data import checks
from headstart.data.backbones import graphs
from headstart.data.backbones.catalogue import network
from headstart.data.backbones.preprocess import Preprocess
from headstart.data.backbones.sources import (
    ENGINES,
    File,
    Function,
    Images,
    Mirrored,
    Published,
    Run,
    Source,
)
from headstart.data.backbones.weights import digest
from headstart.errors import DataError

VIEWS = ("flip",)
BOUND = 64.0  # of networks we know nothing about
_OPENING = threading.Lock()
_VERSION = 1  # of the networks and the preprocessing: features cached by another are not reused


@dataclass(frozen=True, eq=False)
class Extractor:
    """A named map from preprocessed images to features; `identity` is what a cache goes by."""

    name: str
    dimension: int
    preprocess: Preprocess
    bound: float
    identity: str
    batch: int
    source: Source = field(repr=False)
    parallel: int = 1  # how many threads may call it at once
    views: str | None = None  # "flip": the mean over an image and its mirror image

    def __call__(self, images: Images) -> NDArray[np.float32]:
        """(n, 3, size, size) ↦ (n, dimension), n of any size."""
        self._check(images)
        features = np.empty((len(images), self.dimension), np.float32)

        def fill(start: int) -> None:
            block = images[start : start + self.batch]
            features[start : start + len(block)] = self._full(block)[: len(block)]

        starts = range(0, len(images), self.batch)
        if self.parallel == 1 or len(starts) < 2:
            for start in starts:
                fill(start)
        else:
            with ThreadPoolExecutor(self.parallel) as pool:
                list(pool.map(fill, starts))
        if not np.isfinite(features).all():
            row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
            raise DataError(f"{self.name}: expected finite features, got others for image {row}")
        return features

    def with_views(self, views: str | None) -> Extractor:
        """The extractor of the mean features of these views of an image; None: as it is.

        "flip" are the image and its mirror image. The identity is another, the bound the same.
        """
        if views is None:
            return self
        if views not in VIEWS or self.views is not None:
            was = f" of {self.views}" if self.views else ""
            raise DataError(f"views: expected {' or '.join(VIEWS)}, once, got {views!r}{was}")
        identity = identify(views, self.identity, self.preprocess.settings())
        return replace(self, identity=identity, source=Mirrored(self.source), views=views)

    def module(self) -> Any:
        """A torch module with the weights: `forward` gives features; it may be trained."""
        return self.source.module()

    def properties(self) -> dict[str, str]:
        """What a file made from this extractor says of it."""
        about = properties(self.name, self.identity, self.bound, self.preprocess)
        return about if self.views is None else {**about, "views": self.views}

    @cached_property
    def _run(self) -> Run:
        with _OPENING:  # of several threads the first opens it
            return self.source.open(self.batch)

    def _full(self, block: Images) -> NDArray[Any]:
        whole = np.ascontiguousarray(block)
        if len(block) < self.batch:
            whole = np.zeros((self.batch, *block.shape[1:]), np.float32)
            whole[: len(block)] = block
        features = np.asarray(self._run(whole))
        if features.shape != (self.batch, self.dimension):
            raise DataError(
                f"{self.name}: expected features of shape {(self.batch, self.dimension)}, "
                f"got {features.shape}"
            )
        return features

    def _check(self, images: Images) -> None:
        expected = (3, self.preprocess.size, self.preprocess.size)
        if not isinstance(images, np.ndarray) or images.dtype != np.float32:
            kind = getattr(images, "dtype", type(images).__name__)
            raise DataError(f"images: expected a float32 array, got {kind}")
        if images.ndim != 4 or images.shape[1:] != expected:
            raise DataError(f"images: expected shape (n, *{expected}), got {images.shape}")


def extractor(
    name_or_path: str | Path,
    *,
    weights: str | Path | None = None,
    download: bool = False,
    engine: str = "onnx",
    batch: int = 32,
    threads: int | None = None,
    preprocess: Preprocess | None = None,
    cache: str | Path | None = None,
    views: str | None = None,
) -> Extractor:
    """An extractor by the name of a published network, or the path of an .onnx file.

    The engine starts with the first images; until then only the weight file is read, for its
    digest. `cache` is where the exported network is kept (HEADSTART_CACHE, or the user's cache).
    With `threads`, that many share one batch at a time; without, each core has a batch of its own.
    `views`: as in `Extractor.with_views`.
    """
    if engine not in ENGINES:
        raise DataError(f"engine: expected {' or '.join(ENGINES)}, got {engine!r}")
    _check_counts(batch, threads)
    if Path(name_or_path).suffix == ".onnx":
        _only_for_networks(weights, download, engine)
        graph = from_onnx(name_or_path, preprocess=preprocess, batch=batch, threads=threads)
        return graph.with_views(views)
    architecture = network(str(name_or_path))
    prepare = architecture.fitting(preprocess)
    path = architecture.find_weights(weights, download=download)
    identity = identify(architecture.name, digest(path), prepare.settings())
    about = properties(architecture.name, identity, architecture.bound, prepare)
    kept = None if cache is None else Path(cache)
    parallel, threads = graphs.parallel() if engine == "onnx" and threads is None else (1, threads)
    source = Published(architecture, path, prepare.size, identity, about, engine, threads, kept)
    size, bound = architecture.dimension, architecture.bound
    made = Extractor(architecture.name, size, prepare, bound, identity, batch, source, parallel)
    return made.with_views(views)


def from_onnx(
    path: str | Path,
    *,
    preprocess: Preprocess | None = None,
    output: str | None = None,
    bound: float | None = None,
    batch: int = 32,
    threads: int | None = None,
) -> Extractor:
    """Any .onnx file with one image input; its features are its only output, or the named one.

    Without `preprocess` and `bound`, those that a file of ours carries, else ImageNet's usual and
    64. A model of a fixed batch size keeps it.
    """
    _check_counts(batch, threads)
    parallel, threads = graphs.parallel() if threads is None else (1, threads)
    path = Path(path)
    data = graphs.read(path)
    probe = graphs.session(data, str(path), threads=threads, batch=batch)
    metadata = probe.get_modelmeta().custom_metadata_map
    fixed, size = _input_shape(path, probe)
    prepare = preprocess or _stored_preprocess(metadata) or _default_preprocess(size)
    if size not in (None, prepare.size):
        raise DataError(f"preprocess: {path} expects size {size}, got {prepare.size}")
    batch = fixed or batch
    source = File(path, _output(path, probe, output), data, probe)
    dimension = _dimension(path, source, (batch, 3, prepare.size, prepare.size))
    content = hashlib.sha256(data).hexdigest()
    identity = identify("onnx", f"{content} {source.output}", prepare.settings())
    limit = bound or float(metadata.get("bound", BOUND))
    checks.positive("bound", limit)
    return Extractor(path.stem, dimension, prepare, limit, identity, batch, source, parallel)


def from_callable(
    call: Callable[[Images], NDArray[Any]],
    dimension: int,
    name: str,
    preprocess: Preprocess | None = None,
    *,
    bound: float = BOUND,
    batch: int = 32,
) -> Extractor:
    """Any function from float32 images (batch, 3, size, size) to features (batch, dimension).

    Its `name` stands for it in the identity: another function needs another name.
    """
    checks.count("dimension", dimension)
    checks.positive("bound", bound)
    _check_counts(batch, None)
    prepare = preprocess or Preprocess()
    identity = identify("function", f"{name} {dimension}", prepare.settings())
    return Extractor(name, dimension, prepare, bound, identity, batch, Function(name, call))


def identify(name: str, content: str, settings: Mapping[str, Any]) -> str:
    """SHA-256 over what decides the features: network, weights, preprocessing; not the engine."""
    parts = ["headstart extractor", _VERSION, name, content, settings]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def properties(name: str, identity: str, bound: float, preprocess: Preprocess) -> dict[str, str]:
    """The metadata of an ONNX file, each value JSON or a plain word."""
    return {
        "extractor": name,
        "identity": identity,
        "bound": repr(bound),
        "preprocess": json.dumps(preprocess.settings(), sort_keys=True),
    }


# --- what an ONNX file says of itself


def _input_shape(path: Path, session: Any) -> tuple[int | None, int | None]:
    """Batch size and image size, None where they are free."""
    inputs = session.get_inputs()
    shape = list(inputs[0].shape) if len(inputs) == 1 else []
    if len(shape) != 4 or inputs[0].type != "tensor(float)" or shape[1] not in (3, None):
        got = ", ".join(f"{i.name}: {i.type} {i.shape}" for i in inputs) or "none"
        raise DataError(f"{path}: expected one float32 input (batch, 3, size, size), got {got}")
    batch, _, height, width = (n if isinstance(n, int) else None for n in shape)
    if height != width:
        raise DataError(f"{path}: expected square images, got {height}×{width}")
    return batch, height


def _output(path: Path, session: Any, wanted: str | None) -> str:
    outputs = [output.name for output in session.get_outputs()]
    if wanted is None and len(outputs) == 1:
        return str(outputs[0])
    if wanted not in outputs:
        got = "none named" if wanted is None else repr(wanted)
        raise DataError(f"output: {path} has {', '.join(outputs)}; expected one of them, got {got}")
    return str(wanted)


def _dimension(path: Path, source: File, shape: tuple[int, ...]) -> int:
    features = source.open(shape[0])(np.zeros(shape, np.float32))
    if features.ndim != 2 or len(features) != shape[0]:
        raise DataError(
            f"{path}: expected features (batch, d) or maps (batch, d, h, w), "
            f"got shape {features.shape} for a batch of {shape[0]}"
        )
    return int(features.shape[1])


def _stored_preprocess(metadata: Mapping[str, str]) -> Preprocess | None:
    if "preprocess" not in metadata:
        return None
    try:
        return Preprocess(**json.loads(metadata["preprocess"]))
    except (ValueError, TypeError):
        return None  # another tool's property of that name


def _default_preprocess(size: int | None) -> Preprocess:
    size = size or Preprocess().size
    return Preprocess(size=size, resize=round(size / 0.875))


def _only_for_networks(weights: str | Path | None, download: bool, engine: str) -> None:
    if weights is not None or download or engine != "onnx":
        raise DataError("an .onnx file takes no weights, no download and no engine but onnx")


def _check_counts(batch: int, threads: int | None) -> None:
    checks.count("batch", batch)
    if threads is not None:
        checks.count("threads", threads)

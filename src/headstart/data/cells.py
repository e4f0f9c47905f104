"""Cells: the features of a frozen network at every 8×8 pixels, masks as labels of them, and back.

An image of H×W pixels is H/8·W/8 samples. The label of a cell is the class of most of its pixels;
where void has most of them the cell is no sample. Scores of cells are enlarged to the mask, never
the mask made smaller, before they are compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headstart.data.backbones import graphs
from headstart.data.backbones.catalogue import NETWORKS, network
from headstart.data.backbones.extractor import identify, properties
from headstart.data.backbones.preprocess import Whole
from headstart.data.backbones.sources import Images, Run, Stages
from headstart.data.backbones.weights import digest
from headstart.data.features import Features
from headstart.data.image_set import CorruptImage
from headstart.data.labelled import Labelled
from headstart.data.partition import Partition
from headstart.data.samples import ALL, Positions
from headstart.data.scenes import VOID, Mask, SceneSet
from headstart.errors import DataError
from headstart.labels import Labels

STRIDE = 8
LONGEST = 1024  # pixels of the longer side that a network sees; a larger image is made smaller
BOUND = 128.0  # of stages, as their network cuts them
TOGETHER = 2**24  # numbers of the cells that are in memory at once
Array = NDArray[Any]
Scoring = Callable[[Array], Array]  # rows of features ↦ rows of scores


# --- The grid


def label_cells(mask: Mask, grid: tuple[int, int], classes: int) -> NDArray[np.int16]:
    """The place of the class that most pixels of each cell have, or `VOID`; (h·w,)."""
    rows, columns = (
        np.arange(size) * cells // size for size, cells in zip(mask.shape, grid, strict=True)
    )
    cell = rows[:, None] * grid[1] + columns[None, :]
    kinds = classes + 1  # void last: of as many pixels as a class has, the class wins
    place = np.where(mask == VOID, classes, mask)
    votes = np.bincount((cell * kinds + place).ravel(), minlength=grid[0] * grid[1] * kinds)
    winner = votes.reshape(-1, kinds).argmax(axis=1)
    return np.where(winner == classes, VOID, winner).astype(np.int16)


@functools.lru_cache(maxsize=32)
def _bilinear(out: int, cells: int) -> NDArray[np.float32]:
    """(out × cells): centres of pixels among centres of cells; the border is continued."""
    at = np.clip((np.arange(out) + 0.5) * cells / out - 0.5, 0, cells - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, cells - 1)
    weights = np.zeros((out, cells), np.float32)
    weights[np.arange(out), low] += 1 - (at - low)
    weights[np.arange(out), high] += at - low
    return weights


def enlarge(scores: Array, grid: tuple[int, int], shape: tuple[int, int]) -> NDArray[np.float32]:
    """Scores of cells (h·w × C), bilinear to C×H×W."""
    planes = np.asarray(scores, np.float32).T.reshape(-1, *grid)
    rows, columns = (_bilinear(out, cells) for out, cells in zip(shape, grid, strict=True))
    return np.matmul(np.matmul(rows, planes), columns.T)


# --- The network


@dataclass(frozen=True, eq=False)
class CellExtractor:
    """A frozen network's stages: an image at a time, h·w·d numbers, as features are cached."""

    name: str
    channels: int
    preprocess: Whole
    identity: str
    source: Stages = field(repr=False)
    parallel: int = 1
    bound: float = BOUND
    batch: int = 1  # what else is in a batch cannot change an image's features
    views: ClassVar[None] = None

    @property
    def grid(self) -> tuple[int, int]:
        return self.preprocess.height // STRIDE, self.preprocess.width // STRIDE

    @property
    def dimension(self) -> int:
        return self.grid[0] * self.grid[1] * self.channels

    def __call__(self, images: Images) -> NDArray[np.float32]:
        """(n, 3, H, W) ↦ (n, h·w·d)."""
        found = [np.asarray(self._run(one[None])).reshape(1, -1) for one in images]
        return np.concatenate(found).astype(np.float32, copy=False)

    @cached_property
    def _run(self) -> Run:
        return self.source.open(1)

    def properties(self) -> dict[str, str]:
        return properties(self.name, self.identity, self.bound, self.preprocess)


def cell_extractor(
    name: str,
    size: tuple[int, int],
    *,
    weights: str | Path | None = None,
    download: bool = False,
    engine: str = "onnx",
    preprocess: Whole | None = None,
) -> CellExtractor:
    """The stages of a published network, for images of this width and height."""
    able = [one for one in NETWORKS if NETWORKS[one].stages]
    if name not in able:
        expected = ", ".join(able)
        raise DataError(f"extractor: of scenes, expected one of {expected}, got {name!r}")
    known = network(name)
    usual = known.preprocess
    width, height = _fitting(size)
    prepare = preprocess or Whole(height, width, usual.interpolation, usual.mean, usual.std)
    path = known.find_weights(weights, download=download)
    identity = identify(f"{name} stages", digest(path), prepare.settings())
    about = properties(name, identity, BOUND, prepare)
    parallel, threads = graphs.parallel() if engine == "onnx" else (1, None)
    shape = (prepare.height, prepare.width)
    source = Stages(known, path, shape, identity, about, engine, threads)
    return CellExtractor(name, sum(known.stages), prepare, identity, source, parallel)


def _fitting(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height in whole cells, the longer side at most `LONGEST`."""
    scale = min(1.0, LONGEST / max(size))
    width, height = (max(STRIDE * 4, round(side * scale / STRIDE) * STRIDE) for side in size)
    return width, height


# --- Samples


@dataclass(frozen=True, eq=False)
class CellSet(Labelled):
    """Scenes with the features of their cells, mapped from the cache.

    The label of an image, for partitioners that ask for one, is the class of most of its cells.
    """

    name: str
    scenes: SceneSet
    held: tuple[NDArray[np.float32], ...]  # of each image: h·w·d, read when it is needed
    codes: NDArray[np.int16]  # of each image: h·w places of classes, or VOID
    grid: tuple[int, int]
    digest: str  # of the features that the images were among
    labels: Labels
    clients: NDArray[np.str_] | None = None
    domains: NDArray[np.str_] | None = None
    test: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, scenes: SceneSet, features: Features, grid: tuple[int, int]) -> CellSet:
        """Every mask is read; one that cannot be is refused by its name."""
        scenes = scenes if features.kept.all() else scenes.subset(features.kept)
        count = len(scenes.names)
        codes = np.stack([label_cells(scenes.mask(i), grid, count) for i in range(len(scenes))])
        names = np.array([*scenes.names, ""])
        most = [np.bincount(own[own != VOID], minlength=count + 1).argmax() for own in codes]
        return cls(
            scenes.name,
            scenes,
            tuple(features.array),
            codes,
            grid,
            features.digest,
            names[most],
            scenes.clients,
            scenes.domains,
            scenes.test,
        )

    def _picked(self, index: NDArray[np.int64]) -> dict[str, Any]:
        return {
            "scenes": self.scenes.subset(index),
            "held": tuple(self.held[i] for i in index.tolist()),
            "codes": self.codes[index],
        }

    def _joined(self, other: Any) -> dict[str, Any]:
        if other.grid != self.grid:
            raise DataError(f"test: expected images of {self.grid} cells, got {other.grid}")
        return {
            "scenes": replace(self.scenes, test=None).with_outside(
                replace(other.scenes, test=None)
            ),
            "held": self.held + other.held,
            "codes": np.concatenate([self.codes, other.codes]),
            "digest": self.digest + other.digest,
        }

    def with_test(self, fraction: float, seed: int = 0) -> CellSet:
        """The last frames of every drive."""
        return replace(self, test=self.scenes.with_test(fraction, seed).test)

    @property
    def names(self) -> tuple[str, ...]:
        return self.scenes.names

    @cached_property
    def shown(self) -> NDArray[np.bool_]:
        """Which classes each image shows (images × classes), for `imbalance`."""
        places = np.arange(len(self.names))
        return np.stack([np.isin(places, own) for own in self.codes])

    def dealt(self, partition: Partition) -> tuple[Partition, NDArray[np.int16]]:
        """The same clients as a partition of all cells that have a class, and the place of it."""
        valid = self.codes != VOID
        ends = np.cumsum([0, *valid.sum(axis=1)])
        own = [
            np.concatenate(
                [np.zeros(0, np.int64), *(np.arange(ends[i], ends[i + 1]) for i in index)]
            )
            for index in partition.indices
        ]
        return Partition(partition.names, tuple(own)), self.codes[valid]

    @property
    def channels(self) -> int:
        return int(self.held[0].size // self.codes.shape[1])

    @property
    def dimension(self) -> int:
        """Of a row."""
        return self.channels

    @property
    def samples(self) -> CellSamples:
        """All of them."""
        return self.picked(np.arange(len(self)))

    def cells(self, i: int) -> NDArray[np.float32]:
        """The features of image `i`, (h·w) × d."""
        return np.asarray(self.held[i]).reshape(-1, self.channels)

    def picked(self, rows: NDArray[np.int64]) -> CellSamples:
        """These images as a client's samples."""
        return CellSamples(self, np.asarray(rows, np.int64))


@dataclass(frozen=True, eq=False)
class CellSamples:
    """The cells of some images that have a class: rows of features, read image by image."""

    data: CellSet
    rows: NDArray[np.int64]
    names: tuple[str, ...] | None = None  # other ones of the classes
    most: int | None = None  # cells; None: all

    @cached_property
    def _valid(self) -> list[NDArray[np.intp]]:
        return [np.flatnonzero(self.data.codes[row] != VOID) for row in self.rows.tolist()]

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        ends = np.cumsum([0, *map(len, self._valid)], dtype=np.int64)
        return ends if self.most is None else np.minimum(ends, self.most)

    @cached_property
    def labels(self) -> Labels:
        names = np.array(self.names or self.data.names)
        codes = [
            self.data.codes[row][own]
            for row, own in zip(self.rows.tolist(), self._valid, strict=True)
        ]
        return names[np.concatenate([np.zeros(0, np.int16), *codes])][: len(self)]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.data.channels,)

    @property
    def units(self) -> int:
        """Images: what rules about few samples count."""
        return len(self.rows) if self.most is None else int(np.ceil(self.most / self.per_image))

    @property
    def per_image(self) -> int:
        """Cells of an image, with those that are void."""
        return int(self.data.codes.shape[1])

    @cached_property
    def image_of(self) -> NDArray[np.intp]:
        """Which of these images each cell is of."""
        return np.searchsorted(self._ends, np.arange(len(self)), side="right") - 1

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(
        self, positions: Positions = ALL, key: bytes | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        at = np.arange(len(self))[positions]
        out = np.empty((len(at), *self.shape), np.float32)
        image = self.image_of[at]
        for one in np.unique(image).tolist():
            own = image == one
            cells = self._valid[one][at[own] - self._ends[one]]
            out[own] = self.data.cells(int(self.rows[one]))[cells]
        return out, self.labels[at]

    def pieces(self) -> Iterator[slice]:
        """All positions, some images at a time."""
        images = max(1, TOGETHER // (self.per_image * self.data.channels))
        for first in range(0, max(len(self.rows), 1), images):
            last = min(first + images, len(self.rows))
            yield slice(int(self._ends[first]), int(self._ends[last]))

    def relabelled(self, labels: Labels) -> CellSamples:
        """Other names of the classes, told by their cells."""
        own = dict(zip(self.labels.tolist(), labels.tolist(), strict=True))
        return replace(self, names=tuple(own.get(n, n) for n in self.names or self.data.names))

    def first(self, count: int) -> CellSamples:
        return replace(self, most=count)

    def content(self) -> Iterator[Any]:
        yield self.data.digest.encode()
        yield np.ascontiguousarray(self.data.codes[self.rows]).data
        for row in self.rows.tolist():
            yield self.data.scenes.where(row).encode()

    def judged(self, scoring: Scoring) -> Iterator[tuple[Mask, NDArray[np.intp]]]:
        """Of each image, pixel by pixel: the mask, and the column of the highest score."""
        for row in self.rows.tolist():
            mask = self.data.scenes.mask(row)
            yield mask, guessed(scoring(self.data.cells(row)), self.data.grid, mask.shape)


def guessed(scores: Array, grid: tuple[int, int], shape: Any) -> NDArray[np.intp]:
    """The column of the highest score at every pixel (H×W)."""
    return enlarge(scores, grid, shape).argmax(axis=0)


def checked(scenes: SceneSet, *, skip: bool) -> tuple[SceneSet, tuple[tuple[str, str], ...]]:
    """The scenes whose mask can be read, and what is wrong with the others; refused, or skipped."""
    kept = np.ones(len(scenes), np.bool_)
    wrong = []
    for i in range(len(scenes)):
        try:
            scenes.mask(i)
        except CorruptImage as bad:
            if not skip:
                raise
            kept[i] = False
            wrong.append((str(bad).removesuffix(f": {bad.reason}"), bad.reason))
    return (scenes if kept.all() else scenes.subset(kept)), tuple(wrong)

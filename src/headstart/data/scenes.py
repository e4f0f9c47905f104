"""Scenes: images with a mask each, the class of every pixel or void; drives and domains are known.

Nothing is decoded before it is asked for. `load_scenes` knows the layouts (`scene_layouts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headstart.data import checks, image_set
from headstart.data.image_set import CorruptImage, ImageSet
from headstart.data.sample_set import Joined, Picked, Source
from headstart.errors import DataError

Mask: TypeAlias = NDArray[np.int16]  # H×W: the place of each pixel's class, or VOID
VOID, UNKNOWN = -1, -2
CAMVID = (
    *("sky", "building", "pole", "road", "pavement", "tree"),
    *("sign", "fence", "car", "pedestrian", "bicyclist"),
)
CITYSCAPES = (
    *("road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign"),
    *("vegetation", "terrain", "sky", "person", "rider", "car", "truck", "bus", "train"),
    *("motorcycle", "bicycle"),
)


@dataclass(frozen=True, eq=False)
class Classes:
    """What the numbers in masks mean: `places[id]` is a class, `VOID`, or `UNKNOWN`."""

    names: tuple[str, ...]
    places: Mask  # of 256 ids

    @classmethod
    def of(cls, names: Sequence[str], ids: dict[int, int], void: Sequence[int]) -> Classes:
        """`ids`: the place of the class of each id."""
        twice = next((name for name in names if list(names).count(name) > 1), None)
        if not names or twice is not None:
            got = "none" if not names else f"{twice!r} twice"
            raise DataError(f"classes: expected different names, got {got}")
        places = np.full(256, UNKNOWN, np.int16)
        places[list(void)] = VOID
        for number, place in ids.items():
            places[number] = place
        return cls(tuple(names), places)

    @classmethod
    def counted(cls, names: Sequence[str], void: Sequence[int]) -> Classes:
        """Ids from 0 in the order of the names."""
        return cls.of(names, {at: at for at in range(len(names))}, void)


@dataclass(frozen=True, eq=False)
class SceneSet(ImageSet):
    """Images and masks; clients are drives (sequences, cities), in the order of their frames.

    The label of an image is "": its classes are those of its pixels.
    """

    masks: Source | None = None
    known: Classes | None = None
    kind: ClassVar[str] = "image"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.masks is None or self.known is None:
            raise DataError(f"{self.name}: masks: expected one for each image, got none")
        if len(self.masks) != len(self.source):
            raise DataError(
                f"{self.name}: masks: expected one for each image ({len(self.source)}), "
                f"got {len(self.masks)}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes, by their place."""
        assert self.known is not None
        return self.known.names

    def _picked(self, index: NDArray[np.int64]) -> dict[str, Any]:
        assert self.masks is not None
        masks = self.masks
        if isinstance(masks, Picked):
            return {**super()._picked(index), "masks": Picked(masks.inner, masks.rows[index])}
        return {**super()._picked(index), "masks": Picked(masks, index)}

    def _joined(self, other: Any) -> dict[str, Any]:
        if not isinstance(other, SceneSet) or other.names != self.names:
            got = ", ".join(other.names) if isinstance(other, SceneSet) else "no masks"
            raise DataError(f"test: expected masks of {', '.join(self.names)}; got {got}")
        assert self.masks is not None
        assert other.masks is not None
        mapped = _Mapped(other.masks, other.known, self.known)
        return {**super()._joined(other), "masks": Joined(self.masks, mapped)}

    def with_test(self, fraction: float, seed: int = 0) -> Self:
        """The last frames of every drive are the test: neighbours of a frame are much like it."""
        checks.fraction("fraction", fraction)
        return replace(self, test=last_frames(self.drives, fraction))

    @cached_property
    def shown(self) -> NDArray[np.bool_]:
        """Which classes each image shows (images × classes), for `imbalance`."""
        places = np.arange(len(self.names))
        return np.stack([np.isin(places, self.mask(i)) for i in range(len(self))])

    @property
    def drives(self) -> NDArray[np.str_]:
        """The drive of each image; without any, all are one."""
        return np.full(len(self), "", np.str_) if self.clients is None else self.clients

    def mask(self, i: int) -> Mask:
        """The class of every pixel of image `i`; `CorruptImage` where a mask cannot be one."""
        assert self.masks is not None
        assert self.known is not None
        where = self.masks.where(i)
        found = self.masks.decode(self.masks.read(i), where)
        stored = found if isinstance(found, np.ndarray) else ids_of(found, where)
        places = self.known.places[stored]
        if (places == UNKNOWN).any():
            shown = sorted(set(stored[places == UNKNOWN].tolist()))
            got = ", ".join(map(str, shown[:5]))
            raise CorruptImage(where, f"expected ids of {_listed(self.known)}, got {got} too")
        width, height = self.size(i)
        if stored.shape != (height, width):
            got = f"{stored.shape[1]}×{stored.shape[0]}"
            raise CorruptImage(
                where, f"expected the size of its image, {width}×{height}, got {got}"
            )
        return places

    def size(self, i: int) -> tuple[int, int]:
        """Width and height of image `i`, from its header."""
        source: Any = self.source
        at = i
        while isinstance(source, Joined) or hasattr(source, "inner"):
            if isinstance(source, Joined):
                source, at = source.part(at)
                continue
            at = int(source.rows[at]) if isinstance(source, Picked) else at
            source = source.inner  # of colours of another domain, or another style: same sides
        return _size(source, at)


def _size(source: Source, i: int) -> tuple[int, int]:
    if hasattr(source, "size"):
        known: tuple[int, int] = source.size
        return known
    return image_set.size(source.read(i), source.where(i))


@dataclass(frozen=True, eq=False)
class _Mapped:
    """The masks of a set whose ids are others, in the ids of this one."""

    inner: Source
    own: Classes | None
    other: Classes | None

    @property
    def root(self) -> Any:
        return self.inner.root

    def __len__(self) -> int:
        return len(self.inner)

    def where(self, i: int) -> str:
        return self.inner.where(i)

    def read(self, i: int) -> bytes:
        return self.inner.read(i)

    def stamp(self, i: int) -> Any:
        return self.inner.stamp(i)

    def decode(self, data: bytes, where: str) -> NDArray[np.uint8]:
        assert self.own is not None
        assert self.other is not None
        found = self.inner.decode(data, where)
        stored = found if isinstance(found, np.ndarray) else ids_of(found, where)
        places = self.own.places[stored]
        # any id of the other set that stands for the same class, for void, or for nothing
        ids = {int(place): at for at, place in reversed(list(enumerate(self.other.places)))}
        back = np.array([ids.get(place, ids.get(VOID, 0)) for place in range(-2, len(ids))])
        return back[places + 2].astype(np.uint8)


def ids_of(image: Any, where: str) -> NDArray[np.uint8]:
    """The id of every pixel: a grey image of 8 bits; colours and palettes do not say ids."""
    if image.mode != "L":
        kinds = {"P": "a palette", "RGB": "colours", "RGBA": "colours", "1": "single bits"}
        got = f"{kinds.get(image.mode, 'other numbers')} (mode {image.mode})"
        raise CorruptImage(where, f"expected a mask of ids (grey, 8 bits, mode L), got {got}")
    return np.asarray(image)


def _listed(known: Classes) -> str:
    ids = np.flatnonzero(known.places != UNKNOWN).tolist()
    few = ", ".join(map(str, ids[:20])) + ", …" * (len(ids) > 20)
    return f"{len(known.names)} classes and void ({few})"


def last_frames(drives: NDArray[Any], fraction: float) -> NDArray[np.bool_]:
    """The last share of every drive, at least one frame of a drive with two."""
    mask = np.zeros(len(drives), np.bool_)
    for drive in np.unique(drives):
        frames = np.flatnonzero(drives == drive)
        held = min(max(1, round(fraction * len(frames))), len(frames) - 1)
        mask[frames[len(frames) - held :]] = held > 0
    return mask


def seen_and_unseen(
    domains: NDArray[np.str_], unseen: Sequence[str], fraction: float = 0.2
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """FedDrive's tests: of every domain that trains its last share, and all of the unseen ones."""
    known = set(domains.tolist())
    for name in unseen:
        if name not in known:
            raise DataError(f"unseen: expected some of {', '.join(sorted(known))}; got {name!r}")
    outside = np.isin(domains, list(unseen))
    if outside.all():
        raise DataError("unseen: expected some domains to train on, got all of them")
    return last_frames(domains, fraction) & ~outside, outside

"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) in their *binary* form, archive or extracted.

A record is the label (CIFAR-100: coarse, then fine), then 32x32 pixels: all reds, greens, blues,
each row by row. The Python form of the same data is pickled and therefore refused.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headstart.data.image_set import CorruptImage, ImageSet, Stamp
from headstart.errors import DataError
from headstart.optional import require

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 32
PIXELS = 3 * SIDE * SIDE

_LIMIT = 2**30  # bytes of one file of an archive
_PICKLED = frozenset({"data_batch_1", "test_batch", "train", "test", "meta", "batches.meta"})

Bytes: TypeAlias = NDArray[np.uint8]


@dataclass(frozen=True)
class Variant:
    """What differs between CIFAR-10 and CIFAR-100."""

    name: str
    folder: str  # of the official archive
    classes: tuple[int, ...]  # number of values of each label byte; the last is the class
    train: tuple[str, ...]
    test: str
    names: str

    @property
    def record(self) -> int:
        return len(self.classes) + PIXELS


CIFAR10 = Variant(
    name="cifar10",
    folder="cifar-10-batches-bin",
    classes=(10,),
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test="test_batch.bin",
    names="batches.meta.txt",
)
CIFAR100 = Variant(
    name="cifar100",
    folder="cifar-100-binary",
    classes=(20, 100),
    train=("train.bin",),
    test="test.bin",
    names="fine_label_names.txt",
)
VARIANTS = (CIFAR10, CIFAR100)


@dataclass(frozen=True, eq=False)
class CifarImages:
    """Records in memory (or mapped into it), file after file."""

    root: Path
    variant: Variant
    files: tuple[str, ...]
    records: tuple[Bytes, ...]  # (n, record) each
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.records))

    def where(self, i: int) -> str:
        part, row = self._at(i)
        label = int(self.records[part][row, len(self.variant.classes) - 1])
        name = f" ({self.names[label]})" if self.names else ""
        return f"{self.root}: {self.files[part]}, record {row}{name}"

    def read(self, i: int) -> bytes:
        part, row = self._at(i)
        return self.records[part][row, len(self.variant.classes) :].tobytes()

    def decode(self, data: bytes, where: str) -> Image:
        if len(data) != PIXELS:
            raise CorruptImage(where, f"expected {PIXELS} bytes, got {len(data)}")
        planes = np.frombuffer(data, dtype=np.uint8).reshape(3, SIDE, SIDE)
        pixels = np.ascontiguousarray(planes.transpose(1, 2, 0))
        image: Image = require("PIL.Image").fromarray(pixels)
        return image

    def stamp(self, i: int) -> Stamp | None:
        return None

    def _at(self, i: int) -> tuple[int, int]:
        for part, records in enumerate(self.records):
            if i < len(records):
                return part, i
            i -= len(records)
        raise IndexError(i)


def is_cifar(path: Path) -> bool:
    """Whether a file or folder is CIFAR in some form, the refused one included."""
    if path.is_dir():
        return _form(path) is not None
    return path.name.lower().endswith((".tar.gz", ".tgz", ".tar"))


def read_cifar(path: Path) -> ImageSet:
    """The training records, then the test records; labels are integers (CIFAR-100: fine)."""
    return _read_folder(path) if path.is_dir() else _read_archive(path)


def _form(folder: Path) -> tuple[Path, Variant | None] | None:
    """Where the files are (the folder or the official one in it), and which; None: pickled."""
    for variant in VARIANTS:
        for place in (folder, folder / variant.folder):
            if (place / variant.train[0]).is_file():
                return place, variant
    for place in (folder, *(folder / name for name in ("cifar-10-batches-py", "cifar-100-python"))):
        if place.is_dir() and _is_pickled({p.name for p in place.iterdir() if p.is_file()}):
            return place, None
    return None


def _is_pickled(names: set[str]) -> bool:
    return len(names & _PICKLED) >= 2


def _pickled(path: Path) -> DataError:
    return DataError(
        f"{path}: expected the binary version of CIFAR (cifar-10-binary.tar.gz or "
        "cifar-100-binary.tar.gz), got the Python version, whose pickles are never loaded"
    )


def _read_folder(folder: Path) -> ImageSet:
    form = _form(folder)
    if form is None:
        expected = " or ".join(f"{variant.train[0]} ({variant.name})" for variant in VARIANTS)
        raise DataError(f"{folder}: expected {expected}, got neither")
    place, variant = form
    if variant is None:
        raise _pickled(place)

    def load(name: str) -> Bytes | None:
        path = place / name
        if not path.is_file():
            return None
        try:
            return np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else _empty()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error

    return _assemble(folder, variant, load)


def _empty() -> Bytes:
    return np.zeros(0, dtype=np.uint8)


def _read_archive(path: Path) -> ImageSet:
    try:
        with tarfile.open(path, mode="r:*") as archive:
            members = {PurePosixPath(m.name).name: m for m in archive if m.isfile()}
            variant = next((v for v in VARIANTS if v.train[0] in members), None)
            if variant is None and _is_pickled(set(members)):
                raise _pickled(path)
            if variant is None:
                got = ", ".join(sorted(members)[:6]) or "no file"
                raise DataError(f"{path}: expected CIFAR-10 or CIFAR-100, binary, got {got}")
            wanted = {*variant.train, variant.test, variant.names} & members.keys()
            data = {name: _member(path, archive, members[name]) for name in wanted}
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: expected a tar archive of CIFAR: {reason}") from error
    return _assemble(path, variant, data.get)


def _member(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> Bytes:
    if member.size > _LIMIT:
        raise DataError(
            f"{path}: {member.name}: expected at most {_LIMIT} bytes, got {member.size}"
        )
    file = archive.extractfile(member)
    return np.frombuffer(file.read() if file else b"", dtype=np.uint8)


def _assemble(root: Path, variant: Variant, load: Callable[[str], Bytes | None]) -> ImageSet:
    files = (*variant.train, variant.test)
    records = tuple(_records(root, variant, name, load(name)) for name in files)
    names = _names(root, variant, load(variant.names))
    source = CifarImages(root, variant, files, records, names)
    labels = np.concatenate([part[:, len(variant.classes) - 1] for part in records])
    test = np.repeat(
        [name == variant.test for name in files], [len(part) for part in records]
    ).astype(np.bool_)
    return ImageSet(variant.name, source, labels.astype(np.int64), test=test)


def _records(root: Path, variant: Variant, name: str, data: Bytes | None) -> Bytes:
    if data is None:
        raise DataError(f"{root}: expected {name}, got none")
    if not data.size or data.size % variant.record:
        raise DataError(
            f"{root}: {name}: expected records of {variant.record} bytes, got {data.size} bytes"
        )
    records = data.reshape(-1, variant.record)
    for byte, count in enumerate(variant.classes):
        wrong = np.flatnonzero(records[:, byte] >= count)
        if wrong.size:
            raise DataError(
                f"{root}: {name}, record {wrong[0]}: expected a label below {count}, "
                f"got {records[wrong[0], byte]}"
            )
    return records


def _names(root: Path, variant: Variant, data: Bytes | None) -> tuple[str, ...]:
    if data is None:
        return ()
    names = tuple(data.tobytes().decode("utf-8", errors="replace").split())
    if len(names) != variant.classes[-1]:
        raise DataError(
            f"{root}: {variant.names}: expected {variant.classes[-1]} names, got {len(names)}"
        )
    return names

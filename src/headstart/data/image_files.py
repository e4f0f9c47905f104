"""Image files, in folders or in a zip archive (read in place, never extracted).

What the files are is read from their paths, `class/file`, `client/class/file`, `split/class/file`,
or by a `meta.csv` next to them.
"""

from __future__ import annotations

import io
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headstart.data import image_set
from headstart.data.delimited import ENCODING, csv_text, parse, text_column
from headstart.data.folders import IMAGES, hidden, of_kind, visible
from headstart.data.image_set import CorruptImage, ImageSet, Source, Stamp
from headstart.data.table import Columns, text_labels
from headstart.errors import DataError
from headstart.files import readable

if TYPE_CHECKING:
    from PIL.Image import Image

META = "meta.csv"
MEMBER_LIMIT = 64 * 2**20  # bytes of one image in an archive; a larger one is not decompressed

# What zipfile raises on bad bytes: names that are no text, versions and methods it does not know.
_NO_ARCHIVE = (OSError, zipfile.BadZipFile, UnicodeDecodeError, NotImplementedError, struct.error)

_SPLITS = frozenset({"train", "test", "val"})
_PAIRS = ({"train", "test"}, {"train", "val"})  # the second is the test set
_LAYOUTS = "client/class/file, class/file, or train/class/file with test/class/file"

Mask: TypeAlias = NDArray[np.bool_]


# --- Sources


@dataclass(frozen=True, eq=False)
class FileImages:
    """Files below a folder."""

    root: Path
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def where(self, i: int) -> str:
        return readable(self.root / self.names[i])

    def read(self, i: int) -> bytes:
        try:
            return (self.root / self.names[i]).read_bytes()
        except OSError as error:
            raise _unreadable(self.where(i), error) from error

    def decode(self, data: bytes, where: str) -> Image:
        return image_set.decode(data, where)

    def stamp(self, i: int) -> Stamp | None:
        return _stamp(self.root / self.names[i])


@dataclass(frozen=True, eq=False)
class ZipImages:
    """Members of a zip archive; every thread has a handle of its own."""

    root: Path
    names: tuple[str, ...]
    _local: threading.local = field(default_factory=threading.local, repr=False)

    def __len__(self) -> int:
        return len(self.names)

    def where(self, i: int) -> str:
        return readable(f"{self.root}:{self.names[i]}")

    def read(self, i: int) -> bytes:
        try:
            member = self._archive().getinfo(self.names[i])
            if member.file_size > MEMBER_LIMIT:
                reason = f"expected at most {MEMBER_LIMIT} bytes, got {member.file_size}"
                raise CorruptImage(self.where(i), reason)
            return self._archive().read(member)
        except OSError as error:
            raise _unreadable(self.where(i), error) from error
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError) as error:
            raise CorruptImage(self.where(i), f"cannot be decompressed: {error}") from error

    def decode(self, data: bytes, where: str) -> Image:
        return image_set.decode(data, where)

    def stamp(self, i: int) -> Stamp | None:
        return _stamp(self.root)

    def _archive(self) -> zipfile.ZipFile:
        if not hasattr(self._local, "archive"):
            self._local.archive = zipfile.ZipFile(self.root)
        archive: zipfile.ZipFile = self._local.archive
        return archive


@contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive to read from; one line of error for whatever is wrong with it."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _NO_ARCHIVE as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: expected a zip archive: {reason:.200}") from error


def _unreadable(where: str, error: OSError) -> CorruptImage:
    return CorruptImage(where, f"cannot be read: {error.strerror or error}")


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


# --- Readers


def read_folder(root: Path, columns: Columns) -> ImageSet:
    """The images of a folder: those its `meta.csv` lists, or else all, labelled by their path."""
    name = readable(root.resolve().name)
    if (root / META).is_file():
        try:
            text = (root / META).read_bytes()
        except OSError as error:
            raise DataError(f"{root / META}: cannot be read: {error.strerror or error}") from error
        meta = read_meta(text, str(root / META), columns)
        _check_present(meta, [(root / name).is_file() for name in meta.paths])
        return _described(name, FileImages(root, meta.paths), meta)
    paths = of_kind(root, sorted(visible(root)), IMAGES, _LAYOUTS)
    return _laid_out(name, FileImages(root, tuple(map(str, paths))), paths, columns)


def read_single(path: Path) -> ImageSet:
    """One image file, whose label nobody knows."""
    source = FileImages(path.parent, (path.name,))
    return ImageSet(readable(path.stem), source, np.array([""], dtype=np.str_))


def read_zip(path: Path, columns: Columns) -> ImageSet:
    """The images of a zip archive, by the rules of a folder."""
    with opened_zip(path) as archive:
        members = {m.filename for m in archive.infolist() if not m.is_dir()}
        text = _meta_member(archive, path) if META in members else None
    if text is not None:
        meta = read_meta(text, f"{path}:{META}", columns)
        _check_present(meta, [name in members for name in meta.paths])
        return _described(path.stem, ZipImages(path, meta.paths), meta)
    shown = [PurePosixPath(m) for m in members if not any(map(hidden, PurePosixPath(m).parts))]
    paths = of_kind(path, sorted(shown), IMAGES, _LAYOUTS)
    return _laid_out(path.stem, ZipImages(path, tuple(map(str, paths))), paths, columns)


def _meta_member(archive: zipfile.ZipFile, path: Path) -> bytes:
    if archive.getinfo(META).file_size > MEMBER_LIMIT:
        size = archive.getinfo(META).file_size
        raise DataError(f"{path}:{META}: expected at most {MEMBER_LIMIT} bytes, got {size}")
    try:
        return archive.read(META)
    except (zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{path}:{META}: cannot be decompressed: {error}") from error


# --- Labels from paths


def _laid_out(
    name: str, source: Source, paths: Sequence[PurePosixPath], columns: Columns
) -> ImageSet:
    """Labels from the last folder of each path; clients or the split from the first of two."""
    depth = _check_paths(source.root, paths, columns)
    if depth == 1:
        return ImageSet(name, source, np.full(len(paths), "", dtype=np.str_))
    labels = text_labels([readable(path.parent.name) for path in paths])
    tops = [readable(path.parts[0]) for path in paths]
    if depth == 3 and {top.lower() for top in tops} <= _SPLITS:
        return ImageSet(name, source, labels, test=as_test(tops, str(source.root), both=True))
    if depth == 2 and {top.lower() for top in tops} in _PAIRS:
        raise DataError(f"{source.root}: expected split/class/file, got {paths[0]} without a class")
    clients = np.array(tops, dtype=np.str_) if depth == 3 else None
    return ImageSet(name, source, labels, clients)


def _check_paths(root: Path, paths: Sequence[PurePosixPath], columns: Columns) -> int:
    """The depth of the files, the same for all."""
    for path in paths:
        depth = len(path.parts)
        if depth > 3 or (depth == 1 and columns.labelled):
            kind = "a loose file" if depth == 1 else "a deeper one"
            raise DataError(f"{root}: expected {_LAYOUTS}, got {kind}: {path}")
        if depth != len(paths[0].parts):
            raise DataError(f"{root}: expected all files at one depth, got {paths[0]} and {path}")
    return len(paths[0].parts)


def as_test(splits: Sequence[str], where: str, *, both: bool = False) -> Mask | None:
    """True where a split is "test", or "val" in its place; None when all of them are "all"."""
    names = [split.strip().lower() for split in splits]
    distinct = set(names)
    if distinct == {"all"}:
        return None
    if not any(distinct == pair if both else distinct <= pair for pair in _PAIRS):
        got = ", ".join(sorted(distinct)[:6])
        raise DataError(f"{where}: expected splits train and test, or train and val, got {got}")
    return np.array([word != "train" for word in names], dtype=np.bool_)


# --- Labels from meta.csv


@dataclass(frozen=True)
class Meta:
    """What a `meta.csv` lists: a path an image, and the columns it has, role by role."""

    where: str
    paths: tuple[str, ...]
    text: dict[str, list[str]]


def read_meta(data: bytes, where: str, columns: Columns) -> Meta:
    """A header, then an image a line: `path` and `label`, and maybe `split`, `domain`, `client`."""
    file = io.TextIOWrapper(io.BytesIO(data), encoding=ENCODING, newline="")
    header, lines = parse(file, where)
    if "path" not in header:
        raise DataError(f"{where}: expected a column 'path', got {', '.join(header)[:200]!r}")
    columns.check(Path(where), header)
    paths = text_column(where, lines, header.index("path"), "path")
    text = csv_text(where, header, lines, columns)
    return Meta(where, tuple(_inside(where, path) for path in paths), text)


def _inside(where: str, path: str) -> str:
    """A relative path that stays below its root; a backslash is a slash."""
    parts = PurePosixPath(path.replace("\\", "/"))
    if PureWindowsPath(path).anchor or ".." in parts.parts:
        raise DataError(f"{where}: expected paths inside the dataset, got {path!r}")
    return str(parts)


def _check_present(meta: Meta, present: list[bool]) -> None:
    missing = [path for path, there in zip(meta.paths, present, strict=True) if not there]
    if missing:
        raise DataError(
            f"{meta.where}: expected all {len(meta.paths)} listed images, {len(missing)} are "
            f"missing: {', '.join(missing[:5])}"
        )


def _described(name: str, source: Source, meta: Meta) -> ImageSet:
    text = meta.text
    labels = text_labels(text["label"]) if "label" in text else np.full(len(source), "")

    def names(role: str) -> NDArray[np.str_] | None:
        return np.array(text[role], dtype=np.str_) if role in text else None

    test = as_test(text["split"], meta.where) if text.get("split") else None
    return ImageSet(name, source, labels, names("client"), names("domain"), test)

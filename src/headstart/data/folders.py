"""Folders of samples: the files below them, of one kind; litter and other files are left out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from headstart.errors import DataError, SkippedWarning
from headstart.files import readable

ARRAYS = (".npy",)
IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
SHOWN = 5  # names in a line

_KINDS = {
    ARRAYS: f"feature arrays ({', '.join(ARRAYS)})",
    IMAGES: f"images ({', '.join(IMAGES)})",
}
_LITTER = ("thumbs.db", "desktop.ini", "__macosx")


def visible(root: Path, below: str = "") -> Iterator[PurePosixPath]:
    """The files below a folder, relative to it; hidden names and desktop litter are skipped."""
    try:
        with os.scandir(root / below) as scan:
            entries = [
                (entry.name, entry.is_dir())
                for entry in scan
                if not hidden(entry.name) and (entry.is_dir() or _may_be_read(entry))
            ]
    except OSError as error:
        raise DataError(f"{root / below}: cannot be read: {error.strerror or error}") from error
    for name, is_folder in entries:
        path = PurePosixPath(below, name)
        if not is_folder:
            yield path
        elif len(path.parts) < 3:
            yield from visible(root, str(path))
        else:
            raise DataError(
                f"{root / path}: expected client/class/file at most, got a folder inside a class"
            )


def _may_be_read(entry: os.DirEntry[str]) -> bool:
    """Not what is read without end, such as a pipe; a link to nothing is, and is an error."""
    return entry.is_file() or entry.is_symlink()


def hidden(name: str) -> bool:
    """Return whether a file or folder name is one that readers leave out."""
    return name.startswith(".") or name.lower() in _LITTER


def of_kind(
    root: Path, paths: Sequence[PurePosixPath], suffixes: tuple[str, ...], layouts: str
) -> list[PurePosixPath]:
    """The `paths` below `root` that end in one of `suffixes` (`ARRAYS` or `IMAGES`).

    Files of neither kind are left out and named in one warning; a folder of both is refused.
    """
    expected = _KINDS[suffixes]
    kept = [path for path in paths if path.suffix.lower() in suffixes]
    rest = [path for path in paths if path.suffix.lower() not in suffixes]
    for path in rest:
        if path.suffix.lower() in (*ARRAYS, *IMAGES):
            raise DataError(
                f"{root / path}: expected {expected}, got {path.suffix!r}; a folder holds either "
                "features (`load` reads them) or images (`load_images`)"
            )
    names = ", ".join(readable(path) for path in rest[:SHOWN]) + ", …" * (len(rest) > SHOWN)
    if not kept:
        came = f"only {names}" if rest else "an empty folder"
        either = " or ".join(_KINDS.values())
        raise DataError(f"{root}: expected {either} as {layouts}, got {came}")
    if rest:
        count = f"{len(rest)} file{'s' * (len(rest) > 1)}"
        message = f"{readable(root)}: {count} other than {expected}: {names}"
        warnings.warn(message, SkippedWarning, stacklevel=2)
    return kept

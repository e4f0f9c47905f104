"""Images by path: folders, zip archives, CIFAR's binary files; one `ImageSet` whatever they are."""

from __future__ import annotations

from pathlib import Path

from headstart.data import cifar, image_files
from headstart.data.files import single_image
from headstart.data.folders import ARRAYS, IMAGES, visible
from headstart.data.image_set import CorruptImage, ImageSet
from headstart.data.table import OWN_NAMES, Columns
from headstart.errors import DataError

__all__ = ["CorruptImage", "ImageSet", "is_images", "load_images"]


def load_images(source: str | Path, columns: Columns = OWN_NAMES) -> ImageSet:
    """The images of a folder, of a .zip archive, or of CIFAR-10/100 (binary version).

    A folder or archive has a `meta.csv` with a column `path` and those of `columns` (only the label
    is required), or else is described by its paths: `class/file`, `client/class/file`, or
    `split/class/file` when the top folders are exactly train and test, or train and val (then the
    test set). Without `labelled` the files may lie loose, `meta.csv` lack the label, or `source` be
    a single image: every label is then "".
    """
    path = Path(source)
    if not path.exists():
        raise DataError(f"{path}: no such file; expected a folder, a .zip or a CIFAR .tar.gz")
    if cifar.is_cifar(path):
        return cifar.read_cifar(path)
    if path.is_dir():
        return image_files.read_folder(path, columns)
    if path.suffix.lower() == ".zip":
        return image_files.read_zip(path, columns)
    if path.suffix.lower() in IMAGES:
        if columns.labelled:
            raise single_image(path)
        return image_files.read_single(path)
    raise DataError(
        f"{path}: expected images: a folder, a .zip or a CIFAR .tar.gz, got {path.suffix!r}"
    )


def is_images(source: str | Path) -> bool:
    """Whether `source` is for `load_images`: an archive, an image, or a folder of images."""
    path = Path(source)
    if not path.is_dir():
        held = path.suffix.lower() in (".zip", *IMAGES)
        return path.is_file() and (held or cifar.is_cifar(path))
    if (path / image_files.META).is_file() or cifar.is_cifar(path):
        return True
    return _has_images(path)


def _has_images(folder: Path) -> bool:
    """The first file that is an image or an array decides."""
    try:
        for path in visible(folder):
            if path.suffix.lower() in (*IMAGES, *ARRAYS):
                return path.suffix.lower() in IMAGES
    except DataError:  # unreadable or too deep: the reader says so, of either kind
        return False
    return False

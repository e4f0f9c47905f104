"""Feature files: CSV, Parquet, NPZ, and folders of NPY arrays, each read into one `Table`.

Nothing here unpickles, and every problem of a file is one `DataError` that says where it is.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headstart.data.table import Columns, Features, Table, as_features, assemble, text_labels
from headstart.errors import DataError
from headstart.labels import as_labels
from headstart.optional import require

IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
Lines: TypeAlias = list[tuple[int, list[str]]]  # of a CSV file: the line number, the cells


def read(path: Path, columns: Columns) -> Table:
    """The table in the file or folder at `path`."""
    if path.is_dir():
        return read_folder(path)
    reader = {".csv": read_csv, ".parquet": read_parquet, ".npz": read_npz}.get(path.suffix.lower())
    if not path.exists():
        raise DataError(
            f"{path}: no such file; expected 'digits', a .csv, .parquet or .npz file, or a folder"
        )
    if path.suffix.lower() in IMAGES:
        raise DataError(
            f"{path}: a single image is not a dataset; expected a folder client/class/file or "
            "class/file, a .zip or a CIFAR .tar.gz of images, or a .csv, .parquet or .npz file "
            "of features"
        )
    if reader is None:
        raise DataError(f"{path}: expected a .csv, .parquet or .npz file, got {path.suffix!r}")
    try:
        table = reader(path, columns)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not len(table.labels):
        raise DataError(f"{path}: expected at least one sample, got none")
    return table


# --- CSV


def read_csv(path: Path, columns: Columns) -> Table:
    """A header, then a sample a line; columns without a role are features."""
    header, lines = csv_lines(path)
    columns.check(path, header)
    roles = columns.roles().values()
    inputs = [at for at, name in enumerate(header) if name not in roles]
    if not inputs:
        raise DataError(f"{path}: expected at least one feature column, got only {header}")
    text = csv_text(path, header, lines, columns)
    features = _csv_features(path, header, inputs, lines)
    labels = text_labels(text["label"]) if "label" in text else None
    return assemble(path, columns, features, labels, text)


def csv_lines(path: Path) -> tuple[list[str], Lines]:
    """The header, and the cells of each row with the line where it ends."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [cell.strip() for cell in next(reader, [])]
            _check_header(path, header)
            lines = [(reader.line_num, row) for row in reader if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: expected a CSV file in UTF-8: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    _check_widths(path, len(header), lines)
    return header, lines


def csv_text(path: Path, header: list[str], lines: Lines, columns: Columns) -> dict[str, list[str]]:
    """Role by role, the columns that are asked for and present."""
    return {
        role: _text_column(path, lines, header.index(name), role)
        for role, name in columns.told().items()
        if name in header
    }


def _check_header(path: Path, header: list[str]) -> None:
    if not any(header):
        raise DataError(f"{path}: expected a header line, got an empty file")
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: expected unique column names, got {twice!r} twice")


def _check_widths(path: Path, width: int, lines: Lines) -> None:
    for row, (line, cells) in enumerate(lines, 1):
        if len(cells) != width:
            raise DataError(
                f"{path}: row {row} (line {line}): expected {width} cells as in the header, "
                f"got {len(cells)}"
            )


def _text_column(path: Path, lines: Lines, at: int, role: str) -> list[str]:
    texts = [cells[at].strip() for _, cells in lines]
    if "" in texts:
        row = texts.index("")
        raise DataError(
            f"{path}: row {row + 1} (line {lines[row][0]}): expected a {role}, got an empty cell"
        )
    return texts


def _csv_features(path: Path, header: list[str], inputs: list[int], lines: Lines) -> Features:
    features = np.empty((len(lines), len(inputs)))
    for row, (line, cells) in enumerate(lines):
        try:
            features[row] = [float(cells[column]) for column in inputs]
            sound = bool(np.isfinite(features[row]).all())
        except ValueError:
            sound = False
        if not sound:
            column = next(column for column in inputs if not _is_finite(cells[column]))
            raise DataError(
                f"{path}: row {row + 1} (line {line}), column {header[column]!r}: "
                f"expected a finite number, got {cells[column]!r}"
            )
    return features


def _is_finite(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


# --- Parquet


def read_parquet(path: Path, columns: Columns) -> Table:
    """The columns of a CSV file, or one column `features` of lists in place of the numeric ones."""
    parquet, pyarrow = (require(name, what=str(path)) for name in ("pyarrow.parquet", "pyarrow"))
    try:
        with parquet.ParquetFile(path) as file:
            table = file.read()
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: expected a Parquet file: {error}") from error
    columns.check(path, table.column_names)
    roles = {role: c for role, c in columns.roles().items() if c in table.column_names}
    unread = [column for role, column in roles.items() if role not in columns.told()]
    _check_nulls(path, table.drop_columns(unread))
    text = {role: table.column(roles[role]).to_pylist() for role in columns.told() if role in roles}
    features = _parquet_features(path, table.drop_columns(list(roles.values())))
    where = f"{path}: {columns.label!r}"
    labels = as_labels(_objects(text["label"]), where) if "label" in text else None
    return assemble(path, columns, features, labels, text)


def _objects(values: list[Any]) -> NDArray[np.object_]:
    array = np.empty(len(values), dtype=np.object_)
    array[:] = values
    return array


def _check_nulls(path: Path, table: Any) -> None:
    for name in table.column_names:
        column = table.column(name)
        if column.null_count:
            row = column.is_null().to_pylist().index(True)
            raise DataError(f"{path}: row {row + 1}, column {name!r}: expected a value, got null")


def _parquet_features(path: Path, table: Any) -> Features:
    import pyarrow.types as kinds

    if not table.num_columns:
        raise DataError(f"{path}: expected at least one feature column, got none")
    if table.column_names == ["features"] and kinds.is_nested(table.schema.types[0]):
        return _list_features(path, table.column(0))
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if not (kinds.is_integer(kind) or kinds.is_floating(kind)):
            raise DataError(f"{path}: column {name!r}: expected numbers, got {kind}")
    stacked = np.column_stack([column.to_numpy() for column in table.columns])
    return as_features(stacked, str(path))


def _list_features(path: Path, column: Any) -> Features:
    import pyarrow.compute as pc

    lists = column.combine_chunks()
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    odd = np.flatnonzero(lengths != lengths[:1])
    if odd.size:
        raise DataError(
            f"{path}: row {odd[0] + 1}, column 'features': expected {lengths[0]} numbers as in "
            f"row 1, got {lengths[odd[0]]}"
        )
    flat = lists.flatten()
    if flat.null_count:
        row = flat.is_null().to_pylist().index(True) // int(lengths[0])
        raise DataError(f"{path}: row {row + 1}, column 'features': expected numbers, got null")
    values = flat.to_numpy(zero_copy_only=False).reshape(len(lengths), -1 if len(lengths) else 1)
    return as_features(values, f"{path}: 'features'")


# --- NPZ


def read_npz(path: Path, columns: Columns) -> Table:
    """Arrays `features` and `label`, and the optional ones, a row a sample; names may be plural.

    The split is `split` (train, test) or a boolean `is_train` or `is_test`; other arrays are left
    alone.
    """
    arrays, columns = _npz_arrays(path, columns)
    features = as_features(arrays.pop("features"), f"{path}: 'features'")
    for name, array in arrays.items():
        if array.shape != (len(features),):
            raise DataError(
                f"{path}: {name!r}: expected one a sample ({len(features)}), "
                f"got shape {array.shape}"
            )
    checked = {
        role: as_labels(arrays[column], f"{path}: {column!r}")
        for role, column in columns.told().items()
        if column in arrays
    }
    table = assemble(path, columns, features, checked.get("label"), checked)
    return replace(table, test=_npz_test(path, arrays, table.test))


def _npz_arrays(path: Path, columns: Columns) -> tuple[dict[str, NDArray[Any]], Columns]:
    """The arrays that matter by name, and the columns under the names the file uses."""
    with path.open("rb") as file:  # ours to close: NumPy leaves a damaged archive open
        try:
            archive = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{path}: expected an NPZ file: {error}") from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path}: expected an NPZ file, got a single array (.npy)")
        return _npz_members(path, archive, columns)


def _npz_members(
    path: Path, archive: Any, columns: Columns
) -> tuple[dict[str, NDArray[Any]], Columns]:
    names = archive.files
    if "features" not in names:
        raise DataError(f"{path}: expected an array 'features', got {', '.join(names)}")
    columns = Columns(
        **{r: _plural(c, names) for r, c in columns.roles().items()}, labelled=columns.labelled
    )
    columns.check(path, names)
    wanted = {"features", "is_train", "is_test", *columns.told().values()}
    return {name: _member(path, archive, name) for name in names if name in wanted}, columns


def _plural(name: str, names: list[str]) -> str:
    return f"{name}s" if name not in names and f"{name}s" in names else name


def _member(path: Path, archive: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(archive[name])
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: {name!r}: expected an array of numbers or strings (objects are never "
            f"unpickled): {error}"
        ) from error


def _npz_test(
    path: Path, arrays: dict[str, NDArray[Any]], test: NDArray[np.bool_] | None
) -> NDArray[np.bool_] | None:
    """The test mask from every array that tells it; they must agree."""
    found = {} if test is None else {"split": test}
    for name, meaning in (("is_test", True), ("is_train", False)):
        if name in arrays:
            if arrays[name].dtype != np.bool_:
                raise DataError(f"{path}: {name!r}: expected booleans, got {arrays[name].dtype}")
            found[name] = arrays[name] == meaning
    masks = list(found.values())
    if any((mask != masks[0]).any() for mask in masks):
        raise DataError(f"{path}: expected {' and '.join(found)} to tell the same split")
    return masks[0] if masks else None


# --- Folders


def read_folder(root: Path) -> Table:
    """`client/class/file.npy` or `class/file.npy`; a file is one sample (1-D) or several (2-D)."""
    paths = sorted(_visible(root, 1))
    if not paths:
        raise DataError(f"{root}: expected client/class/file or class/file, got an empty folder")
    _check_suffixes(paths)
    depth = _check_depths(root, paths)
    blocks = [_read_npy(path) for path in paths]
    for path, block in zip(paths, blocks, strict=True):
        if block.shape[1] != blocks[0].shape[1]:
            raise DataError(
                f"{path}: expected {blocks[0].shape[1]} features as in {paths[0]}, "
                f"got {block.shape[1]}"
            )
    lengths = [len(block) for block in blocks]
    if not sum(lengths):
        raise DataError(f"{root}: expected at least one sample, got none")
    labels = np.repeat(text_labels([path.parent.name for path in paths]), lengths)
    clients = np.array([path.parent.parent.name for path in paths], dtype=np.str_)
    features = as_features(np.concatenate(blocks), str(root))
    return Table(features, labels, np.repeat(clients, lengths) if depth == 3 else None)


def _visible(folder: Path, depth: int) -> Iterator[Path]:
    """The files below `folder`, which is `depth` deep; names with a leading dot are skipped."""
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from error
    for entry in entries:
        if not entry.is_dir():
            yield entry
        elif depth < 3:
            yield from _visible(entry, depth + 1)
        else:
            raise DataError(
                f"{entry}: expected client/class/file or class/file, got a folder inside a class"
            )


def _check_suffixes(paths: list[Path]) -> None:
    for path in paths:
        if path.suffix.lower() in IMAGES:
            raise DataError(
                f"{path}: expected feature arrays (.npy), got an image; a folder holds either "
                "features or images, and load_images reads the latter"
            )
        if path.suffix.lower() != ".npy":
            raise DataError(f"{path}: expected feature arrays (.npy), got {path.suffix!r}")


def _check_depths(root: Path, paths: list[Path]) -> int:
    """3 for client/class/file, 2 for class/file; the same for all files."""
    depths = [len(path.relative_to(root).parts) for path in paths]
    for path, depth in zip(paths, depths, strict=True):
        if depth == 1:
            raise DataError(f"{path}: expected client/class/file or class/file, got a loose file")
        if depth != depths[0]:
            raise DataError(
                f"{root}: expected all files at one depth, got {paths[0]} and {path}: "
                "either client/class/file or class/file"
            )
    return depths[0]


def _read_npy(path: Path) -> Features:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: expected an array of numbers (.npy): {error}") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: expected one array (.npy), got an archive")
    return as_features(array[None] if array.ndim == 1 else array, str(path))

"""Feature files: CSV, Parquet, NPZ, and folders of NPY arrays, each read into one `Table`.

Nothing here unpickles, and every problem of a file is one `DataError` that says where it is.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.array_files import RATIO, UNFOLDED, check_array, check_member
from headstart.data.delimited import csv_features, csv_lines, csv_text
from headstart.data.folders import ARRAYS, IMAGES, of_kind, visible
from headstart.data.table import Columns, Features, Table, as_features, assemble, text_labels
from headstart.errors import DataError
from headstart.files import readable
from headstart.labels import as_labels
from headstart.optional import require

FILES = ".csv, .tsv, .parquet or .npz file"


def read(path: Path, columns: Columns) -> Table:
    """The table in the file or folder at `path`."""
    if path.is_dir():
        return read_folder(path)
    if not path.exists():
        raise DataError(f"{path}: no such file; expected 'digits', a {FILES}, or a folder")
    if path.suffix.lower() in IMAGES:
        raise single_image(path)
    readers = {".csv": read_csv, ".tsv": read_csv, ".parquet": read_parquet, ".npz": read_npz}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: expected a {FILES}, got {path.suffix!r}")
    try:
        table = reader(path, columns)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not len(table.labels):
        raise DataError(f"{path}: expected at least one sample, got none")
    return table


def single_image(path: Path) -> DataError:
    """One image can be predicted, but not learned from."""
    return DataError(
        f"{path}: a single image is not a dataset; expected a folder client/class/file or "
        f"class/file, a .zip or a CIFAR .tar.gz of images, or a {FILES} of features"
    )


# --- CSV


def read_csv(path: Path, columns: Columns) -> Table:
    """A header, then a sample a line; columns without a role are features."""
    header, lines = csv_lines(path)
    columns.check(path, header)
    roles = columns.roles().values()
    inputs = [at for at, name in enumerate(header) if name not in roles]
    if not inputs:
        raise DataError(f"{path}: expected at least one feature column, got only {header}")
    text = csv_text(str(path), header, lines, columns)
    features = csv_features(str(path), header, inputs, lines)
    labels = text_labels(text["label"]) if "label" in text else None
    return assemble(path, columns, features, labels, text)


# --- Parquet


def read_parquet(path: Path, columns: Columns) -> Table:
    """The columns of a CSV file, or one column `features` of lists in place of the numeric ones."""
    parquet, pyarrow = (require(name, what=str(path)) for name in ("pyarrow.parquet", "pyarrow"))
    try:
        with parquet.ParquetFile(path) as file:
            _check_unfolded(path, file.metadata)
            table = file.read()
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: expected a Parquet file: {error}") from error
    columns.check(path, table.column_names)
    roles = {role: c for role, c in columns.roles().items() if c in table.column_names}
    unread = [column for role, column in roles.items() if role not in columns.requested()]
    _check_nulls(path, table.drop_columns(unread))
    text = {
        role: table.column(roles[role]).to_pylist() for role in columns.requested() if role in roles
    }
    features = _parquet_features(path, table.drop_columns(list(roles.values())))
    where = f"{path}: {columns.label!r}"
    labels = as_labels(_objects(text["label"]), where) if "label" in text else None
    return assemble(path, columns, features, labels, text)


def _check_unfolded(path: Path, about: Any) -> None:
    """Refuse a file of few bytes that claims very many values (a run of equal ones is a few)."""
    values = sum(
        about.row_group(group).column(column).num_values
        for group in range(about.num_row_groups)
        for column in range(about.num_columns)
    )
    there = path.stat().st_size
    if 8 * values > max(UNFOLDED, RATIO * there):
        raise DataError(
            f"{path}: expected a table, got one that unfolds to {values:,} values from "
            f"{there:,} bytes; save it without compression and dictionaries"
        )


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
    """Arrays `features` and `label`, and optional ones, one row per sample; names may be plural.

    Without these names, `X` and `y` are they. The split is `split` (train, test) or a boolean
    `is_train` or `is_test`; other arrays are left alone.
    """
    arrays, columns = _npz_arrays(path, columns)
    inputs = _features_name(list(arrays))
    features = as_features(arrays.pop(inputs), f"{path}: {inputs!r}")
    for name, array in arrays.items():
        if array.shape != (len(features),):
            raise DataError(
                f"{path}: {name!r}: expected one per sample ({len(features)}), "
                f"got shape {array.shape}"
            )
    checked = {
        role: as_labels(arrays[column], f"{path}: {column!r}")
        for role, column in columns.requested().items()
        if column in arrays
    }
    table = assemble(path, columns, features, checked.get("label"), checked)
    return replace(table, test=_npz_test(path, arrays, table.test))


def _npz_arrays(path: Path, columns: Columns) -> tuple[dict[str, NDArray[Any]], Columns]:
    """The arrays that matter by name, and the columns under the names the file uses."""
    with path.open("rb") as file:  # ours to close: NumPy leaves a damaged archive open
        try:
            archive = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
            raise DataError(f"{path}: expected an NPZ file: {error}") from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path}: expected an NPZ file, got a single array (.npy)")
        return _npz_members(path, archive, columns)


def _npz_members(
    path: Path, archive: Any, columns: Columns
) -> tuple[dict[str, NDArray[Any]], Columns]:
    names = archive.files
    inputs = _features_name(names)
    if inputs not in names:
        raise DataError(f"{path}: expected an array 'features' or 'X', got {', '.join(names)}")
    columns = Columns(
        **{r: _known_as(c, names) for r, c in columns.roles().items()}, labelled=columns.labelled
    )
    columns.check(path, names)
    wanted = {inputs, "is_train", "is_test", *columns.requested().values()}
    return {name: _member(path, archive, name) for name in names if name in wanted}, columns


def _features_name(names: Sequence[str]) -> str:
    return "features" if "features" in names else "X"


def _known_as(column: str, names: Sequence[str]) -> str:
    """The name a file has for a column: its own, the plural, or `y` for the label."""
    also = (column, f"{column}s", *(["y"] if column == "label" else []))
    return next((name for name in also if name in names), column)


def _member(path: Path, archive: Any, name: str) -> NDArray[Any]:
    stored = name if name in archive.zip.namelist() else f"{name}.npy"
    check_member(archive.zip, stored, f"{path}: {name!r}")
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
    """The test mask from every array that has one; they must agree."""
    splits = {} if test is None else {"split": test}
    for name, meaning in (("is_test", True), ("is_train", False)):
        if name in arrays:
            if arrays[name].dtype != np.bool_:
                raise DataError(f"{path}: {name!r}: expected booleans, got {arrays[name].dtype}")
            splits[name] = arrays[name] == meaning
    masks = list(splits.values())
    if any((mask != masks[0]).any() for mask in masks):
        raise DataError(f"{path}: expected {' and '.join(splits)} to hold the same split")
    return masks[0] if masks else None


# --- Folders


def read_folder(root: Path) -> Table:
    """`client/class/file.npy` or `class/file.npy`; a file is one sample (1-D) or several (2-D)."""
    names = of_kind(root, sorted(visible(root)), ARRAYS, "client/class/file or class/file")
    depth = _check_depths(root, names)
    blocks = [_read_npy(root / name) for name in names]
    for name, block in zip(names, blocks, strict=True):
        if block.shape[1] != blocks[0].shape[1]:
            raise DataError(
                f"{root / name}: expected {blocks[0].shape[1]} features as in {root / names[0]}, "
                f"got {block.shape[1]}"
            )
    lengths = [len(block) for block in blocks]
    if not sum(lengths):
        raise DataError(f"{root}: expected at least one sample, got none")
    labels = np.repeat(text_labels([readable(name.parent.name) for name in names]), lengths)
    clients = np.array([readable(name.parts[0]) for name in names], dtype=np.str_)
    features = as_features(np.concatenate(blocks), str(root))
    return Table(features, labels, np.repeat(clients, lengths) if depth == 3 else None)


def _check_depths(root: Path, names: Sequence[PurePosixPath]) -> int:
    """3 for client/class/file, 2 for class/file; the same for all files."""
    depths = [len(name.parts) for name in names]
    for name, depth in zip(names, depths, strict=True):
        if depth == 1:
            raise DataError(
                f"{root / name}: expected client/class/file or class/file, got a loose file"
            )
        if depth != depths[0]:
            raise DataError(
                f"{root}: expected all files at one depth, got {names[0]} and {name}: "
                "either client/class/file or class/file"
            )
    return depths[0]


def _read_npy(path: Path) -> Features:
    try:
        with path.open("rb") as file:
            check_array(file, path.stat().st_size, str(path))
        array = np.load(path, allow_pickle=False)
    except DataError:
        raise
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: expected an array of numbers (.npy): {error}") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: expected one array (.npy), got an archive")
    return as_features(array[None] if array.ndim == 1 else array, str(path))

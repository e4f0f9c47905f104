"""Datasets: features, labels, and where a source tells them, clients, domains and a test split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.data import checks, files
from headstart.data.stratify import held_out
from headstart.data.table import OWN_NAMES, Columns, Features, as_features
from headstart.errors import DataError
from headstart.files import readable
from headstart.labels import Labels, as_labels, same_kind
from headstart.registry import Registry

Mask: TypeAlias = NDArray[np.bool_]
F = TypeVar("F", bound=Callable[[], "Dataset"])


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples in memory: one row of features and one label each."""

    name: str
    features: Features
    labels: Labels
    clients: NDArray[np.str_] | None = None
    domains: NDArray[np.str_] | None = None
    test: Mask | None = None

    def __post_init__(self) -> None:
        features = as_features(self.features, f"{self.name}: features")
        labels = as_labels(self.labels, f"{self.name}: labels")
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "labels", labels)
        for field in ("clients", "domains"):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, self._names(field))
        if self.test is not None:
            object.__setattr__(self, "test", self._mask())
        self._check_lengths()

    def _names(self, field: str) -> NDArray[np.str_]:
        return as_labels(getattr(self, field), f"{self.name}: {field}").astype(np.str_)

    def _mask(self) -> Mask:
        mask = np.asarray(self.test)
        if mask.dtype != np.bool_ or mask.ndim != 1:
            raise DataError(
                f"{self.name}: test: expected a boolean mask (1-D), "
                f"got {mask.dtype} of shape {mask.shape}"
            )
        return mask

    def _check_lengths(self) -> None:
        for field in ("labels", "clients", "domains", "test"):
            values = getattr(self, field)
            if values is not None and len(values) != len(self.features):
                raise DataError(
                    f"{self.name}: {field}: expected one a sample ({len(self.features)}), "
                    f"got {len(values)}"
                )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def dimension(self) -> int:
        """The number of features of a sample."""
        return int(self.features.shape[1])

    @property
    def classes(self) -> Labels:
        """The sorted classes."""
        return np.unique(self.labels)

    def subset(self, indices: ArrayLike) -> Dataset:
        """The samples at `indices` (positions, or a boolean mask), in that order."""
        index = _as_index(indices, len(self))

        def pick(values: NDArray[Any] | None) -> Any:
            return None if values is None else values[index]

        picked = {
            field: pick(getattr(self, field))
            for field in ("features", "labels", "clients", "domains", "test")
        }
        return replace(self, **picked)

    def train_part(self) -> Dataset:
        """The samples outside the test set; all of them when there is no split."""
        return self if self.test is None else replace(self.subset(~self.test), test=None)

    def test_part(self) -> Dataset:
        """The samples of the test set."""
        if self.test is None:
            raise DataError(f"{self.name}: expected a test split, got none; with_test() makes one")
        return replace(self.subset(self.test), test=None)

    def with_test(self, fraction: float, seed: int = 0) -> Dataset:
        """The same samples with a new test set, stratified by class.

        A class never loses its last training sample: classes of one sample are not tested.
        """
        checks.fraction("fraction", fraction)
        _, codes = np.unique(self.labels, return_inverse=True)
        groups = np.zeros(len(self), dtype=np.int64)
        return replace(self, test=held_out(groups, codes, fraction, checks.generator(seed)))

    def with_outside(self, other: Dataset) -> Dataset:
        """These samples for training and the `other` ones, or their test part, for testing."""
        if self.test is not None and self.test.any():
            raise DataError(f"test: {self.name} has test samples of its own; expected none")
        outside = other if other.test is None else other.test_part()
        if outside.dimension != self.dimension:
            raise DataError(
                f"test: expected features of dimension {self.dimension}, got {outside.dimension}"
            )
        if not same_kind(self.labels, outside.labels):
            raise DataError(
                f"test: expected labels like {self.labels[0]!r}, got {outside.labels[0]!r}"
            )
        nobody = np.full(len(outside), "", np.str_)
        return Dataset(
            self.name,
            np.concatenate([self.features, outside.features.astype(self.features.dtype)]),
            np.concatenate([self.labels, outside.labels]),
            None if self.clients is None else np.concatenate([self.clients, nobody]),
            None if self.domains is None else np.concatenate([self.domains, nobody]),
            np.repeat([False, True], [len(self), len(outside)]),
        )


def load(source: str | Path, columns: Columns = OWN_NAMES) -> Dataset:
    """A dataset by name ("digits"), or from a .csv, .tsv, .parquet or .npz file or a folder.

    A name comes before a file that is called so: `./digits` is the file.
    `columns` names the columns (arrays) of a file; only the label is required, unless a name
    other than the default is asked for. A folder is `client/class/file` or `class/file`, of .npy
    files. Without `labelled` a file may lack the label: every sample then has the label "".
    """
    if isinstance(source, str) and source in DATASETS:
        made = DATASETS[source]()
        if not isinstance(made, Dataset):
            raise DataError(f"data: {source}: expected a Dataset, got {type(made).__name__}")
        return made
    path = Path(source)
    table = files.read(path, columns)
    name = readable(path.resolve().name if path.is_dir() else path.stem)
    return Dataset(name, table.features, table.labels, table.clients, table.domains, table.test)


def digits() -> Dataset:
    """Scikit-learn's 8x8 handwritten digits, pixels from 0 to 1, a fifth of them for testing."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return Dataset("digits", pixels / 16, labels).with_test(0.2, seed=0)


DATASETS: Registry[Callable[[], Dataset]] = Registry(
    "data", "headstart.datasets", lambda: {"digits": digits}
)


def register_dataset(function: F) -> F:
    """Let a dataset of your own be named: `my_data`, a function without parameters, is "my-data".

    It returns a `Dataset`.
    """
    DATASETS.add(function)
    return function


def _as_index(indices: ArrayLike, n: int) -> NDArray[np.int64]:
    index = np.asarray(indices)
    if index.dtype == np.bool_ and index.shape == (n,):
        return np.flatnonzero(index)
    if index.size == 0:
        return np.zeros(0, dtype=np.int64)
    if index.ndim != 1 or index.dtype.kind not in "iu":
        raise DataError(
            f"indices: expected 1-D positions or a boolean mask of {n} samples, "
            f"got {index.dtype} of shape {index.shape}"
        )
    if index.min() < 0 or index.max() >= n:
        raise DataError(f"indices: expected positions from 0 to {n - 1}, got {index.max()}")
    return index.astype(np.int64)

"""Datasets: features, labels, and where a source has them, clients, domains and a test split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from headstart.data import files
from headstart.data.labelled import Labelled
from headstart.data.samples import ArraySamples
from headstart.data.table import OWN_NAMES, Columns, Features, as_features
from headstart.errors import DataError
from headstart.files import readable
from headstart.labels import Labels, as_labels
from headstart.registry import Registry

Mask: TypeAlias = NDArray[np.bool_]
F = TypeVar("F", bound=Callable[[], "Dataset"])


@dataclass(frozen=True, eq=False)
class Dataset(Labelled):
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
                    f"{self.name}: {field}: expected one per sample ({len(self.features)}), "
                    f"got {len(values)}"
                )

    @property
    def dimension(self) -> int:
        """The number of features of a sample."""
        return int(self.features.shape[1])

    @property
    def samples(self) -> ArraySamples:
        """The features and labels, as a client or a test set holds them."""
        return ArraySamples(self.features, self.labels)

    def _picked(self, index: NDArray[np.int64]) -> dict[str, Any]:
        return {"features": self.features[index]}

    def _joined(self, other: Any) -> dict[str, Any]:
        if other.dimension != self.dimension:
            raise DataError(
                f"test: expected features of dimension {self.dimension}, got {other.dimension}"
            )
        features = [self.features, other.features.astype(self.features.dtype)]
        return {"features": np.concatenate(features)}


def load(source: str | Path, columns: Columns = OWN_NAMES) -> Dataset:
    """A dataset by name ("digits"), or from a .csv, .tsv, .parquet or .npz file or a folder.

    A name comes before a file that is called so: `./digits` is the file.
    `columns` names the columns (arrays) of a file; only the label is required, unless a name
    other than the default is requested. A folder is `client/class/file` or `class/file`, of .npy
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

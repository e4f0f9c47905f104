"""What every set of labelled samples can do, however its samples are held: split, pick, join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.data import checks
from headstart.data.stratify import held_out
from headstart.errors import DataError
from headstart.labels import Labels, same_kind

T = TypeVar("T", bound="Labelled")


class Labelled:
    """A frozen dataclass with a label for each sample and, where they are known, more columns."""

    if TYPE_CHECKING:
        name: str
        labels: Labels
        clients: NDArray[np.str_] | None
        domains: NDArray[np.str_] | None
        test: NDArray[np.bool_] | None

    def _picked(self, index: NDArray[np.int64]) -> Mapping[str, Any]:
        """The fields that hold the samples, of those at `index` alone."""
        raise NotImplementedError

    def _joined(self, other: Any) -> Mapping[str, Any]:
        """The fields that hold the samples, of these and the other ones."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> Labels:
        """The sorted classes."""
        return np.unique(self.labels)

    def subset(self, indices: ArrayLike) -> Self:
        """The samples at `indices` (positions, or a boolean mask), in that order."""
        index = as_index(indices, len(self))
        columns = {name: getattr(self, name) for name in ("labels", "clients", "domains", "test")}
        picked = {name: None if held is None else held[index] for name, held in columns.items()}
        return _changed(self, **picked, **self._picked(index))

    def train_part(self) -> Self:
        """The samples outside the test set; all of them when there is no split."""
        return self if self.test is None else _changed(self.subset(~self.test), test=None)

    def test_part(self) -> Self:
        """The samples of the test set; refused where there is none."""
        if self.test is None:
            raise DataError(f"{self.name}: expected a test split, got none; with_test() makes one")
        return _changed(self.subset(self.test), test=None)

    def with_test(self, fraction: float, seed: int = 0) -> Self:
        """The same samples with a new test set, stratified by class.

        A class never loses its last training sample: classes of one sample are not tested.
        """
        checks.fraction("fraction", fraction)
        _, codes = np.unique(self.labels, return_inverse=True)
        groups = np.zeros(len(self), dtype=np.int64)
        return _changed(self, test=held_out(groups, codes, fraction, checks.generator(seed)))

    def with_outside(self, other: Any) -> Self:
        """These samples for training and the `other` ones, or their test part, for testing."""
        if self.test is not None and self.test.any():
            raise DataError(f"test: {self.name} has test samples of its own; expected none")
        outside = other if other.test is None else other.test_part()
        if not same_kind(self.labels, outside.labels):
            raise DataError(
                f"test: expected labels like {self.labels[0]!r}, got {outside.labels[0]!r}"
            )
        nobody = np.full(len(outside), "", np.str_)
        return _changed(
            self,
            labels=np.concatenate([self.labels, outside.labels]),
            clients=None if self.clients is None else np.concatenate([self.clients, nobody]),
            domains=None if self.domains is None else np.concatenate([self.domains, nobody]),
            test=np.repeat([False, True], [len(self), len(outside)]),
            **self._joined(outside),
        )


def _changed(held: T, /, **fields: Any) -> T:
    return replace(held, **fields)  # type: ignore[type-var]  # subclasses are dataclasses


def as_index(indices: ArrayLike, n: int) -> NDArray[np.int64]:
    """Positions among `n` samples; a boolean mask gives those that it marks, others are refused."""
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

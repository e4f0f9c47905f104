"""What any feature file holds: finite features, labels, and the optional columns, checked alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError
from headstart.labels import Labels

Features: TypeAlias = NDArray[np.float32] | NDArray[np.float64]

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True)
class Columns:
    """The names under which a file holds the label, client, domain and split of a sample."""

    label: str = "label"
    client: str = "client"
    domain: str = "domain"
    split: str = "split"
    labelled: bool = True  # False: samples to predict, whose label nobody knows

    def roles(self) -> dict[str, str]:
        """Each role (`label`, ...) and its column."""
        return {role: getattr(self, role) for role in ("label", "client", "domain", "split")}

    def requested(self) -> dict[str, str]:
        """Return the columns to read by role; a label that is not requested may be anything."""
        roles = self.roles()
        return roles if self.labelled else {r: c for r, c in roles.items() if r != "label"}

    def check(self, path: Path | str, present: Sequence[Any]) -> None:
        """Refuse a file without the label, or without a column that was given another name."""
        for role, column in self.roles().items():
            required = role == "label" and self.labelled
            if column not in present and (required or column != role):
                got = ", ".join(map(repr, present[:12])) + (", ..." if len(present) > 12 else "")
                raise DataError(f"{path}: expected a column {column!r} ({role}), got {got}")


OWN_NAMES = Columns()  # every role is the name of its column


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds."""

    features: Features
    labels: Labels
    clients: NDArray[np.str_] | None = None
    domains: NDArray[np.str_] | None = None
    test: NDArray[np.bool_] | None = None


def as_features(values: ArrayLike, where: str) -> Features:
    """A finite (n, d) float32 or float64 array; half precision widens to float32."""
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"{where}: expected samples x features (2-D), got shape {array.shape}")
    if array.dtype.kind not in "fiu":
        raise DataError(f"{where}: expected numbers, got dtype {array.dtype}")
    features: Features
    if array.dtype.kind == "f" and array.dtype.itemsize <= 4:
        features = array.astype(np.float32, copy=False)
    else:
        features = array.astype(np.float64, copy=False)
    finite = np.isfinite(features)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise DataError(
            f"{where}: row {row + 1}, feature {column + 1}: expected a finite number, "
            f"got {features[row, column]}"
        )
    return features


def text_labels(values: Sequence[str]) -> Labels:
    """Integers when every text is one as Python would print it ("7", not "007"), else strings."""
    if all(_INTEGER.fullmatch(value) and -(2**63) <= int(value) < 2**63 for value in values):
        return np.array([int(value) for value in values], dtype=np.int64)
    return np.array(values, dtype=np.str_)


def split_mask(values: Iterable[Any], where: str) -> NDArray[np.bool_]:
    """True where the text is "test"; anything but "train" and "test" is an error."""
    names = [str(value).strip().lower() for value in values]
    wrong = next((row for row, word in enumerate(names) if word not in ("train", "test")), None)
    if wrong is not None:
        raise DataError(f"{where}: row {wrong + 1}: expected train or test, got {names[wrong]!r}")
    return np.array([word == "test" for word in names], dtype=np.bool_)


def assemble(
    path: Path, columns: Columns, features: Features, labels: Labels | None, text: dict[str, Any]
) -> Table:
    """The table of a file whose optional columns, where present, are in `text`, role by role."""
    if labels is None:
        labels = np.full(len(features), "", dtype=np.str_)

    def names(role: str) -> NDArray[np.str_] | None:
        return np.array(text[role], dtype=np.str_) if role in text else None

    test = split_mask(text["split"], f"{path}: {columns.split!r}") if "split" in text else None
    return Table(features, labels, names("client"), names("domain"), test)

"""Fixed-point sums: tallies and training updates as whole numbers, which masks can hide.

A number x is round(x·2³²), cut at ±2²⁰: what rounding loses is at most 2⁻³³ per client and number,
and the sum of any order is the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError, WireError
from headstart.labels import Labels
from headstart.statistics import wire
from headstart.statistics.base import fingerprint
from headstart.statistics.exact import Lattice
from headstart.statistics.tally import Tally
from headstart.statistics.vectors import Vectors
from headstart.statistics.wire import Arrays, Field, Limits, Schema

STEP, MOST = 2.0**-32, 2.0**20
_SCHEMA: dict[str, Schema] = {"fixed": {"values": Field(("I64",), ("k",))}}
_ROOM = 2**62


@dataclass(frozen=True, eq=False)
class FixedSums:
    """Numbers in steps of 2⁻³²."""

    values: NDArray[np.int64]

    is_sum: ClassVar[bool] = True
    lattice: ClassVar[Lattice] = Lattice(1.0)  # of no features: its bound says nothing
    samples: ClassVar[int] = 0
    classes: ClassVar[Labels] = np.zeros(0, np.int64)

    @classmethod
    def of(cls, statistic: Tally | Vectors) -> Self:
        """Its numbers, rounded and cut; refused where one is none."""
        numbers = _flat(statistic)
        if not np.isfinite(numbers).all():
            raise WireError("nonfinite", "fixed: expected finite numbers, got NaN or infinity")
        return cls(np.rint(np.clip(numbers, -MOST, MOST) / STEP).astype(np.int64))

    def like(self, form: Tally | Vectors) -> Tally | Vectors:
        """The same numbers in the form that they were made of."""
        numbers: NDArray[np.float64] = self.values.astype(np.float64) * STEP
        if isinstance(form, Tally):
            return Tally(numbers)
        split = form.vectors.size
        vectors = numbers[:split].reshape(form.vectors.shape)
        return Vectors(vectors, numbers[split:], form.rows, form.names)

    @property
    def dimension(self) -> int:
        return len(self.values)

    def __add__(self, other: FixedSums) -> FixedSums:
        return FixedSums.total([self, other]) if isinstance(other, FixedSums) else NotImplemented

    @classmethod
    def total(cls, statistics: Iterable[FixedSums]) -> FixedSums:
        found: NDArray[np.int64] | None = None
        for item in statistics:
            if found is not None and found.shape != item.values.shape:
                raise DataError(f"fixed: expected {found.shape}, got {item.values.shape}")
            found = item.values.copy() if found is None else found + item.values
        if found is None:
            raise DataError("total: expected at least one statistic, got none")
        return FixedSums(found)

    def digest(self) -> str:
        return fingerprint("fixed", (self.values,))

    def to_arrays(self, precision: str | None = None) -> dict[str, NDArray[Any]]:
        return {"values": self.values}

    @classmethod
    def from_arrays(cls, arrays: Arrays, limits: Limits | None = None) -> Self:
        values = arrays["values"]
        if values.size and max(int(values.max()), -int(values.min())) > _ROOM:
            raise WireError("bound", "fixed: expected numbers within 62 bits")
        return cls(values)

    def to_bytes(self, precision: str | None = None) -> bytes:
        return wire.encode("fixed", self.to_arrays())

    @classmethod
    def from_bytes(cls, data: bytes, limits: Limits | None = None) -> Self:
        _, arrays = wire.decode(data, _SCHEMA, limits or Limits())
        return cls.from_arrays(arrays)


def _flat(statistic: Tally | Vectors) -> NDArray[np.float64]:
    if isinstance(statistic, Tally):
        return np.asarray(statistic.values, np.float64)
    rows = np.asarray(statistic.vectors, np.float64).reshape(-1)
    return np.concatenate([rows, np.asarray(statistic.numbers, np.float64)])

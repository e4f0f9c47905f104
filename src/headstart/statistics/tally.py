"""A tally: a few numbers that add, for what is asked of clients besides their features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError
from headstart.statistics import wire
from headstart.statistics.base import fingerprint
from headstart.statistics.wire import Arrays, Field, Limits, Schema

_SCHEMA: dict[str, Schema] = {"tally": {"values": Field(("F64",), ("k",))}}


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums whose meaning the step that asked for them knows (losses, hits, counts)."""

    values: NDArray[np.float64]

    is_sum: ClassVar[bool] = True

    def __add__(self, other: Tally) -> Tally:
        return Tally.total([self, other]) if isinstance(other, Tally) else NotImplemented

    def __radd__(self, other: object) -> Tally:
        return self if other == 0 else NotImplemented  # the start of sum()

    @classmethod
    def total(cls, statistics: Iterable[Tally]) -> Tally:
        values: NDArray[np.float64] | None = None
        for item in statistics:
            if values is not None and item.values.shape != values.shape:
                raise DataError(f"tally: expected {values.shape}, got {item.values.shape}")
            values = item.values.copy() if values is None else values + item.values
        if values is None:
            raise DataError("total: expected at least one statistic, got none")
        return cls(values)

    def digest(self) -> str:
        return fingerprint("tally", (self.values,))

    def to_arrays(self, precision: str | None = None) -> dict[str, NDArray[Any]]:
        return {"values": self.values}

    @classmethod
    def from_arrays(cls, arrays: Arrays, limits: Limits | None = None) -> Self:
        return cls(arrays["values"].astype(np.float64))

    def to_bytes(self, precision: str | None = None) -> bytes:
        """The message: a handful of float64, whatever the precision of other statistics."""
        return wire.encode("tally", self.to_arrays())

    @classmethod
    def from_bytes(cls, data: bytes, limits: Limits | None = None) -> Self:
        _, arrays = wire.decode(data, _SCHEMA, limits or Limits())
        return cls.from_arrays(arrays)

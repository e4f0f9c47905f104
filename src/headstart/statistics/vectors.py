"""Vectors that add: what training sends (weighted steps, control variates), summed over clients.

The server sees sums only, so a secure sum can carry every gradient method.
"""

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

_SCHEMA: dict[str, Schema] = {
    "vectors": {"vectors": Field(("F32", "F64"), ("r", "p")), "numbers": Field(("F64",), ("k",))}
}


@dataclass(frozen=True, eq=False)
class Vectors:
    """A few long vectors (rows) and a few numbers; sums are kept in float64."""

    vectors: NDArray[np.floating]
    numbers: NDArray[np.float64]

    is_sum: ClassVar[bool] = True

    def __add__(self, other: Vectors) -> Vectors:
        return Vectors.total([self, other]) if isinstance(other, Vectors) else NotImplemented

    def __radd__(self, other: object) -> Vectors:
        return self if other == 0 else NotImplemented  # the start of sum()

    @classmethod
    def total(cls, statistics: Iterable[Vectors]) -> Vectors:
        sums: list[NDArray[np.float64]] = []
        for item in statistics:
            parts = [item.vectors, item.numbers]
            if not sums:
                sums = [part.astype(np.float64) for part in parts]
                continue
            for sum_, part in zip(sums, parts, strict=True):
                if sum_.shape != part.shape:
                    raise DataError(f"vectors: expected {sum_.shape}, got {part.shape}")
                sum_ += part
        if not sums:
            raise DataError("total: expected at least one statistic, got none")
        return cls(sums[0], sums[1])

    def digest(self) -> str:
        return fingerprint("vectors", (self.vectors, self.numbers))

    def to_arrays(self, precision: str | None = None) -> dict[str, NDArray[Any]]:
        """At "float64" or as they are, which a client chooses when it makes them."""
        whole = self.vectors.astype(np.float64) if precision == "float64" else self.vectors
        return {"vectors": whole, "numbers": self.numbers}

    @classmethod
    def from_arrays(cls, arrays: Arrays, limits: Limits | None = None) -> Self:
        wire.checked("vectors", arrays, _SCHEMA["vectors"])
        return cls(arrays["vectors"], arrays["numbers"])

    def to_bytes(self, precision: str | None = None) -> bytes:
        return wire.encode("vectors", self.to_arrays(precision))

    def size(self, precision: str | None = None) -> int:
        """That of the message, in bytes."""
        return wire.size("vectors", self.to_arrays(precision))

    @classmethod
    def from_bytes(cls, data: bytes, limits: Limits | None = None) -> Self:
        _, arrays = wire.decode(data, _SCHEMA, limits or Limits())
        return cls.from_arrays(arrays)

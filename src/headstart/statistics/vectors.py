"""Vectors that add: what training sends (weighted steps, control variates), summed over clients.

The server sees sums only, so a secure sum can carry every gradient method. Every vector and every
number has a name, which travels with it: sums add what is called the same, or are refused.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError, WireError
from headstart.statistics import wire
from headstart.statistics.base import fingerprint
from headstart.statistics.wire import Arrays, Field, Limits, Schema

_SCHEMA: dict[str, Schema] = {
    "vectors": {
        "vectors": Field(("F32", "F64"), ("r", "p")),
        "numbers": Field(("F64",), ("k",)),
        "rows": Field(("U8",), ("R",)),
        "names": Field(("U8",), ("N",)),
    }
}


@dataclass(frozen=True, eq=False)
class Vectors:
    """A few long vectors (`rows` names them) and a few numbers (`names`); sums are in float64.

    Without names they are called 0, 1, …
    """

    vectors: NDArray[np.floating]
    numbers: NDArray[np.float64]
    rows: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    is_sum: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field, array in (("rows", self.vectors), ("names", self.numbers)):
            named = getattr(self, field) or tuple(map(str, range(len(array))))
            if len(named) != len(array) or len(set(named)) != len(named):
                raise DataError(f"{field}: expected {len(array)} different names, got {named}")
            object.__setattr__(self, field, named)

    def vector(self, name: str) -> NDArray[np.floating]:
        """The vector of this name; an unknown one is refused."""
        return self.vectors[self._place(name, self.rows)]

    def number(self, name: str) -> float:
        """The number of this name; an unknown one is refused."""
        return float(self.numbers[self._place(name, self.names)])

    @staticmethod
    def _place(name: str, names: tuple[str, ...]) -> int:
        if name not in names:
            raise DataError(f"vectors: expected {name!r}, got {', '.join(names) or 'none'}")
        return names.index(name)

    def __add__(self, other: Vectors) -> Vectors:
        return Vectors.total([self, other]) if isinstance(other, Vectors) else NotImplemented

    def __radd__(self, other: object) -> Vectors:
        return self if other == 0 else NotImplemented  # the start of sum()

    @classmethod
    def total(cls, statistics: Iterable[Vectors]) -> Vectors:
        sums: list[NDArray[np.float64]] = []
        called: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        for item in statistics:
            parts = [item.vectors, item.numbers]
            if not sums:
                sums = [part.astype(np.float64) for part in parts]
                called = item.rows, item.names
                continue
            if (item.rows, item.names) != called:
                raise DataError(f"vectors: expected {called}, got {(item.rows, item.names)}")
            for sum_, part in zip(sums, parts, strict=True):
                if sum_.shape != part.shape:
                    raise DataError(f"vectors: expected {sum_.shape}, got {part.shape}")
                sum_ += part
        if not sums:
            raise DataError("total: expected at least one statistic, got none")
        return cls(sums[0], sums[1], *called)

    def digest(self) -> str:
        return fingerprint("vectors", (self.vectors, self.numbers, self.rows, self.names))

    def to_arrays(self, precision: str | None = None) -> dict[str, NDArray[Any]]:
        """At "float64" or as they are, which a client chooses when it makes them."""
        whole = self.vectors.astype(np.float64) if precision == "float64" else self.vectors
        called = {"rows": _packed(self.rows), "names": _packed(self.names)}
        return {"vectors": whole, "numbers": self.numbers, **called}

    @classmethod
    def from_arrays(cls, arrays: Arrays, limits: Limits | None = None) -> Self:
        wire.checked("vectors", arrays, _SCHEMA["vectors"])
        called = (_unpacked(arrays[key].tobytes()) for key in ("rows", "names"))
        try:
            return cls(arrays["vectors"], arrays["numbers"], *called)
        except DataError as error:
            raise WireError("arrays", str(error)) from None

    def to_bytes(self, precision: str | None = None) -> bytes:
        return wire.encode("vectors", self.to_arrays(precision))

    def size(self, precision: str | None = None) -> int:
        """That of the message, in bytes."""
        return wire.size("vectors", self.to_arrays(precision))

    @classmethod
    def from_bytes(cls, data: bytes, limits: Limits | None = None) -> Self:
        _, arrays = wire.decode(data, _SCHEMA, limits or Limits())
        return cls.from_arrays(arrays)


@functools.lru_cache(maxsize=64)  # rounds of training say the same thousands of times
def _packed(names: tuple[str, ...]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(names, separators=(",", ":")).encode(), np.uint8)


@functools.lru_cache(maxsize=64)
def _unpacked(text: bytes) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        raise WireError("arrays", "vectors: expected names as a JSON list") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WireError("arrays", "vectors: expected names as a JSON list")
    return tuple(names)

"""Styles of images on their way: a row of an image, or of a client.

Rows stack and do not add: the server sees each, and hands them to all other clients. Privacy code
refuses them, by type.
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

_SCHEMA: dict[str, Schema] = {"style-rows": {"rows": Field(("F32",), ("n", "m"))}}


@dataclass(frozen=True, eq=False)
class StyleRows:
    """Rows n×m whose meaning the step that asked for them knows."""

    rows: NDArray[np.float32]

    is_sum: ClassVar[bool] = False

    def __add__(self, other: StyleRows) -> StyleRows:
        return StyleRows.total([self, other]) if isinstance(other, StyleRows) else NotImplemented

    @classmethod
    def total(cls, statistics: Iterable[StyleRows]) -> StyleRows:
        """All rows, one after the other."""
        tables = [one.rows for one in statistics]
        if len({table.shape[1] for table in tables}) != 1:
            raise DataError("style rows: expected rows of one length, of at least one client")
        return cls(np.concatenate(tables))

    def digest(self) -> str:
        return fingerprint("style-rows", (self.rows,))

    def to_arrays(self, precision: str | None = None) -> dict[str, NDArray[Any]]:
        return {"rows": self.rows}

    @classmethod
    def from_arrays(cls, arrays: Arrays, limits: Limits | None = None) -> Self:
        return cls(wire.checked("style-rows", arrays, _SCHEMA["style-rows"])["rows"])

    def to_bytes(self, precision: str | None = None) -> bytes:
        """The message: float32, whatever the precision of other statistics."""
        return wire.encode("style-rows", self.to_arrays())

    @classmethod
    def from_bytes(cls, data: bytes, limits: Limits | None = None) -> Self:
        _, arrays = wire.decode(data, _SCHEMA, limits or Limits())
        return cls.from_arrays(arrays)

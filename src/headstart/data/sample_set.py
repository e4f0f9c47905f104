"""A set of samples that are decoded one by one, on demand: only labels and names are in memory.

A source (files, an archive, the rows of a table) gives the bytes of a sample and decodes them; what
identifies a sample is the hash of those bytes, wherever they are stored.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headstart.data.labelled import Labelled
from headstart.errors import DataError
from headstart.labels import Labels, as_labels

Stamp: TypeAlias = tuple[int, int, int]  # size, mtime_ns, ctime_ns

_ADDRESS = re.compile(r" ?<[^<>]* at 0x[0-9a-fA-F]+>")


class CorruptSample(DataError):
    """A sample whose bytes cannot be read or decoded; `reason` does not depend on where it is."""

    def __init__(self, where: str, reason: object) -> None:
        self.reason = " ".join(_ADDRESS.sub("", str(reason)).split())[:200]
        super().__init__(f"{where}: {self.reason}")


class Source(Protocol):
    """Where samples come from; safe to use from several threads."""

    @property
    def root(self) -> Path:
        """The file or folder that holds the samples."""

    def __len__(self) -> int: ...

    def where(self, i: int) -> str:
        """The name of sample `i`, for people."""

    def read(self, i: int) -> bytes:
        """The bytes of sample `i`, or `CorruptSample`."""

    def decode(self, data: bytes, where: str) -> Any:
        """What an extractor's preprocessing takes, from the bytes of a sample."""

    def stamp(self, i: int) -> Stamp | None:
        """What changes when the file of sample `i` does; None when hashing it is as cheap."""


@dataclass(frozen=True, eq=False)
class Picked:
    """Some samples of a source, in another order."""

    inner: Source
    rows: NDArray[np.int64]

    @property
    def root(self) -> Path:
        return self.inner.root

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, i: int) -> str:
        return self.inner.where(int(self.rows[i]))

    def read(self, i: int) -> bytes:
        return self.inner.read(int(self.rows[i]))

    def decode(self, data: bytes, where: str) -> Any:
        return self.inner.decode(data, where)

    def stamp(self, i: int) -> Stamp | None:
        return self.inner.stamp(int(self.rows[i]))


@dataclass(frozen=True, eq=False)
class Joined:
    """The samples of one source, then those of another."""

    first: Source
    second: Source

    @property
    def root(self) -> Path:
        return self.first.root

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def part(self, i: int) -> tuple[Source, int]:
        """The source that sample `i` is of, and its place there."""
        count = len(self.first)
        return (self.first, i) if i < count else (self.second, i - count)

    def where(self, i: int) -> str:
        source, at = self.part(i)
        return source.where(at)

    def read(self, i: int) -> bytes:
        """With a first byte that says whose it is, for `decode`."""
        source, at = self.part(i)
        return (b"2" if source is self.second else b"1") + source.read(at)

    def decode(self, data: bytes, where: str) -> Any:
        source = self.second if data[:1] == b"2" else self.first
        return source.decode(data[1:], where)

    def stamp(self, i: int) -> Stamp | None:
        return None  # a record of hashes by name is that of the files alone


@dataclass(frozen=True, eq=False)
class SampleSet(Labelled):
    """Labelled samples: decoded by `open`, never held; they keep the order of the source."""

    name: str
    source: Source
    labels: Labels
    clients: NDArray[np.str_] | None = None
    domains: NDArray[np.str_] | None = None
    test: NDArray[np.bool_] | None = None
    kind: ClassVar[str] = "sample"

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", as_labels(self.labels, f"{self.name}: labels"))
        if not len(self.source):
            raise DataError(f"{self.name}: expected at least one {self.kind}, got none")
        for field in ("labels", "clients", "domains", "test"):
            values = getattr(self, field)
            if values is not None and len(values) != len(self.source):
                raise DataError(
                    f"{self.name}: {field}: expected one for each {self.kind} "
                    f"({len(self.source)}), got {len(values)}"
                )

    def _picked(self, index: NDArray[np.int64]) -> dict[str, Any]:
        if isinstance(self.source, Picked):
            return {"source": Picked(self.source.inner, self.source.rows[index])}
        return {"source": Picked(self.source, index)}

    def _joined(self, other: Any) -> dict[str, Any]:
        return {"source": Joined(self.source, other.source)}

    def open(self, i: int) -> Any:
        """Sample `i`, decoded; `CorruptSample` when it cannot be."""
        return self.source.decode(self.source.read(i), self.where(i))

    def content(self, i: int) -> str:
        """The SHA-256 of the bytes of sample `i`; of an unreadable one, that of the reason."""
        return fetch(self.source, i)[1]

    def where(self, i: int) -> str:
        """The name of sample `i`, for people."""
        return self.source.where(i)


def fetch(source: Source, i: int) -> tuple[bytes | CorruptSample, str]:
    """The bytes of sample `i`, or why there are none, and the hash that identifies them."""
    try:
        data = source.read(i)
    except CorruptSample as bad:
        return bad, hashlib.sha256(f"unreadable: {bad.reason}".encode()).hexdigest()
    return data, hashlib.sha256(data).hexdigest()

"""Features on disk: one folder per key, filled block by block, which survives being killed.

A block's rows are on disk before its line of the journal is, and a line holds the hash of its
rows: whatever a crash leaves, the blocks up to the first bad line or bad hash are kept, and the
finished file is the same as without the crash.

    <key>/features.part    header, then the rows so far          -> features.npy when complete
    <key>/journal.jsonl    a line for each block in features.part
    <key>/report.json      what features.npy holds
    <key>/lock             held by the one process that writes
    hashes/<root>.json     the hashes of files that have not changed since
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headstart.data.sample_set import SampleSet
from headstart.errors import DataError
from headstart.files import write_text

FORMAT = "headstart-features-1"
HEADER = 128  # bytes of an .npy header of two dimensions
SETTLED = 2 * 10**9  # ns after which a file that has not changed is trusted not to have

Corrupt = tuple[int, str]  # which sample, and why


def default_cache() -> Path:
    """$HEADSTART_CACHE/features, or headstart/features in the user's cache folder."""
    folder = os.environ.get("HEADSTART_CACHE")
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(folder) if folder else Path(user) / "headstart").expanduser() / "features"


def cache_key(digests: Sequence[str], **settings: str | int) -> str:
    """One name for these contents, in this order, under these settings."""
    head = json.dumps([FORMAT, sorted(settings.items())])
    return hashlib.sha256("\n".join((head, *digests)).encode()).hexdigest()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path}: the cache cannot be written: {error.strerror or error}"
        ) from error


# --- A finished file


@dataclass(frozen=True)
class Report:
    """What a finished file holds: of `images` images, `rows` have a row, the others are corrupt."""

    images: int
    rows: int
    dimension: int
    sha256: str  # of the rows, little-endian float32
    corrupt: tuple[Corrupt, ...]

    def kept(self) -> NDArray[np.bool_]:
        """Which images have a row."""
        mask = np.ones(self.images, dtype=np.bool_)
        mask[[i for i, _ in self.corrupt]] = False
        return mask


@dataclass(frozen=True)
class Slot:
    """The place of one key in the cache."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "features.npy"

    def finished(self) -> tuple[NDArray[np.float32], Report] | None:
        """The mapped features and their report, or None when they are not complete."""
        try:
            report_fields = json.loads((self.folder / "report.json").read_text())
            corrupt = tuple((int(i), str(reason)) for i, reason in report_fields.pop("corrupt"))
            report = Report(**report_fields, corrupt=corrupt)
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError):
            return None
        sound = array.shape == (report.rows, report.dimension) and array.dtype == np.float32
        return (array, report) if sound else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone in this slot: others wait; the lock of a dead process is gone with it."""
        import fcntl  # not on Windows

        with _writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            file = _open(self.folder / "lock")
        with file:
            with _writing(self.folder):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


# --- A file in the making


@dataclass
class Part:
    """The rows so far. `images` counts the images they stand for, corrupt ones included."""

    slot: Slot
    dimension: int
    data: BinaryIO
    journal: BinaryIO
    images: int = 0
    rows: int = 0
    corrupt: list[Corrupt] = field(default_factory=list)
    hash: Any = field(default_factory=hashlib.sha256)

    @classmethod
    @contextmanager
    def opened(cls, slot: Slot, dimension: int, block: int) -> Iterator[Part]:
        """The part of a locked slot, at the end of its last sound block of `block` images."""
        with _writing(slot.folder):
            data = _open(slot.folder / "features.part")
            journal = _open(slot.folder / "journal.jsonl")
        with data, journal:
            part = cls(slot, dimension, data, journal)
            with _writing(slot.folder):
                part._recover(block)
            yield part

    def append(self, rows: NDArray[np.float32], images: int, corrupt: Sequence[Corrupt]) -> None:
        """A block: the rows of the next `images` images but the corrupt ones."""
        content = np.ascontiguousarray(rows, dtype="<f4").tobytes()
        line = {
            "images": images,
            "rows": len(rows),
            "sha256": hashlib.sha256(content).hexdigest(),
            "corrupt": list(corrupt),
        }
        with _writing(self.slot.folder):
            self.data.seek(self._end())
            self.data.write(content)
            _sync(self.data)
            self.journal.write(json.dumps(line).encode() + b"\n")
            _sync(self.journal)
        self._advance(line, content)

    def finish(self) -> None:
        """Complete: the report first, then the features under their name."""
        sha256 = self.hash.hexdigest()
        report = Report(self.images, self.rows, self.dimension, sha256, tuple(self.corrupt))
        with _writing(self.slot.folder):
            self.data.truncate(self._end())
            self.data.seek(0)
            self.data.write(_header(self.rows, self.dimension))
            _sync(self.data)
            size = os.fstat(self.data.fileno()).st_size
            if size != self._end():
                raise OSError(f"expected {self._end()} bytes, got {size}")
            write_text(self.slot.folder / "report.json", json.dumps(asdict(report), indent=1))
            os.replace(self.slot.folder / "features.part", self.slot.path)
            (self.slot.folder / "journal.jsonl").unlink()
            _sync_folder(self.slot.folder)

    def _end(self) -> int:
        return HEADER + self.rows * self.dimension * 4

    def _advance(self, line: Mapping[str, Any], content: bytes) -> None:
        self.images += line["images"]
        self.rows += line["rows"]
        self.corrupt += [(int(i), str(reason)) for i, reason in line["corrupt"]]
        self.hash.update(content)

    def _recover(self, block: int) -> None:
        """Read the journal as far as the rows agree; cut both files there."""
        head = json.dumps({"block": block, "dimension": self.dimension}).encode() + b"\n"
        sound = len(head)
        if self.journal.readline() == head:
            self.data.seek(HEADER)
            while (text := self.journal.readline()).endswith(b"\n"):
                line = _parse(text)
                content = self.data.read(line["rows"] * self.dimension * 4)
                if hashlib.sha256(content).hexdigest() != line["sha256"]:
                    break
                self._advance(line, content)
                sound += len(text)
        self.journal.truncate(sound)
        self.journal.seek(0)
        self.journal.write(head)
        self.journal.seek(sound)
        self.data.truncate(self._end())  # grows an empty file by the place of the header
        _sync(self.data)
        _sync(self.journal)


def _open(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b")


def _parse(text: bytes) -> dict[str, Any]:
    """A line of the journal; a mangled one gets a hash that no rows have."""
    try:
        line = json.loads(text)
        if len(line["corrupt"]) == line["images"] - line["rows"] and line["rows"] >= 0:
            return {name: line[name] for name in ("images", "rows", "sha256", "corrupt")}
    except (ValueError, TypeError, KeyError):
        pass
    return {"rows": 0, "sha256": ""}


def _header(rows: int, dimension: int) -> bytes:
    buffer = io.BytesIO()
    shape = {"descr": "<f4", "fortran_order": False, "shape": (rows, dimension)}
    np.lib.format.write_array_header_1_0(buffer, shape)
    if len(buffer.getvalue()) != HEADER:
        raise OSError(f"expected an .npy header of {HEADER} bytes, got {len(buffer.getvalue())}")
    return buffer.getvalue()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- The hashes of files


@dataclass(frozen=True)
class Hashes:
    """Hashes by name of sample, good while the size and the times of the file are the same."""

    path: Path
    known: dict[str, list[Any]]

    @classmethod
    def of(cls, cache: Path, samples: SampleSet) -> Hashes:
        """What is known of the files of this source; nothing, when the record is unreadable."""
        root = hashlib.sha256(os.fsencode(samples.source.root.resolve())).hexdigest()
        path = cache / "hashes" / f"{root}.json"
        try:
            entries = json.loads(path.read_text())
        except (OSError, ValueError):
            entries = {}
        return cls(path, entries if isinstance(entries, dict) else {})

    def get(self, samples: SampleSet, i: int) -> str:
        """The hash of sample `i`, from the record or from its bytes."""
        stamp = samples.source.stamp(i)
        if stamp is None:
            return samples.content(i)
        entry = self.known.get(samples.where(i))
        if isinstance(entry, list) and len(entry) == 4 and entry[:3] == list(stamp):
            return str(entry[3])
        digest = samples.content(i)
        # One that changed a moment ago may change again within the clock's resolution.
        if time.time_ns() - max(stamp[1:]) > SETTLED:
            self.known[samples.where(i)] = [*stamp, digest]
        return digest

    def save(self) -> None:
        """An aid, no more: a cache that cannot be written to may still be read."""
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self.path, json.dumps(self.known))

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)

"""An append-only log of records in a few large files: written, flushed to the disk, then believed.

A record is a head of 32 bytes (magic, lengths, its number, and how much of this file was known to
be on the disk when it was written), a keyed BLAKE2b of head and meta, the meta (JSON) and the
payload, whose SHA-256 stands in the meta. The key stays with the server: no payload can contain a
record. Numbers have no gaps.

What a crash leaves: a record that does not fit its checksums is the torn end of the last
batch, and is cut off, unless the log shows that its place had been on the disk already. Then the
file was damaged later, and is refused. In any file but the last everything was on the disk. The
first file is there before the ledger is one, so a log without it is refused as well.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import struct
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headstart.deploy.failpoints import reached
from headstart.errors import HeadstartError

SEGMENT_BYTES = 2**26
_MAGIC = b"HSL1"
_HEAD = struct.Struct("<4sIQQQ")  # magic, bytes of meta and of payload, number, durable bytes
_MARK = 16
_META_LIMIT = 2**22
_BLOCK = 2**20
_NAME = re.compile(r"(\d{8})\.log")


@dataclass(frozen=True)
class Record:
    """One record: its number, what it says, and where its payload is."""

    number: int
    meta: Mapping[str, Any]
    segment: int
    start: int
    at: int
    size: int

    @property
    def end(self) -> int:
        return self.at + self.size


class _Place(NamedTuple):
    """Of a payload: all that memory keeps of it."""

    segment: int
    start: int
    at: int
    size: int
    sha256: str


class Log:
    """The records of a folder. One process writes; opening passes every record found to `note`."""

    def __init__(
        self, folder: Path, key: bytes, note: Callable[[Record], None], *, write: bool = True
    ) -> None:
        self.folder, self._key, self._write = folder, key, write
        self.torn = 0  # bytes of a torn end that were cut off (or, only looking, passed over)
        self._number = 0
        self._places: dict[int, _Place] = {}  # by the number of the record
        self._file, self._end, self._broken = -1, 0, False
        segments = self._segments()
        for segment in segments:
            for record in self._recover(segment, last=segment == segments[-1]):
                note(record)
        self._segment = segments[-1]
        if write:
            self._continue()

    # -- reading -------------------------------------------------------------------------------

    def payload(self, number: int) -> bytes:
        """The payload of a record, checked again."""
        place = self._places.get(number)
        data = self._bytes(place)
        if place is not None and data is None and not self._write:
            self._look_again(place.segment)  # whoever writes may have written the file again
            place = self._places.get(number)
            data = self._bytes(place)
        if place is None:
            raise HeadstartError(f"ledger: {self.folder} changed while it was read; look again")
        if data is None:
            raise self._damaged(place.segment, place.start)
        return data

    def _bytes(self, place: _Place | None) -> bytes | None:
        """Return the payload, or None if its SHA-256 does not match."""
        if place is None:
            return None
        with open(self._path(place.segment), "rb") as file:
            file.seek(place.at)
            data = file.read(place.size)
        return data if hashlib.sha256(data).hexdigest() == place.sha256 else None

    def _look_again(self, segment: int) -> None:
        """Where the records of a file are now, as far as it is whole."""
        with open(self._path(segment), "rb") as file:
            size, start = os.fstat(file.fileno()).st_size, 0
            while (record := self._read(file, segment, start, size)) is not None:
                self._remember(record)
                start = record.end

    def _path(self, segment: int) -> Path:
        return self.folder / f"{segment:08d}.log"

    def _segments(self) -> list[int]:
        """The numbers of the files: 1, 2, …; what a rewriting left aside is removed."""
        found = []
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if match := _NAME.fullmatch(path.name):
                if path.is_symlink():  # where it leads is not ours to read, cut or add to
                    raise HeadstartError(f"ledger: expected a file, got the link {path}")
                found.append(int(match[1]))
            elif self._write and path.name.endswith(".part"):
                path.unlink()
        missing = sorted(set(range(1, max(found, default=1) + 1)) - set(found))
        if missing:
            raise HeadstartError(
                f"ledger: the log is damaged: {self._path(missing[0])} is missing; nothing was "
                "changed. Restore the file from a backup"
            )
        return found

    def _recover(self, segment: int, *, last: bool) -> Iterator[Record]:
        path = self._path(segment)
        with open(path, "rb") as file:
            size, start = os.fstat(file.fileno()).st_size, 0
            while start < size:
                record = self._read(file, segment, start, size)
                if record is None:
                    break
                if record.number != self._number + 1:  # no crash leaves a sound one out of turn
                    raise self._damaged(segment, start)
                self._number = record.number
                self._remember(record)
                yield record
                start = record.end
            if start == size:
                return
            if not last or self._known_durable(file, start, size):
                raise self._damaged(segment, start)
        self.torn = size - start
        if self._write:
            with open(path, "r+b") as file:
                file.truncate(start)
                os.fsync(file.fileno())

    def _remember(self, record: Record) -> None:
        self._places.pop(record.number, None)
        if record.size:
            place = (record.segment, record.start, record.at, record.size, record.meta["sha256"])
            self._places[record.number] = _Place(*place)

    def _read(self, file: Any, segment: int, start: int, size: int) -> Record | None:
        """The record at `start`; None if it is not whole."""
        head = self._head(file, start, size)
        if head is None:
            return None
        number, meta, at, length, _ = head
        if at + length > size:
            return None
        if length:
            state = hashlib.sha256()
            file.seek(at)
            for begin in range(0, length, _BLOCK):
                state.update(file.read(min(_BLOCK, length - begin)))
            if state.hexdigest() != meta.get("sha256"):
                return None
        return Record(number, meta, segment, start, at, length)

    def _head(
        self, file: Any, start: int, size: int
    ) -> tuple[int, dict[str, Any], int, int, int] | None:
        """(number, meta, place and length of the payload, durable bytes); lengths are checked."""
        if start + _HEAD.size + _MARK > size:
            return None
        file.seek(start)
        head, mark = file.read(_HEAD.size), file.read(_MARK)
        magic, described, length, number, durable = _HEAD.unpack(head)
        at = start + _HEAD.size + _MARK + described
        if magic != _MAGIC or described > _META_LIMIT or at > size:
            return None
        meta = file.read(described)
        if self._mark(head, meta) != mark:
            return None
        return number, json.loads(meta), at, length, durable

    def _known_durable(self, file: Any, start: int, size: int) -> bool:
        """Whether a sound head after `start` says that `start` was on the disk before it."""
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            found = view.find(_MAGIC, start)
            while found >= 0:
                head = self._head(file, found, size)
                if head is not None and head[4] > start:
                    return True
                found = view.find(_MAGIC, found + 1)
        return False

    def _mark(self, head: bytes, meta: bytes) -> bytes:
        return hashlib.blake2b(head + meta, digest_size=_MARK, key=self._key).digest()

    def _damaged(self, segment: int, start: int) -> HeadstartError:
        return HeadstartError(
            f"ledger: {self._path(segment)} is damaged at byte {start}; nothing was changed. "
            "Restore the file from a backup"
        )

    # -- writing -------------------------------------------------------------------------------

    def append(self, items: Sequence[tuple[Mapping[str, Any], bytes]]) -> list[Record]:
        """Records, all on the disk when this returns: one flush for the whole batch."""
        if self._broken:
            raise HeadstartError("ledger: a write failed; close it and open it again")
        self._broken = True  # whatever ends this early: only a new start can tell what is there
        try:
            made = self._append(items)
        except OSError as error:
            raise HeadstartError(
                f"ledger: cannot write {self._path(self._segment)}: {error.strerror}"
            ) from None
        self._broken = False
        return made

    @property
    def broken(self) -> bool:
        return self._broken

    def give_up(self) -> None:
        """Write nothing more: what is on the disk is not known any longer."""
        self._broken = True

    def _append(self, items: Sequence[tuple[Mapping[str, Any], bytes]]) -> list[Record]:
        if self._end >= SEGMENT_BYTES:
            self._rotate()
        made, end = [], self._end
        reached("appending")
        for meta, payload in items:
            self._number += 1
            front = self._front(self._number, meta, len(payload), self._end)
            write_all(self._file, front)
            reached("half written")
            write_all(self._file, payload)
            at = end + len(front)
            made.append(Record(self._number, meta, self._segment, end, at, len(payload)))
            end = made[-1].end
        reached("written")
        flush(self._file)
        reached("durable")
        self._end = end
        for record in made:
            self._remember(record)
        return made

    def _front(self, number: int, meta: Mapping[str, Any], size: int, durable: int) -> bytes:
        text = json.dumps(meta, sort_keys=True, separators=(",", ":")).encode()
        head = _HEAD.pack(_MAGIC, len(text), size, number, durable)
        return head + self._mark(head, text) + text

    def _continue(self) -> None:
        """Open the last file for appending."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self._file = os.open(self._path(self._segment), flags, 0o600)
        self._end = os.fstat(self._file).st_size
        sync_folder(self.folder)

    def _rotate(self) -> None:
        """A new file; all of the old one is on the disk."""
        os.close(self._file)
        self._file = -1
        self._segment += 1
        self._continue()

    def purge(self, doomed: Container[int]) -> None:
        """Rewrite the files that hold these records, without what they said and held.

        An `OSError` (a full disk) leaves every file as it was or as it should be.
        """
        try:
            self._purge(doomed)
        except OSError:
            self.give_up()
            raise

    def _purge(self, doomed: Container[int]) -> None:
        for segment in self._segments():
            if any(n in doomed for n, place in self._places.items() if place.segment == segment):
                if segment == self._segment:
                    self._rotate()
                self._rewrite(segment, doomed)

    def _rewrite(self, segment: int, doomed: Container[int]) -> None:
        aside = self._path(segment).with_suffix(".part")
        try:
            self._rewrite_aside(segment, aside, doomed)
        except OSError:
            aside.unlink(missing_ok=True)  # on a full disk every byte counts
            raise

    def _rewrite_aside(self, segment: int, aside: Path, doomed: Container[int]) -> None:
        path = self._path(segment)
        moved, end, gone = [], 0, []
        with open(path, "r+b") as old, open(aside, "wb", opener=_private) as new:
            for record in self._whole(old, segment):
                out = record.number in doomed
                meta, size = ({"kind": "purged"}, 0) if out else (record.meta, record.size)
                front = self._front(record.number, meta, size, end)
                new.write(front)
                if out:
                    gone.append(record)
                else:
                    _copy(old, record, new)
                place = Record(record.number, meta, segment, end, end + len(front), size)
                moved.append(place)
                end = place.end
            new.flush()
            os.fsync(new.fileno())
            reached("segment aside")
            os.replace(aside, path)
            sync_folder(self.folder)
            reached("segment replaced")
            for place in moved:
                self._remember(place)
            for record in gone:  # where files are written in place, the old bytes go as well
                _overwrite(old, record)

    def _whole(self, file: Any, segment: int) -> Iterator[Record]:
        size, start = os.fstat(file.fileno()).st_size, 0
        while start < size:
            record = self._read(file, segment, start, size)
            if record is None:
                raise self._damaged(segment, start)
            yield record
            start = record.end

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def begin(folder: Path) -> None:
    """The first file of a log, empty, and on the disk."""
    folder.mkdir(mode=0o700, exist_ok=True)
    os.close(os.open(folder / f"{1:08d}.log", os.O_WRONLY | os.O_CREAT, 0o600))
    sync_folder(folder)


def flush(file: int) -> None:
    """What was written, and how long the file is, to the disk."""
    os.fdatasync(file) if hasattr(os, "fdatasync") else os.fsync(file)


def write_all(file: int, data: bytes) -> None:
    """Write all bytes to a file descriptor, however many writes it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def sync_folder(folder: Path) -> None:
    """New and renamed files of a folder, to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _copy(old: Any, record: Record, new: Any) -> None:
    old.seek(record.at)
    for begin in range(0, record.size, _BLOCK):
        new.write(old.read(min(_BLOCK, record.size - begin)))


def _overwrite(old: Any, record: Record) -> None:
    with suppress(OSError):
        old.seek(record.start)
        left = record.end - record.start
        while left:
            left -= old.write(b"\0" * min(_BLOCK, left))
        old.flush()
        os.fsync(old.fileno())

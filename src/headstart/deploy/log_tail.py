"""The records of a log as they are added, for readers alone: heads are checked, payloads skipped.

A record at the end that is not whole is waited for. A file that was written again (a forgetting),
or cut (a torn end), means to begin again.
"""

from __future__ import annotations

import os
from pathlib import Path

from headstart.deploy.log import Log, Record


class LogTail(Log):
    """Of a folder that another process may be writing."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self.folder, self._key, self._write = folder, key, False
        self.again()

    def again(self) -> None:
        """Begin at the beginning."""
        self._files: list[int] = []  # i-nodes of the files so far
        self._start = 0  # of the next record, in the last of them

    def new(self) -> list[Record] | None:
        """The records since the last call; None where what was returned before no longer holds."""
        found: list[Record] = []
        segments = self._segments()
        if [os.stat(self._path(n)).st_ino for n in segments[: len(self._files)]] != self._files:
            self.again()
            return None
        for segment in segments[max(len(self._files) - 1, 0) :]:
            if segment > len(self._files):
                self._files.append(os.stat(self._path(segment)).st_ino)
                self._start = 0
            if not self._records(segment, found):
                self.again()
                return None
        return found

    def _records(self, segment: int, found: list[Record]) -> bool:
        """Add those of a file; False where it is shorter than it was."""
        with open(self._path(segment), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < self._start:
                return False
            while (head := self._head(file, self._start, size)) is not None:
                number, meta, at, length, _ = head
                if at + length > size:
                    break
                found.append(Record(number, meta, segment, self._start, at, length))
                self._start = at + length
        return True

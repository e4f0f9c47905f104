"""Files that others write, read as they grow: no link is followed, nonsense is passed over."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

AT_ONCE = 2**22  # bytes read at one time
_LINE = 2**20  # bytes of a line; a longer one is nonsense


@dataclass
class Tail:
    """The lines of a file of JSON objects: `new` gives those that came since it was called last."""

    path: Path
    _at: int = field(default=0, init=False)
    _file: tuple[int, int] | None = field(default=None, init=False)
    _rest: bytes = field(default=b"", init=False)  # of a line that is not whole yet

    def new(self) -> tuple[bool, list[dict[str, Any]]]:
        """Return whether the file is another one than before, and the lines that are new."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return self._forget(None), []
        with open(handle, "rb") as file:
            status = os.fstat(file.fileno())
            other = (status.st_dev, status.st_ino) != self._file or status.st_size < self._at
            again = self._forget((status.st_dev, status.st_ino)) if other else False
            if status.st_size == self._at:
                return again, []
            file.seek(self._at)
            data = file.read(AT_ONCE)
        self._at += len(data)
        return again, self._lines(data)

    def _forget(self, file: tuple[int, int] | None) -> bool:
        """Begin again with this file; return whether another was read before."""
        before, self._file = self._file, file
        self._at, self._rest = 0, b""
        return before is not None

    def _lines(self, data: bytes) -> list[dict[str, Any]]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE:
            self._rest = b"?"  # so that what follows of it is nonsense too
        found = []
        for line in whole:
            with suppress(ValueError, RecursionError):
                found.append(json.loads(line))
        return [line for line in found if isinstance(line, dict)]


def read_whole(path: Path, limit: int) -> bytes | None:
    """A plain file's bytes; None where there is none, or more than `limit` of them."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            data = file.read(limit + 1)
    except OSError:
        return None
    return data if len(data) <= limit else None

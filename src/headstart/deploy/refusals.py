"""The list of refusals: a line each, in two files that cannot grow without end."""

from __future__ import annotations

import datetime
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.deploy.door import Refused, Who, clients_of
from headstart.files import write_text

_FILE_BYTES = 2**20
_TEXT = 500


@dataclass(frozen=True)
class Refusal:
    """Who was refused, with which code, why, and when (ISO 8601, UTC)."""

    client: str
    code: str
    text: str
    time: str


class Refusals:
    """Of one ledger. They are for people to read: not flushed, and lost lines are no harm."""

    def __init__(self, folder: Path) -> None:
        self._new, self._old = folder / "refusals.jsonl", folder / "refusals.old.jsonl"
        self._lock = threading.Lock()

    def add(self, client: Who, refused: Refused) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        names = [str(name)[:_TEXT] for name in clients_of(client)]
        line = {"time": now, "clients": names, "code": refused.code, "text": str(refused)[:_TEXT]}
        with self._lock, suppress(OSError):  # a full disk must not hide the refusal from its client
            if self._new.exists() and self._new.stat().st_size > _FILE_BYTES:
                os.replace(self._new, self._old)
            with open(self._new, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def all(self) -> tuple[Refusal, ...]:
        """Oldest first."""
        found = [line for path in (self._old, self._new) for line in _lines(path)]
        return tuple(
            Refusal(", ".join(one["clients"]), one["code"], one["text"], one["time"])
            for one in found
        )

    def purge(self, gone: Callable[[str], bool]) -> None:
        """Without the lines of clients that are gone."""
        with self._lock:
            for path in (self._old, self._new):
                if path.exists():
                    kept = [line for line in _lines(path) if not any(map(gone, line["clients"]))]
                    write_text(path, "".join(json.dumps(line) + "\n" for line in kept))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines only: the last may have been cut by a crash."""
    if not path.exists():
        return
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and {"time", "clients", "code", "text"} <= set(line):
            yield line

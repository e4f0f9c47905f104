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

from headstart.deploy.admission import CODES, UploadRejected, Who, clients_of
from headstart.files import PRIVATE, append_line, write_text

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
    """Of one ledger. They are for people to read: not flushed, and lost lines are no harm.

    `shown` is a client's name as it may be kept: a forgotten one's is not.
    """

    def __init__(self, folder: Path, shown: Callable[[str], str]) -> None:
        self._new, self._old = folder / "refusals.jsonl", folder / "refusals.old.jsonl"
        self._shown = shown
        self._lock = threading.Lock()

    def add(self, client: Who, refused: UploadRejected) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        names = [str(name)[:_TEXT] for name in clients_of(client)]
        with self._lock, suppress(OSError):  # a full disk must not hide the refusal from its client
            kept = [self._shown(name) for name in names]
            text = str(refused) if kept == names else CODES.get(refused.code, "")  # without names
            line = {"time": now, "clients": kept, "code": refused.code, "text": text[:_TEXT]}
            if self._new.exists() and self._new.stat().st_size > _FILE_BYTES:
                os.replace(self._new, self._old)
            append_line(self._new, json.dumps(line), PRIVATE)

    def all(self) -> tuple[Refusal, ...]:
        """Oldest first."""
        return tuple(
            Refusal(", ".join(one["clients"]), one["code"], one["text"], one["time"])
            for one in self._lines()
            if one is not None
        )

    @property
    def unreadable(self) -> int:
        """Lines that make no sense: cut by a crash, or damaged."""
        return sum(line is None for line in self._lines())

    def names(self, client: str) -> bool:
        """Whether a line is about this client."""
        return any(line is not None and client in line["clients"] for line in self._lines())

    def purge(self) -> None:
        """Without the lines of clients that were forgotten, and without what makes no sense."""
        with self._lock:
            for path in (self._old, self._new):
                lines = list(_lines(path))
                kept = [line for line in lines if line is not None and self._may_stay(line)]
                if kept != lines:
                    write_text(path, "".join(json.dumps(line) + "\n" for line in kept), PRIVATE)

    def _may_stay(self, line: dict[str, Any]) -> bool:
        return all(self._shown(name) == name for name in line["clients"])

    def _lines(self) -> Iterator[dict[str, Any] | None]:
        return (line for path in (self._old, self._new) for line in _lines(path))


def _lines(path: Path) -> Iterator[dict[str, Any] | None]:
    """The lines of a file; None for one that makes no sense."""
    if not path.exists():
        return
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        yield line if _is_refusal(line) else None


def _is_refusal(line: Any) -> bool:
    if not isinstance(line, dict) or not isinstance(line.get("clients"), list):
        return False
    texts = [*line["clients"], *(line.get(name) for name in ("time", "code", "text"))]
    return all(isinstance(text, str) for text in texts)

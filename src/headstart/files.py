"""Files appear whole or not at all: write aside, flush, then rename. Their names are text."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path, PurePath

from headstart.errors import HeadstartError


def write_bytes(path: str | Path, data: bytes) -> None:
    """`data` at `path`, never half of it: a crash leaves the old file or the new one."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise HeadstartError(f"output: cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    write_bytes(path, text.encode())


def readable(name: str | PurePath) -> str:
    r"""A file's name as text that any file can hold: a byte that is no UTF-8 becomes \xNN."""
    return os.fsencode(name).decode(errors="backslashreplace")

"""Files appear whole or not at all: write aside, flush, then rename. Their names are text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from headstart.errors import HeadstartError, printable

PRIVATE = 0o600  # of what holds statistics or secrets: its owner's alone


def write_bytes(path: str | Path, data: bytes, mode: int = 0o666) -> None:
    """`data` at `path`, never half of it: a crash leaves the old file or the new one.

    `mode`: that of the file, less what the process masks.
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        aside.unlink(missing_ok=True)  # what a crash left may have another mode, or be a link
        with open(os.open(aside, flags, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise HeadstartError(f"output: cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def write_text(path: str | Path, text: str, mode: int = 0o666) -> None:
    """Replace a file's text in one step: after a crash it has the old or the new text."""
    write_bytes(path, text.encode(), mode)


def append_line(path: str | Path, line: str, mode: int = 0o666) -> None:
    """One line at the end of a log; a symbolic link is not followed, for it may lead anywhere."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    with open(os.open(path, flags, mode), "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Alone among all processes that ask for the same file; whoever dies lets go of it."""
    import fcntl  # not on every system, and most commands need no lock

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    try:
        handle = os.open(path, flags, PRIVATE)
    except OSError as error:
        raise HeadstartError(f"lock: cannot open {path}: {error.strerror or error}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def spreadsheet_text(value: object) -> object:
    """A cell of a CSV file that no spreadsheet takes for a formula; numbers stay as they are.

    Text that begins with =, +, -, @, a tab or a line end gets an apostrophe before it, unless all
    of it is a number.
    """
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def readable(name: str | PurePath) -> str:
    r"""A file's name as a line of text: a byte that is no UTF-8, or a control, becomes \xNN."""
    return printable(os.fsencode(name).decode(errors="backslashreplace"))

"""Files that only their owner may read: keys and secrets, never there in part or for others."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from headstart.errors import HeadstartError

SECRET_BYTES = 32


def write_private(path: Path, data: bytes) -> None:
    """`data` at a new `path`, mode 0600; a file that is there already is not touched."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(aside, path)  # refuses, where a rename would replace
    except FileExistsError:
        raise HeadstartError(f"output: {path} is there already; nothing was changed") from None
    except OSError as error:
        raise HeadstartError(f"output: cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def private_folder(path: Path) -> Path:
    """The folder, made if need be, for its owner alone."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HeadstartError(f"output: cannot make {path}: {error.strerror}") from None
    return path


def kept_secret(path: Path) -> bytes:
    """The secret at `path`, drawn once; two who draw at the same time end with the same one."""
    if not path.exists():
        with suppress(HeadstartError):  # somebody was first, or the read below says why not
            write_private(path, secrets.token_bytes(SECRET_BYTES))
    try:
        secret = path.read_bytes()
    except OSError as error:
        raise HeadstartError(f"secret: cannot read {path}: {error.strerror}") from None
    if len(secret) != SECRET_BYTES:
        raise HeadstartError(f"secret: expected {SECRET_BYTES} bytes in {path}, got {len(secret)}")
    return secret

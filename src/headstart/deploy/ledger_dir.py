"""The folder of a ledger: its contract, its lock, and that nobody else can read it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from headstart.deploy.admission import Contract
from headstart.deploy.log import begin, sync_folder
from headstart.errors import HeadstartError
from headstart.files import PRIVATE, write_text

_VERSION = 2  # tombstones of the first knew bytes, and one spelling of a name
_OURS = {"lock", "log"}  # what a `create` that was cut short may have left


def is_ledger(path: str | Path) -> bool:
    """Whether a folder is a ledger."""
    return (Path(path) / "contract.json").is_file()


def make(path: Path, contract: Contract) -> None:
    """A new ledger's folder; it is one once contract.json is there."""
    if path.exists() and not path.is_dir():
        raise HeadstartError(f"ledger: expected a folder, got the file {path}")
    if path.exists() and not _is_free(path):
        raise HeadstartError(f"ledger: {path} is not empty; name a new folder")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close_off(path)
        begin(path / "log")
    except OSError as error:
        raise HeadstartError(f"ledger: cannot make {path}: {error.strerror}") from None
    about = {"id": secrets.token_hex(8), "key": secrets.token_hex(32)}
    plain = {"version": _VERSION, **about, "contract": contract.to_plain()}
    text = json.dumps({**plain, "sha256": _digest(plain)}, indent=1, ensure_ascii=False)
    write_text(path / "contract.json", text, PRIVATE)
    sync_folder(path)
    sync_folder(path.parent)


def _is_free(path: Path) -> bool:
    """Whether nothing is in a folder but what a `create` that was cut short may have left."""
    if {item.name for item in path.iterdir()} - _OURS:
        return False
    return not any(file.stat().st_size for file in (path / "log").glob("*"))


def _close_off(path: Path) -> None:
    """For its owner alone, whatever it was before: it holds the key, the uploads and names."""
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)


def read(path: Path) -> tuple[Contract, str, bytes]:
    """The contract, the ledger's id, and the key of its checksums."""
    if not is_ledger(path):
        raise HeadstartError(f"ledger: {path} is none (no contract.json in it)")
    try:
        plain = json.loads((path / "contract.json").read_bytes())
        sound = plain.pop("sha256") == _digest(plain) and plain["version"] == _VERSION
    except OSError as error:
        raise HeadstartError(f"ledger: cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise HeadstartError(f"ledger: contract.json in {path} is damaged, or of another version")
    return Contract.from_plain(plain["contract"]), plain["id"], bytes.fromhex(plain["key"])


def _digest(plain: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def lock(path: Path) -> int:
    """The only writer's handle; it is free again when the process ends, however it ends."""
    try:
        _close_off(path)
        handle = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise HeadstartError(f"ledger: cannot open {path}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(handle, 20).decode(errors="replace") or "unknown"
        os.close(handle)
        raise HeadstartError(f"ledger: {path} is in use by process {owner}") from None
    os.ftruncate(handle, 0)
    os.write(handle, str(os.getpid()).encode())
    for left in path.glob(".*.part"):  # files that a crash left half-written
        left.unlink()
    return handle


def holds(path: Path, handle: int) -> bool:
    """Whether the lock file is still the one that this handle has locked."""
    try:
        ours, there = os.fstat(handle), os.stat(path / "lock")
    except OSError:
        return False
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)

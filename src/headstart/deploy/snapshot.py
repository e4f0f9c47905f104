"""The folded total on disk, and who is in it: a shortcut past the fold, and never more than that.

What is damaged or cut short is not used: the log has everything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headstart.deploy.admission import Contract
from headstart.deploy.failpoints import reached
from headstart.deploy.log import sync_folder
from headstart.errors import HeadstartError
from headstart.files import PRIVATE, write_bytes, write_text
from headstart.statistics.wire import Limits

_LIMITS = Limits(bytes=2**40, samples=2**62, classes=2**24, total=True)


class Snapshot:
    """A saved total with the members it is of, so that a ledger opens without adding all again."""

    def __init__(self, folder: Path, contract: Contract) -> None:
        self._folder, self._contract = folder, contract
        self._total, self._about = folder / "total.safetensors", folder / "total.json"

    def save(self, members: Mapping[str, str], total: Any) -> None:
        write_bytes(self._total, total.to_bytes("float64"), PRIVATE)
        reached("total saved")
        about = {"total": total.digest(), "members": dict(members)}
        text = json.dumps({**about, "sha256": _mark(about)}, ensure_ascii=False)
        write_text(self._about, text, PRIVATE)

    def load(self) -> tuple[dict[str, str], Any]:
        """Who is in it, and the total; ({}, None) if there is none that fits."""
        with suppress(OSError, ValueError, KeyError, TypeError, HeadstartError):
            about = json.loads(self._about.read_bytes())
            if about.pop("sha256") != _mark(about):
                return {}, None
            kind = self._contract.head.statistic
            total = kind.from_bytes(self._total.read_bytes(), _LIMITS)
            if total.digest() == about["total"]:
                return dict(about["members"]), total
        return {}, None

    def remove(self) -> None:
        for path in (self._about, self._total):
            path.unlink(missing_ok=True)
        sync_folder(self._folder)


def _mark(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

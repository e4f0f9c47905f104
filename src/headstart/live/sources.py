"""What a page shows: the runs, ledgers and deployments at some paths, those that appear later too.

A folder may hold one run, its seeds or several pipelines; a deployment is what `headstart deploy
init` made, and shows the run and the ledger of its server.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from headstart.deploy.ledger_dir import is_ledger
from headstart.errors import HeadstartError
from headstart.files import readable
from headstart.live.ledger_view import LedgerView
from headstart.live.run_view import Row, RunView
from headstart.live.tail import read_whole
from headstart.pipeline.run import run_folders

APP = Path("app", "pyproject.toml")  # of a deployment
_APP_BYTES = 2**20
_LOOK = 4  # polls between two searches for runs that are new


class View(Protocol):
    """Something that is shown: a run or a ledger."""

    kind: str
    name: str
    path: Path

    def poll(self) -> Row | None: ...


def check(path: Path, *, wait: bool = False) -> None:
    """Refuse a path at which there is nothing to show; with `wait` it may come later."""
    if path.is_file() or (path.exists() and not path.is_dir()):
        raise HeadstartError(f"watch: expected a folder, got the file {path}")
    if wait or is_ledger(path) or (path / APP).is_file() or any(_run_places(path)):
        return
    got = f"{path}, which holds none" if path.is_dir() else f"nothing at {path}"
    raise HeadstartError(
        f"watch: expected a run, a ledger or a deployment, got {got}; --wait waits for it"
    )


def _run_places(path: Path) -> Iterator[Path]:
    """The folders of runs at a path: those with a configuration, or with events alone."""
    if not path.is_dir():
        return
    for place in run_folders(path):
        if any((place / name).is_file() for name in ("config.yaml", "events.jsonl")):
            yield place


def _deployed(path: Path) -> list[View]:
    """The ledger and the run of a deployment's server."""
    settings = _settings(path)
    ledger = LedgerView(
        path / "server" / str(settings.get("ledger") or "ledger"), f"{_name(path)}: ledger"
    )

    def expected() -> list[str]:
        named = str(settings.get("nodes") or "").split()
        return [name for name in dict.fromkeys((*named, *ledger.nodes())) if not inside(name)]

    def inside(name: str) -> bool:
        return ledger.holds(name) or ledger.hidden(name)

    output = path / "server" / str(settings.get("output") or "output")
    run = RunView(output, _name(path), expected, ledger.hidden, ledger.forgotten)
    return [ledger, run]


def _settings(path: Path) -> Row:
    """The settings that the app of a deployment gives its runs."""
    with suppress(ValueError, RecursionError, KeyError, TypeError, AttributeError):
        plain: Any = tomllib.loads((read_whole(path / APP, _APP_BYTES) or b"").decode())
        return dict(plain["tool"]["flwr"]["app"]["config"])
    return {}


def _name(path: Path) -> str:
    return readable(path.resolve().name)


@dataclass
class Source:
    """One path of the command line, the views in it, and its report."""

    path: Path
    views: dict[Path, View] = field(default_factory=dict)

    def look(self) -> None:
        """Find what is there by now."""
        if not self.views and is_ledger(self.path):
            self.views[self.path] = LedgerView(self.path, _name(self.path))
        elif not self.views and (self.path / APP).is_file():
            self.views = {view.path: view for view in _deployed(self.path)}
        elif not any(view.kind == "ledger" for view in self.views.values()):
            for place in _run_places(self.path):
                if place not in self.views:
                    self.views[place] = RunView(place, self._called(place))

    def _called(self, place: Path) -> str:
        inner = place.relative_to(self.path).as_posix()
        return _name(self.path) + ("" if inner == "." else f" / {readable(inner)}")

    @property
    def report(self) -> Path:
        """Where the report of it all is, or will be: of a deployment, in its server's output."""
        runs = [view.path for view in self.views.values() if view.kind == "run"]
        alone = len(runs) == 1 and (self.path / APP).is_file()
        return (runs[0] if alone else self.path) / "report.html"


class Feed:
    """All that is new at the paths, since `poll` was called last: one reader's."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.sources = [Source(path) for path in paths]
        self._polls = 0
        self._reports: dict[int, str] = {}

    def poll(self) -> list[Row]:
        """A message for each view and each report that has changed."""
        if self._polls % _LOOK == 0:
            for source in self.sources:
                with suppress(OSError):  # a folder that is gone meanwhile, or not ours to read
                    source.look()
        self._polls += 1
        return [*self._views(), *self._new_reports()]

    def _views(self) -> Iterator[Row]:
        for at, source in enumerate(self.sources):
            for view in list(source.views.values()):
                found = view.poll()
                if found is not None:
                    key = f"{at}:{view.name}"
                    yield {"view": key, "kind": view.kind, "name": view.name, **found}

    def _new_reports(self) -> Iterator[Row]:
        for at, source in enumerate(self.sources):
            version = _version(source.report)
            if version != self._reports.get(at, ""):
                self._reports[at] = version
                yield {"report": at, "name": _name(source.path), "version": version}


def _version(path: Path) -> str:
    """Changes whenever the file does; nothing where there is none."""
    try:
        status = path.lstat()
    except OSError:
        return ""
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"

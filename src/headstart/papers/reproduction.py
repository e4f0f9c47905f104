"""A table or figure of a paper that can be run again, and what it is run with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.papers.table import Row
from headstart.progress import Progress, silent


@dataclass(frozen=True, eq=False)
class Task:
    """What one run of a reproduction is given.

    `data`: by name, datasets of features, or paths of images for a reproduction that trains.
    `changes`: settings as key=value. `folder`: where trainings are kept.
    """

    data: Mapping[str, Any]
    seeds: int = 1
    progress: Progress = silent
    changes: tuple[str, ...] = ()
    folder: Path | None = None


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper that can be run again.

    `needs`: the data sets it can use; it runs on those it is given, and needs one of them.
    `run` returns the rows. `conclusion` says, from the rows, whether the paper's claim holds here
    and why numbers differ. `trains`: it takes paths of images, and settings as key=value.
    `resumes`: every cell is a run folder, and the same command goes on where it stopped.
    `elsewhere`: where its data are to be had, if none are here by themselves: without them its
    rows have the paper's numbers alone, and nothing of ours.
    """

    name: str
    title: str
    paper: str
    needs: tuple[str, ...]
    seeds: int
    run: Callable[[Task], list[Row]]
    conclusion: Callable[[Sequence[Row]], str]
    trains: bool = False
    resumes: bool = False
    elsewhere: str = ""

    @property
    def command(self) -> str:
        return f"headstart reproduce {self.name}"

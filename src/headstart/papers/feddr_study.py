"""What the studies of FedDr+ share: their schedule, and the paper's setting with changes on top."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from headstart import optional
from headstart.errors import HeadstartError
from headstart.gradient.checks import whole
from headstart.papers import feddr_paper as paper
from headstart.papers.feddr_grid import Schedule, share_of
from headstart.papers.reproduction import Task
from headstart.pipeline.config import RunConfig, apply_change, make_config

S = TypeVar("S", bound="Study")


@dataclass(frozen=True)
class Study:
    """How long every cell trains, and with which learning rate (none: each method's own)."""

    rounds: int = 320
    epochs: int = 3
    lr: float | None = None

    def __post_init__(self) -> None:
        whole("rounds", self.rounds)
        whole("epochs", self.epochs)

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.rounds, self.epochs, rate=self.lr)


def names(field: str, value: Any) -> list[str]:
    """Return names as given: a list, or a text with commas between them."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, Iterable) or not all(isinstance(name, str) for name in given):
        raise HeadstartError(f"{field}: expected names with commas between them, got {value!r}")
    return [name.strip() for name in given]


def study_of(
    settings: S, partition: str, task: Task, more: Mapping[str, Any] | None = None
) -> tuple[S, str, RunConfig]:
    """Return the study, which of the paper's splits it is on, and the configuration of its runs.

    A change that names a setting of the study goes there; all others go to the configuration,
    which begins as the paper's: MobileNet at 32 pixels, `partition`, a tenth of the clients per
    round. Refuses a pipeline, for each cell has its own.
    """
    optional.check("vision", "network", ("torch", "PIL"))
    study, changes = changed(settings, task.changes)
    base = {"data": str(task.data["cifar100"]), **(more or {})}
    split, plain = _plain_config(base, partition, changes)
    if "pipeline" in plain:
        raise HeadstartError("pipeline: expected none, for each cell has its own")
    config = make_config(plain)
    tenth = share_of(0.1, clients_of(config))
    return study, split, config if "cohort" in plain else make_config({**plain, "cohort": tenth})


def clients_of(config: RunConfig) -> int:
    """Return how many clients the partition makes; refuse a configuration without one."""
    clients = config.partition.settings.get("clients") if config.partition else None
    if not isinstance(clients, int):
        raise HeadstartError(f"partition: expected a number of clients, got {clients!r}")
    return clients


def changed(settings: S, changes: Sequence[str]) -> tuple[S, list[str]]:
    """Return the settings with the changes that are theirs, and the other changes."""
    keys = {field.name for field in fields(settings)}
    values: dict[str, Any] = {}
    others = []
    for change in changes:
        if change.partition("=")[0] in keys:
            apply_change(values, change)
        else:
            others.append(change)
    return replace(settings, **values), others


def _plain_config(
    base: Mapping[str, Any], partition: str, changes: Sequence[str]
) -> tuple[str, dict[str, Any]]:
    """Return the split's name, and the plain configuration with the changes on top."""
    named = [change for change in changes if change.startswith("partition=")]
    name = named[-1].partition("=")[2] if named else partition
    if name not in paper.SPLITS:
        raise HeadstartError(f"partition: expected one of {', '.join(paper.SPLITS)}, got {name!r}")
    config: dict[str, Any] = {
        **paper.SETTING,
        "partition": dict(paper.SPLITS[name]),
        "evaluate_every": 5,
        **base,
    }
    for change in changes:
        if change not in named:
            apply_change(config, change)
    return name, config

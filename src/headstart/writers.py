"""Metrics written elsewhere, as a run goes on: TensorBoard, MLflow or Weights & Biases, offline.

All write files below the run's folder and none speaks to a network: what MLflow and W&B report
home about their own use is switched off before they are imported, unless the environment already
says otherwise. Any object with these three methods is a writer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from headstart.errors import HeadstartError
from headstart.optional import require


class Writer(Protocol):
    """What follows a run's numbers: TensorBoard, MLflow or one's own."""

    def scalar(self, name: str, value: float, step: int) -> None: ...
    def text(self, name: str, value: str) -> None: ...
    def close(self) -> None: ...


def writer(name: str, folder: Path) -> Writer:
    """The writer of this name, its files in `folder`/name."""
    if name not in WRITERS:
        raise HeadstartError(f"writer: expected one of {', '.join(WRITERS)}, got {name!r}")
    return WRITERS[name](Path(folder).resolve() / name)


class TensorBoard:
    """Event files (by tensorboardX: of the packages that write them, the one that is small)."""

    def __init__(self, folder: Path) -> None:
        self._events = require("tensorboardX", what="writer").SummaryWriter(str(folder))

    def scalar(self, name: str, value: float, step: int) -> None:
        self._events.add_scalar(_plain(name), value, step)

    def text(self, name: str, value: str) -> None:
        self._events.add_text(_plain(name), value)

    def close(self) -> None:
        self._events.close()


class MLflow:
    """A run of the experiment "headstart" in a store of plain files; texts are its artifacts."""

    def __init__(self, folder: Path) -> None:
        _say("MLFLOW_DISABLE_TELEMETRY", "true")
        _say("MLFLOW_ALLOW_FILE_STORE", "true")  # or it wants a database
        self._client = require("mlflow", what="writer").MlflowClient(tracking_uri=folder.as_uri())
        existing = self._client.get_experiment_by_name("headstart")
        experiment = (
            existing.experiment_id if existing else self._client.create_experiment("headstart")
        )
        self._run = self._client.create_run(experiment).info.run_id

    def scalar(self, name: str, value: float, step: int) -> None:
        self._client.log_metric(self._run, _plain(name), value, step=step)

    def text(self, name: str, value: str) -> None:
        self._client.log_text(self._run, value, f"{_plain(name)}.txt")

    def close(self) -> None:
        self._client.set_terminated(self._run)


class WandB:
    """An offline run, which `wandb sync` can send later; texts are in its summary."""

    def __init__(self, folder: Path) -> None:
        _say("WANDB_ERROR_REPORTING", "false")
        wandb = require("wandb", what="writer")
        folder.mkdir(parents=True, exist_ok=True)  # or it takes another place
        quiet = wandb.Settings(console="off", silent=True, disable_git=True)
        above = str(folder.parent)  # its own folder is called wandb, too
        self._run = wandb.init(project="headstart", mode="offline", dir=above, settings=quiet)
        # Its own steps may never fall; as a metric beside the others they are any axis.
        self._run.define_metric("*", step_metric="step")

    def scalar(self, name: str, value: float, step: int) -> None:
        self._run.log({_plain(name): value, "step": step})

    def text(self, name: str, value: str) -> None:
        self._run.summary[_plain(name)] = value

    def close(self) -> None:
        self._run.finish()


WRITERS: dict[str, Callable[[Path], Writer]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def _say(name: str, value: str) -> None:
    os.environ.setdefault(name, value)


def _plain(name: str) -> str:
    """A name that all three take: letters, digits, - _ . / and spaces."""
    return re.sub(r"[^\w\-./ ]", "_", name)

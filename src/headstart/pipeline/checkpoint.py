"""Where a training stands, in one safetensors file: a killed run goes on to the very same bits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import HeadstartError, WireError
from headstart.federation.protocol import Arrays
from headstart.files import write_bytes
from headstart.gradient.loop import State
from headstart.gradient.refit import RunningTotal
from headstart.statistics import wire

_PLAIN = ("round", "best", "best_round", "up", "down")


@dataclass(frozen=True, eq=False)
class SavedTraining:
    """Where a run stood: in which phase, its training, the federation, what it had shown."""

    phase: int
    state: State
    federation: Arrays
    made: dict[str, Any]
    running: RunningTotal | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A file, and how many rounds may be lost; one of another `run` is as if it were not there."""

    path: Path
    every: int = 10
    run: str = ""

    def save(self, saved: SavedTraining) -> None:
        """Write everything a run changes."""
        arrays, running = dict(_flattened(saved.state, saved.federation)), saved.running
        about = {
            "run": self.run,
            "phase": saved.phase,
            "state": {key: getattr(saved.state, key) for key in _PLAIN},
            "made": saved.made,
            "tags": None if running is None else dict(running.tags),
        }
        if running is not None and running.vector is not None:
            arrays["refit/0/vector"] = running.vector
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        write_bytes(self.path, wire.encode("checkpoint", arrays))

    def load(self) -> SavedTraining | None:
        """Return what this run saved last, or None; a damaged file is refused."""
        if not self.path.exists():
            return None
        try:
            arrays = wire.decode_file(self.path.read_bytes(), "checkpoint")
            about = json.loads(arrays.pop("about").tobytes())
        except WireError as error:
            raise HeadstartError(f"checkpoint: cannot read {self.path}: {error}") from None
        if about["run"] != self.run:
            return None
        groups: dict[str, dict[str, NDArray[Any]]] = {}
        for key, array in arrays.items():
            kind, place, name = key.split("/", 2)
            groups.setdefault(f"{kind}/{place}", {})[name] = array
        state = State(
            params=groups.get("params/0", {}),
            server={k.split("/", 1)[1]: v for k, v in groups.items() if k.startswith("server/")},
            recent=tuple(groups[key] for key in sorted(groups) if key.startswith("recent/")),
            **about["state"],
        )
        running = None
        if about["tags"] is not None:
            running = RunningTotal(groups.get("refit/0", {}).get("vector"), about["tags"])
        snapshot = groups.get("federation/0", {})
        return SavedTraining(about["phase"], state, snapshot, about["made"], running)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _flattened(state: State, federation: Arrays) -> Iterator[tuple[str, NDArray[Any]]]:
    """`kind/place/name` → array; an empty tree leaves no trace and needs none."""
    for name, array in state.params.items():
        yield f"params/0/{name}", np.ascontiguousarray(array)
    for kind, tree in state.server.items():
        for name, array in tree.items():
            yield f"server/{kind}/{name}", np.ascontiguousarray(array)
    for place, tree in enumerate(state.recent):
        for name, array in tree.items():
            yield f"recent/{place:06d}/{name}", np.ascontiguousarray(array)
    for name, array in federation.items():
        yield f"federation/0/{name}", np.ascontiguousarray(array)

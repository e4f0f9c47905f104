"""Where a training stands, in one safetensors file: a killed run goes on to the very same bits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import HeadstartError, WireError
from headstart.federation.simulator import Simulator
from headstart.files import write_bytes
from headstart.statistics import wire

if TYPE_CHECKING:
    from headstart.gradient.loop import State

_PLAIN = ("round", "best", "best_round", "down")


@dataclass(frozen=True)
class Checkpoint:
    """A file, and how many rounds may be lost."""

    path: Path
    every: int = 10

    def save(
        self, phase: int, state: State, simulator: Simulator, story: Mapping[str, Any]
    ) -> None:
        """Everything a run changes: model, server, clients' memories, counted bytes, curve."""
        arrays = dict(_flattened(state, simulator))
        about = {
            "phase": phase,
            "state": {key: getattr(state, key) for key in _PLAIN},
            "met": sorted(state.met),
            "sent": dict(simulator.sent),
            "story": dict(story),
        }
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        write_bytes(self.path, wire.encode("checkpoint", arrays))

    def load(self, simulator: Simulator) -> tuple[int, State, dict[str, Any]] | None:
        """(phase, state, story) as they were saved; the simulator gets its memories back."""
        if not self.path.exists():
            return None
        try:
            arrays = wire.decode_file(self.path.read_bytes(), "checkpoint")
            about = json.loads(arrays.pop("about").tobytes())
        except WireError as error:
            raise HeadstartError(f"checkpoint: cannot read {self.path}: {error}") from None
        clients = list(simulator.data.values())
        found: dict[str, dict[str, NDArray[Any]]] = {}
        for key, array in arrays.items():
            kind, place, name = key.split("/", 2)
            if kind == "memory":
                clients[int(place)].memory[name] = array
            else:
                found.setdefault(f"{kind}/{place}", {})[name] = array
        simulator.sent.clear()
        simulator.sent.update(about["sent"])
        from headstart.gradient.loop import State  # torch: only a training has a checkpoint

        state = State(
            params=found.pop("params/", {}),
            server={k.split("/", 1)[1]: v for k, v in found.items() if k.startswith("server/")},
            recent=tuple(found[key] for key in sorted(found) if key.startswith("recent/")),
            met=frozenset(about["met"]),
            **about["state"],
        )
        return about["phase"], state, about["story"]

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _flattened(state: State, simulator: Simulator) -> Iterator[tuple[str, NDArray[Any]]]:
    """`kind/place/name` → array; an empty tree leaves no trace and needs none."""
    for name, array in state.params.items():
        yield f"params//{name}", np.ascontiguousarray(array)
    for kind, tree in state.server.items():
        for name, array in tree.items():
            yield f"server/{kind}/{name}", np.ascontiguousarray(array)
    for place, tree in enumerate(state.recent):
        for name, array in tree.items():
            yield f"recent/{place:06d}/{name}", np.ascontiguousarray(array)
    for place, client in enumerate(simulator.data.values()):
        for name, array in client.memory.items():
            yield f"memory/{place}/{name}", np.ascontiguousarray(array)

"""The in-process federation: every client is asked once, in any order, through the real wire."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import threads
from headstart.errors import DataError, WireError
from headstart.federation.promises import left_out, sound
from headstart.federation.protocol import (
    EXTRACTOR,
    Answer,
    Arrays,
    ClientData,
    Step,
    added,
    broadcast_bytes,
    chosen,
    perform,
    step_kind,
)


def secret_of(seed: int, client: str) -> bytes:
    """A simulated client's secret: repeatable, and its own. (A real client draws and keeps one.)"""
    return hashlib.sha256(f"headstart simulated client {seed} {client}".encode()).digest()


@dataclass(frozen=True)
class Simulator:
    """Clients in this process. Each answer is encoded, counted, decoded and checked as a real one.

    `precision` is that of the wire (None: float32, or whole for exact statistics). Work that can be
    done for many clients at once is (`together`); the server then sees the sum of their answers,
    and each is counted as if it had been sent.
    """

    data: Mapping[str, ClientData]
    seed: int = 0
    precision: str | None = None
    together: bool = True
    _own: dict[str, tuple[ClientData, ClientData]] = field(
        default_factory=dict, init=False, repr=False
    )
    _met: set[str] = field(default_factory=set, init=False, repr=False)  # in this training

    def __post_init__(self) -> None:
        if not self.data:
            raise DataError("federation: expected at least one client, got none")

    @property
    def clients(self) -> Sequence[str]:
        return tuple(self.data)

    def answers(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Answer]:
        yield from sound(self._answers(step, broadcast, cohort), step, broadcast)

    def _answers(
        self, step: Step, broadcast: Arrays | None, cohort: Sequence[str] | None
    ) -> Iterator[Answer]:
        names, arrays = chosen(self.clients, cohort), broadcast or {}
        if self._at_once(step) and not step_kind(step.name).fused:
            yield from self._together(step, names, arrays)
            return
        every, once = broadcast_bytes(step, arrays)
        for name in names:
            client = self._client(name)
            with threads.for_size(len(client.samples)):
                answer = perform(step, client, arrays)
                data = self._encoded(answer)
            try:
                came = type(answer).from_bytes(data)
            except WireError as error:  # of this client alone
                left_out((name,), error)
                continue
            yield Answer((name,), came, len(data), every + self._first(name, once), data)

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Answer:
        if not self._at_once(step):
            return added(self.answers(step, broadcast, cohort))
        sums = self._together(step, chosen(self.clients, cohort), broadcast or {})
        return added(sound(sums, step, broadcast))

    def _at_once(self, step: Step) -> bool:
        fusible = step_kind(step.name).together is not None
        return self.together and fusible and not step.silent and EXTRACTOR not in step.params

    def _together(self, step: Step, names: Sequence[str], broadcast: Arrays) -> Iterator[Answer]:
        """A sum has the arrays of each of its parts, so its size is what each client sends. Nobody
        sends the sum itself: it takes the precision of the wire, and is not written."""
        work = step_kind(step.name).together
        assert work is not None
        every, once = broadcast_bytes(step, broadcast)
        clients = {name: self._client(name) for name in names}
        for ids, answer in work(clients, step.params, broadcast):
            if len(ids) == 1:
                data = self._encoded(answer)
                size, came = len(data), type(answer).from_bytes(data)
            else:
                size, came = answer.size(self.precision), answer
                if self.precision is not None:
                    came = type(answer).from_arrays(answer.to_arrays(self.precision))
            down = len(ids) * every + sum(self._first(name, once) for name in ids)
            yield Answer(tuple(ids), came, len(ids) * size, down)

    def _first(self, name: str, once: int) -> int:
        """Bytes that a client keeps for the training, if this is the first time it gets them."""
        if not once or name in self._met:
            return 0
        self._met.add(name)
        return once

    def _client(self, name: str) -> ClientData:
        """With a secret: the same object every time, so that its work can be kept."""
        client = self.data[name]
        if client.secret is not None:
            return client
        held, own_data = self._own.get(name, (None, client))
        if held is not client:
            own_data = replace(client, secret=secret_of(self.seed, name))
            self._own[name] = client, own_data
        return own_data

    def _encoded(self, answer: Any) -> bytes:
        data: bytes = answer.to_bytes(None if getattr(answer, "lattice", None) else self.precision)
        return data

    # -- trainings -----------------------------------------------------------------------------

    def begin_training(self, name: str) -> None:
        self._met.clear()
        for client in self.data.values():
            client.memory.clear()

    def snapshot(self) -> dict[str, NDArray[Any]]:
        memories = {name: client.memory for name, client in self.data.items()}
        return pack_memories(self.clients, memories, self._met)

    def restore(self, arrays: Arrays) -> None:
        self.begin_training("")
        memories, met = unpack_memories(self.clients, arrays)
        self._met.update(met)
        for name, memory in memories.items():
            self.data[name].memory.update(memory)


def pack_memories(
    clients: Sequence[str], memories: Mapping[str, Arrays], met: Collection[str]
) -> dict[str, NDArray[Any]]:
    """Memories by the client's place among `clients`, and who has met this training."""
    arrays = {
        f"memory/{place}/{kind}": array
        for place, name in enumerate(clients)
        for kind, array in memories.get(name, {}).items()
    }
    return {**arrays, "met": np.frombuffer(json.dumps(sorted(met)).encode(), np.uint8)}


def unpack_memories(
    clients: Sequence[str], arrays: Arrays
) -> tuple[dict[str, dict[str, NDArray[Any]]], set[str]]:
    """(memories by client, who has met the training) of what `pack_memories` made."""
    memories: dict[str, dict[str, NDArray[Any]]] = {}
    met: set[str] = set()
    for key, array in arrays.items():
        if key == "met":
            met.update(json.loads(array.tobytes()))
            continue
        _, place, kind = key.split("/", 2)
        memories.setdefault(clients[int(place)], {})[kind] = array
    return memories, met

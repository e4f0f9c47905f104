"""The same federation over a Ray cluster: each worker holds some clients and sends their sum.

A worker folds its clients' messages as they are made, and sends one partial sum per step; the
server adds as many sums as there are workers. In exact mode the total has the simulator's digest,
whatever the number of workers.

Ray serializes with pickle. It is for one trusted cluster, never a path for uploads: clients on
other people's machines come through `headstart.deploy.flower`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from headstart.errors import DataError, HeadstartError
from headstart.federation.promises import sound
from headstart.federation.protocol import Answer, Arrays, ClientData, Step, added, chosen, step_kind
from headstart.federation.simulator import Simulator, pack_memories, unpack_memories
from headstart.optional import require
from headstart.registry import Plugin, plugins, restore_plugin

Held = ClientData | Callable[[], ClientData]  # samples, or how a worker gets them


def open_cluster(
    data: Mapping[str, Held],
    *,
    seed: int = 0,
    precision: str | None = None,
    remote: Callable[[str], Held] | None = None,
    workers: int | None = None,
    address: str | None = None,
) -> RayFederation:
    """The engine `ray`: joins the cluster at `address`, or starts one on this machine.

    With `remote`, workers read their clients' samples themselves, and none are sent to them.
    """
    ray = require("ray")
    if not ray.is_initialized():
        how: dict[str, Any] = {"address": address} if address else {"include_dashboard": False}
        ray.init(log_to_driver=False, logging_level="ERROR", **how)
    held = data if remote is None else {name: remote(name) for name in data}
    return RayFederation(held, workers=workers, seed=seed, precision=precision)


@dataclass(frozen=True)
class RayFederation:
    """Clients dealt over the workers of a Ray cluster that has been started (`ray.init`).

    `workers`: how many (None: a CPU each). Memories of training stay with the workers. A client is
    its samples, or a function without arguments that reads them on its worker.
    """

    data: Mapping[str, Held]
    workers: int | None = None
    seed: int = 0
    precision: str | None = None
    _actors: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        ray = require("ray")
        if not self.data:
            raise DataError("federation: expected at least one client, got none")
        if not ray.is_initialized():
            raise HeadstartError("ray: expected a cluster that is started; call ray.init() first")
        if self.workers is not None and self.workers < 1:
            raise HeadstartError(f"workers: expected at least 1, got {self.workers}")
        wanted = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        worker = ray.remote(_Worker)
        names = list(self.data)
        for start in range(min(wanted, len(names))):
            shard = {name: self.data[name] for name in names[start::wanted]}
            actor = worker.remote(shard, self.seed, self.precision, plugins())
            self._actors.update(dict.fromkeys(shard, actor))

    @property
    def clients(self) -> Sequence[str]:
        return tuple(self.data)

    def answers(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Answer]:
        """Each client's answer, worker by worker as they come."""
        yield from sound(self._answers(step, broadcast, cohort), step, broadcast)

    def _answers(
        self, step: Step, broadcast: Arrays | None, cohort: Sequence[str] | None
    ) -> Iterator[Answer]:
        kind = step_kind(step.name).answer_type(step)
        for _, batch in self._done("answers", step, broadcast, cohort):
            for name, data, down in batch:
                yield Answer((name,), kind.from_bytes(data), len(data), down, data)

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Answer:
        """The workers' sums, always added in the same order."""
        kind = step_kind(step.name).answer_type(step)
        parts = {}
        for names, (data, up, down) in self._done("total", step, broadcast, cohort):
            parts[tuple(names)] = Answer(tuple(names), kind.from_bytes(data), up, down)
        return added(sound((parts[names] for names in sorted(parts)), step, broadcast))

    def _done(
        self, work: str, step: Step, broadcast: Arrays | None, cohort: Sequence[str] | None
    ) -> Iterator[tuple[list[str], Any]]:
        """(clients, what their worker found), as workers finish."""
        ray = require("ray")
        arrays = ray.put(dict(broadcast or {}))  # once per machine, not once per worker
        left = {
            getattr(actor, work).remote(step, arrays, names): names
            for actor, names in self._actors_of(cohort)
        }
        while left:
            (done,), _ = ray.wait(list(left), num_returns=1)
            yield left.pop(done), _got(done)

    def begin_training(self, name: str) -> None:
        for actor, _ in self._actors_of(None):
            _got(actor.begin_training.remote(name))

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """As of one simulator: clients may be dealt over other workers when it is restored."""
        memories: dict[str, dict[str, NDArray[Any]]] = {}
        met: set[str] = set()
        for actor, names in self._actors_of(None):
            shard_memories, shard_met = unpack_memories(names, _got(actor.snapshot.remote()))
            memories |= shard_memories
            met |= shard_met
        return pack_memories(self.clients, memories, met)

    def restore(self, arrays: Arrays) -> None:
        memories, met = unpack_memories(self.clients, arrays)
        for actor, names in self._actors_of(None):
            shard_memories = {name: memories[name] for name in names if name in memories}
            _got(
                actor.restore.remote(pack_memories(names, shard_memories, met.intersection(names)))
            )

    def _actors_of(self, cohort: Sequence[str] | None) -> list[tuple[Any, list[str]]]:
        """Each worker with those of the cohort it holds."""
        by_actor: dict[Any, list[str]] = {}
        for name in chosen(self.clients, cohort):
            by_actor.setdefault(self._actors[name], []).append(name)
        return list(by_actor.items())


class _Worker:
    """Some clients, in a simulator of their own, with the plugins of who started it."""

    def __init__(
        self,
        held: Mapping[str, Held],
        seed: int,
        precision: str | None,
        plugins: Sequence[Plugin] = (),
    ) -> None:
        self._held, self._seed, self._precision = held, seed, precision
        self._made: Simulator | None = None
        for plugin in plugins:  # the cluster is the user's own, and so are the files it named
            restore_plugin(plugin)

    def _simulator(self) -> Simulator:
        """Samples are read with the first step: an error of theirs is that step's answer."""
        if self._made is None:
            data = {n: h if isinstance(h, ClientData) else h() for n, h in self._held.items()}
            # Arrays out of Ray's store are read-only, memories of training are not.
            copies = {name: replace(client, memory={}) for name, client in data.items()}
            self._made = Simulator(copies, self._seed, self._precision)
        return self._made

    def total(self, step: Step, arrays: Arrays, names: list[str]) -> tuple[bytes, int, int]:
        partial = self._simulator().total(step, arrays, names)
        statistic = partial.statistic
        # Whole numbers travel as they are; other sums lose nothing at eight bytes.
        data = statistic.to_bytes(None if getattr(statistic, "lattice", None) else "float64")
        return data, partial.up, partial.down

    def answers(self, step: Step, arrays: Arrays, names: list[str]) -> list[tuple[str, bytes, int]]:
        answers = []
        for answer in self._simulator().answers(step, arrays, names):
            data = answer.payload or answer.statistic.to_bytes()
            answers.append((answer.clients[0], data, answer.down))
        return answers

    def begin_training(self, name: str) -> None:
        self._simulator().begin_training(name)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        return self._simulator().snapshot()

    def restore(self, arrays: Arrays) -> None:
        self._simulator().restore(arrays)


def _got(answer: Any) -> Any:
    """An answer; a mistake in a client's data is raised as in one process."""
    ray = require("ray")
    try:
        return ray.get(answer)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, HeadstartError):
            raise type(error.cause)(*error.cause.args) from None
        raise

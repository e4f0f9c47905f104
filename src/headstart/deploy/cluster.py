"""The same federation over a Ray cluster: each worker holds some clients and sends their sum.

A worker reads and extracts its clients' samples itself, folds their messages as they are made, and
sends one partial sum a step; the server adds as many sums as there are workers. In exact mode the
total has the simulator's digest, whatever the number of workers.

Workers load the plugin files that are loaded where the cluster is made, by their bytes.

Ray serializes with pickle. It is for one trusted cluster, never a path for uploads: clients on
other people's machines come through `headstart.deploy.flower`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.deploy.steps import made_ready
from headstart.errors import DataError, HeadstartError
from headstart.federation.protocol import Arrays, ClientData, Step, Upload
from headstart.federation.simulator import Simulator
from headstart.registry import Plugin, plugins, restore_plugin

Held = ClientData | Callable[[], ClientData]  # samples, or how a worker gets them


@dataclass(frozen=True)
class Source:
    """A client's samples where they lie: a file of features, or images for an extractor.

    Features of images are cached on the worker's machine.
    """

    path: str
    extractor: str | None = None

    def __call__(self) -> ClientData:
        from headstart.runs.inputs import Extraction, holds_images, read

        images = self.extractor or holds_images(self.path)
        found = read(self.path, {}, Extraction(self.extractor) if images else None)
        return ClientData(found.data.features, found.data.labels)


def folders(root: str | Path, extractor: str | None = None) -> dict[str, Source]:
    """A client for each folder (of class/file images) or file of features in `root`."""
    if not Path(root).is_dir():
        raise DataError(f"data: expected a folder of clients, got {root}")
    places = sorted(place for place in Path(root).iterdir() if not place.name.startswith("."))
    if not places:
        raise DataError(f"data: expected a folder of clients, got nothing in {root}")
    found: dict[str, Source] = {}
    for place in places:
        name = place.name if place.is_dir() else place.stem
        if name in found:
            raise DataError(f"data: expected one place a client, got two of {name!r} in {root}")
        found[name] = Source(str(place), extractor)
    return found


@dataclass(frozen=True)
class Cluster:
    """Clients dealt over the workers of a Ray cluster that has been started (`ray.init`).

    `workers`: how many (None: a CPU each). Memories of training stay with the workers.
    """

    data: Mapping[str, Held]
    workers: int | None = None
    seed: int = 0
    precision: str | None = None
    sent: Counter[str] = field(default_factory=Counter)  # bytes up, by client
    _homes: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        ray = _ray()
        if not self.data:
            raise DataError("federation: expected at least one client, got none")
        if not ray.is_initialized():
            raise HeadstartError("ray: expected a cluster that is started; call ray.init() first")
        wanted = self.workers or int(ray.cluster_resources().get("CPU", 1))
        if wanted < 1:
            raise HeadstartError(f"workers: expected at least 1, got {self.workers}")
        worker = ray.remote(_Worker)
        names = list(self.data)
        for start in range(min(wanted, len(names))):
            own = {name: self.data[name] for name in names[start::wanted]}
            actor = worker.remote(own, self.seed, self.precision, plugins())
            self._homes.update(dict.fromkeys(own, actor))

    @property
    def clients(self) -> Sequence[str]:
        return tuple(self.data)

    def uploads(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Upload]:
        """A sum a worker, as they come."""
        ray = _ray()
        words = ray.put(dict(broadcast or {}))  # once a machine, not once a worker
        left = {
            actor.total.remote(step, words, names): names for actor, names in self._asked(cohort)
        }
        while left:
            (done,), _ = ray.wait(list(left), num_returns=1)
            kind, data, sent = _got(done)
            self.sent.update(sent)
            yield tuple(left.pop(done)), kind.from_bytes(data)

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Any:
        parts = dict(self.uploads(step, broadcast, cohort))
        first, *rest = (parts[ids] for ids in sorted(parts))  # the same order every time
        return type(first).total([first, *rest])

    def evaluate(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        words = _ray().put(dict(broadcast or {}))
        asked = [actor.evaluate.remote(step, words, names) for actor, names in self._asked(cohort)]
        found: dict[str, NDArray[np.float64]] = {}
        for answer in asked:
            found |= _got(answer)
        return {name: found[name] for name in (self.clients if cohort is None else cohort)}

    def forget(self) -> None:
        """Another training begins: what clients remember of the last one is put away."""
        for actor, _ in self._asked(None):
            _got(actor.forget.remote())

    def _asked(self, cohort: Sequence[str] | None) -> list[tuple[Any, list[str]]]:
        """Each worker with those of the cohort it holds."""
        names = self.clients if cohort is None else cohort
        unknown = [name for name in names if name not in self._homes]
        if unknown:
            raise DataError(f"cohort: expected known clients, got {', '.join(unknown[:5])}")
        by_home: dict[Any, list[str]] = {}
        for name in names:
            by_home.setdefault(self._homes[name], []).append(name)
        return list(by_home.items())


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
        self._plugins = plugins
        self._made: Simulator | None = None

    def _simulator(self) -> Simulator:
        """Samples are read with the first step: an error of theirs is that step's answer."""
        if self._made is None:
            for plugin in self._plugins:
                restore_plugin(plugin)
            data = {n: h if isinstance(h, ClientData) else h() for n, h in self._held.items()}
            self._made = Simulator(data, self._seed, self._precision)
        return self._made

    def total(self, step: Step, words: Arrays, names: list[str]) -> tuple[Any, bytes, Counter[str]]:
        made_ready(step)
        simulator = self._simulator()
        simulator.sent.clear()
        partial = simulator.total(step, words, names)
        # Whole numbers travel as they are; other sums lose nothing at eight bytes.
        data = partial.to_bytes(None if getattr(partial, "lattice", None) else "float64")
        return type(partial), data, Counter(simulator.sent)

    def evaluate(
        self, step: Step, words: Arrays, names: list[str]
    ) -> dict[str, NDArray[np.float64]]:
        made_ready(step)
        return self._simulator().evaluate(step, words, names)

    def forget(self) -> None:
        self._simulator().forget()


def _got(answer: Any) -> Any:
    """An answer; a mistake in a client's data is told as in one process."""
    ray = _ray()
    try:
        return ray.get(answer)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, HeadstartError):
            raise type(error.cause)(*error.cause.args) from None
        raise


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise HeadstartError('a cluster needs Ray: pip install "headstart[ray]"') from None
    return ray

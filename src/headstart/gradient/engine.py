"""One local update, for every algorithm and any number of clients at once.

Clients are trained together as a leading axis. They are ordered by their number of steps, so that
step t is that of the first k clients only: nothing is computed for those that have finished.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.data.samples import ArraySamples, Samples, blocks
from headstart.errors import DivergedError, HeadstartError
from headstart.gradient.checks import fraction, whole
from headstart.gradient.models import Batch, Model, Names
from headstart.gradient.product import Product, onto
from headstart.gradient.recipe import Correction, Local, LocalResult, Objective, Pass, Recipe
from headstart.gradient.tree import Tree, only
from headstart.heads.base import number

Params = dict[str, Tensor]
Reading = Callable[[int, int, int], tuple[NDArray[Any], NDArray[Any]]]  # step, clients, samples
_LAST = np.iinfo(np.uint64).max  # places without a sample are behind all others
_PIECE = 1024  # samples whose gradient is taken at a time, where all of a client's are asked for


@dataclass(frozen=True)
class Training:
    """How clients train: SGD, and how much of it."""

    rate: float = 0.1
    epochs: int = 1
    batch: int = 50
    decay: float = 4e-5
    momentum: float = 0.0

    def __post_init__(self) -> None:
        number("rate", self.rate, strict=True)
        if self.rate > 1e30:  # beyond what float32 holds
            raise HeadstartError(f"rate: expected a number up to 1e30, got {self.rate!r}")
        whole("epochs", self.epochs)
        whole("batch", self.batch)
        number("decay", self.decay)
        fraction("momentum", self.momentum)


@dataclass(frozen=True)
class TrainingSet:
    """One client's samples as the model takes them, and what its shuffling depends on.

    Labels are positions among the model's classes.
    """

    samples: Samples
    secret: bytes
    mask: Tensor | None = None  # of its classes, 0 or −∞
    counts: NDArray[np.float32] | None = None  # of every class

    @property
    def y(self) -> NDArray[np.int64]:
        return self.samples.labels

    def draw(self, epochs: int, key: bytes) -> bytes:
        """64 random bits per sample and epoch, the same on every machine: the order is its own."""
        return hashlib.shake_256(self.secret + key).digest(8 * epochs * len(self.samples))

    def read(
        self, order: NDArray[np.intp], key: bytes, epoch: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples of a batch in one epoch of a training; padding reads the first sample."""
        return self.samples.read(order.clip(0), b"%s %s %d" % (self.secret, key, epoch))


class Group:
    """Clients trained together, and their batches."""

    def __init__(self, clients: Sequence[TrainingSet]) -> None:
        self.clients = clients
        self.sizes = np.array([len(client.samples) for client in clients])
        masks = [client.mask for client in clients if client.mask is not None]
        self.mask: Tensor | float = torch.stack(masks)[:, None, :] if masks else 0.0
        counts = [client.counts for client in clients if client.counts is not None]
        self.counts: Tensor | None = None
        if counts:
            self.counts = torch.from_numpy(np.concatenate(counts).reshape(len(counts), -1))

    def batches(self, epochs: int, size: int, *key: int) -> Iterator[tuple[int, Batch]]:
        """(how many clients still train, their step). Clients stand with the most steps first.

        A batch is used before the next one is asked for: they share their memory.
        """
        size = min(size, int(self.sizes.max()))
        seed = repr(key).encode()
        orders, counts = self._orders(epochs, size, seed)
        real = orders >= 0
        weights = (real / np.maximum(real.sum(axis=2, keepdims=True), 1)).astype(np.float32)
        read = self._from_memory(orders) if self._in_memory else self._read(orders, size, seed)
        for step, count in enumerate(counts):
            width = size
            if count == 1:  # padding would show in batch norm's statistics
                width = int(real[0, step].sum())
            x, y = read(step, count, width)
            yield (
                count,
                Batch(
                    torch.from_numpy(x),
                    torch.from_numpy(y),
                    torch.from_numpy(weights[:count, step, :width]),
                    self.mask[:count] if isinstance(self.mask, Tensor) else 0.0,
                    None if self.counts is None else self.counts[:count],
                ),
            )

    @property
    def _in_memory(self) -> bool:
        """Arrays with a label per sample; masks are taken a batch at a time, like images."""
        held = [client.samples for client in self.clients]
        return all(isinstance(own, ArraySamples) and own.labels.ndim == 1 for own in held)

    def _from_memory(self, orders: NDArray[np.intp]) -> Reading:
        """Rows of arrays, taken into memory that all batches share."""
        held = [client.samples.read() for client in self.clients]
        first = held[0][0]
        x = np.empty((len(orders), orders.shape[2], *first.shape[1:]), first.dtype)
        y = np.empty(orders.shape, np.int64)
        for (_, out), order, labels in zip(held, orders, y, strict=True):
            out.take(order, 0, labels, "clip")  # padding takes the first sample, at weight 0

        def read(step: int, count: int, width: int) -> tuple[NDArray[Any], NDArray[Any]]:
            taken = zip(held, x[:count, :width], orders[:count, step, :width], strict=False)
            for (samples, _), place, order in taken:
                samples.take(order, 0, place, "clip")
            return x[:count, :width], y[:count, step, :width]

        return read

    def _read(self, orders: NDArray[np.intp], size: int, key: bytes) -> Reading:
        """Samples that are made where they are needed, augmented anew in every epoch."""
        steps = self.steps(size).tolist()

        def read(step: int, count: int, width: int) -> tuple[NDArray[Any], NDArray[Any]]:
            batches = [
                client.read(order, key, step // steps_per_epoch)
                for client, order, steps_per_epoch in zip(
                    self.clients[:count], orders[:count, step, :width], steps[:count], strict=True
                )
            ]
            x, y = zip(*batches, strict=True)
            return np.stack(x), np.stack(y).astype(np.int64, copy=False)

        return read

    def steps(self, size: int) -> NDArray[np.int64]:
        """How many batches of this size each client has."""
        return -(-self.sizes // size)

    def _orders(self, epochs: int, size: int, key: bytes) -> tuple[NDArray[np.intp], list[int]]:
        """Each client's batches, clients×steps×size, −1 where there is no sample; and how many
        clients take each step."""
        steps = self.steps(size)
        most = int(steps.max())
        held = (np.arange(most * size) < self.sizes[:, None])[:, None]
        drawn = np.full((len(steps), epochs, most * size), _LAST, np.uint64)
        bits = b"".join([client.draw(epochs, key) for client in self.clients])
        drawn[held.repeat(epochs, axis=1)] = np.frombuffer(bits, "<u8")
        order = np.where(held, drawn.argsort(axis=2, kind="stable"), -1)
        order = order.reshape(len(steps), epochs * most, size)
        for row, client_steps in zip(order, steps.tolist(), strict=True) if epochs > 1 else ():
            if client_steps < most:  # an epoch begins where the last one of the client ends
                mine = row.reshape(epochs, most, size)[:, :client_steps].reshape(-1, size)
                row[: len(mine)] = mine
                row[len(mine) :] = -1
        took = epochs * steps[:, None]
        return order, (np.arange(took[0, 0]) < took).sum(axis=0).tolist()

    @contextmanager
    def drawing(self, model: Model, *key: int) -> Iterator[None]:
        """What dropout draws is of the client's secret and the key, like the order of samples."""
        if not model.draws:
            yield
            return
        about = b"".join([client.secret for client in self.clients]) + repr(key).encode()
        seed = int.from_bytes(hashlib.sha256(b"dropout " + about).digest()[:7], "little")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield

    def whole(self) -> Iterator[tuple[int, Batch]]:
        """(whose, samples): all of every client's; the pieces of a client weigh 1 together."""
        for place, client in enumerate(self.clients):
            weights = torch.full((1, len(client.samples)), 1 / len(client.samples))
            row = slice(place, place + 1)
            mask = self.mask[row] if isinstance(self.mask, Tensor) else 0.0
            counts = None if self.counts is None else self.counts[row]
            for part in blocks(client.samples, _PIECE):
                x, y = (torch.from_numpy(held[None]) for held in client.samples.read(part))
                yield place, Batch(x, y, weights[:, part], mask, counts)


@dataclass(frozen=True)
class Broadcast:
    """What clients receive: all parameters (an axis of 1), the server's state, the round."""

    params: Params
    server: Mapping[str, Params]
    round: int = 0


@dataclass(frozen=True)
class Trained:
    """A group after training; every array has the axis of its clients."""

    params: Params
    memory: dict[str, Params]
    extra: dict[str, Tree]


def local_update(
    model: Model,
    recipe: Recipe,
    training: Training,
    names: Names,
    group: Group,
    message: Broadcast,
    memories: Mapping[str, Params],
) -> Trained:
    """All passes of a recipe. `memories`: stacked, those of names in `recipe.memory` and own."""
    count = len(group.clients)
    personal = memories.get("personal", {})
    received = {
        name: personal.get(name, message.params[name]) for name in (*names.shared, *names.personal)
    }
    local = Local(received, memories, message.server, training.rate)
    params = {**message.params, **{name: _spread(array, count) for name, array in received.items()}}
    memory = {name: dict(tree) for name, tree in memories.items()}
    steps = torch.zeros(count)
    for turn, each in enumerate(recipe.passes):
        at = params
        if each.moves == "copy":
            memory["copy"] = {n: _spread(a, count) for n, a in memories["copy"].items()}
            at = {**params, **memory["copy"]}
        done = descend(
            model, recipe, training, names, group, at, local, each, (message.round, turn)
        )
        if each.moves != "copy":
            steps += done
    shared = Local(only(received, names.steered), local.memory, local.server, local.rate)
    end = LocalResult(only(params, names.steered), shared, steps.clamp_min(1))
    memory |= {name: dict(tree) for name, tree in recipe.remember(end).items()}
    if names.personal:
        memory["personal"] = only(params, names.personal)
    return Trained(params, memory, recipe.extra(end))


def descend(
    model: Model,
    recipe: Recipe,
    training: Training,
    names: Names,
    group: Group,
    params: Params,
    local: Local,
    pass_: Pass,
    key: tuple[int, ...],
    velocity: Params | None = None,
) -> Tensor:
    """θ ← θ − η·(step + decay·θ), in place, for the parts that move; each client's `plain_steps`.

    `velocity`: momentum to go on with, changed as well; without it, it begins at 0.
    """
    moved = {"personal": names.personal, "shared": names.shared}.get(
        pass_.moves, (*names.shared, *names.personal)
    )
    moving = [name for name in moved if name in names.learned]
    correct = pass_.correct or recipe.correct
    velocity = {} if velocity is None else velocity
    for name in moving if training.momentum else ():
        velocity.setdefault(name, torch.zeros_like(params[name]))
    if not moving:
        return torch.zeros(len(group.clients))
    epochs = training.epochs if pass_.epochs is None else pass_.epochs
    every = group.batches(epochs, training.batch, *key)
    with group.drawing(model, *key):
        _descended(model, recipe, training, moving, every, params, local, correct, velocity)
    return plain_steps(epochs * group.steps(training.batch), training.momentum)


def _descended(
    model: Model,
    recipe: Recipe,
    training: Training,
    moving: Sequence[str],
    every: Iterable[tuple[int, Batch]],
    params: Params,
    local: Local,
    correct: Correction,
    velocity: Params,
) -> None:
    """All steps, in place."""
    for count, batches in itertools.groupby(every, itemgetter(0)):
        now = {name: array[:count] for name, array in params.items()}
        statistics, client = only(now, model.statistics), local.first(count)
        speed = {name: array[:count] for name, array in velocity.items()}
        there = functools.partial(_gradient, model, recipe.objective, moving, statistics, client)
        for _, batch in batches:
            step = correct(functools.partial(there, batch), now, client)
            for name in moving:
                at = now[name]
                if training.momentum:
                    change = speed[name]
                    onto(change, step[name], training.momentum, 1.0)
                    change.add_(at, alpha=training.decay)
                    at.sub_(change, alpha=training.rate)
                else:
                    onto(at, step[name], 1 - training.rate * training.decay, -training.rate)


def plain_steps(taken: NDArray[np.int64], momentum: float) -> Tensor:
    """How many steps without momentum lead as far along one gradient as each client's `taken`.

    With momentum m step t goes (1 − mᵗ)/(1 − m) as far; T of them T′ = (T − m(1−m^T)/(1−m))/(1−m),
    here as the sum of sums 1 + (1 + m) + (1 + m + m²) + …, which is T itself at m = 0.
    """
    if not momentum:
        return torch.from_numpy(taken.astype(np.float32))
    powers = momentum ** np.arange(taken.max())
    return torch.from_numpy(powers.cumsum().cumsum()[taken - 1].astype(np.float32))


def _gradient(
    model: Model,
    objective: Objective,
    moving: Sequence[str],
    statistics: Params,
    client: Local,
    batch: Batch,
    at: Tree,
    half: int | None = None,
    of: Objective | None = None,
) -> dict[str, Tensor | Product]:
    """`recipe.Gradient` of a batch. `own`: statistics, which are updated wherever it is taken."""
    each = {name: _each(at[name], len(batch.x)) for name in moving}
    return model.gradient(
        of or objective, {**at, **each, **statistics}, moving, batch.half(half), client
    )


def finite(where: str, rate: float, trees: Iterable[Mapping[str, Tensor]]) -> None:
    """Refuse to go on with numbers that are none: they show in their sum."""
    sums = (array.sum(dtype=torch.float64) for tree in trees for array in tree.values())
    if not all(math.isfinite(float(value)) for value in sums):
        raise DivergedError(
            f"{where}: the model is no longer finite at learning rate {rate:g}; give a smaller one"
        )


def _each(array: Tensor, count: int) -> Tensor:
    """The same for each client, if there is one for all."""
    return array if array.shape[0] == count else array.expand(count, *array.shape[1:])


def _spread(array: Tensor, count: int) -> Tensor:
    """A copy for each client."""
    return _each(array, count).clone()

"""One local update, for every algorithm and any number of clients at once.

Clients are trained together as a leading axis. They are ordered by their number of steps, so that
step t is that of the first k clients only: nothing is computed for those that have finished.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.gradient.checks import fraction, whole
from headstart.gradient.models import Batch, Model, Names
from headstart.gradient.recipe import End, Local, Pass, Recipe
from headstart.gradient.tree import Tree, only
from headstart.heads.base import number

Params = dict[str, Tensor]
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
class Samples:
    """One client's training data as the model takes it, and what its shuffling depends on."""

    x: Tensor
    y: Tensor
    secret: bytes
    mask: Tensor | None = None  # of its classes, 0 or −∞

    def order(self, epochs: int, batch: int, *key: int) -> NDArray[np.int64]:
        """Its batches, steps×batch, −1 where the last of an epoch is not full."""
        count = len(self.y)
        steps = -(-count // batch)
        digest = hashlib.sha256(self.secret + repr(key).encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:16]))
        rows = np.full((epochs, steps * batch), -1, np.int64)
        for row in rows:
            row[:count] = rng.permutation(count)
        return rows.reshape(epochs * steps, batch)


class Group:
    """Clients trained together, and their batches."""

    def __init__(self, clients: Sequence[Samples]) -> None:
        self.clients = clients
        self.x = torch.cat([client.x for client in clients])
        self.y = torch.cat([client.y for client in clients])
        self.start = np.cumsum([0, *(len(client.y) for client in clients)])[:-1]
        masked = clients[0].mask is not None
        masks = [client.mask for client in clients if client.mask is not None]
        self.mask: Tensor | float = torch.stack(masks)[:, None, :] if masked else 0.0

    def batches(self, epochs: int, size: int, *key: int) -> Iterator[tuple[int, Batch]]:
        """(how many clients still train, their step). Clients stand with the most steps first."""
        size = min(size, max(len(client.y) for client in self.clients))
        orders = [client.order(epochs, size, *key) for client in self.clients]
        for step in range(len(orders[0])):
            rows = np.stack([order[step] for order in orders if step < len(order)])
            if len(rows) == 1:  # padding would show in batch norm's statistics
                rows = rows[:, rows[0] >= 0]
            count, real = len(rows), rows >= 0
            rows = np.where(real, rows, 0) + self.start[:count, None]
            weights = real / real.sum(axis=1, keepdims=True)
            at = torch.from_numpy(rows)
            mask = self.mask[:count] if isinstance(self.mask, Tensor) else 0.0
            yield (
                count,
                Batch(self.x[at], self.y[at], torch.from_numpy(weights.astype(np.float32)), mask),
            )

    def whole(self) -> Iterator[tuple[int, Batch]]:
        """(whose, samples): all of every client's; the pieces of a client weigh 1 together."""
        for place, client in enumerate(self.clients):
            weights = torch.full((1, len(client.y)), 1 / len(client.y))
            mask = self.mask[place : place + 1] if isinstance(self.mask, Tensor) else 0.0
            for at in range(0, len(client.y), _PIECE):
                part = slice(at, at + _PIECE)
                x, y = client.x[None, part], client.y[None, part]
                yield place, Batch(x, y, weights[:, part], mask)


@dataclass(frozen=True)
class Told:
    """What clients are told: all parameters (an axis of 1), the server's words, the round."""

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
    told: Told,
    memories: Mapping[str, Params],
) -> Trained:
    """All passes of a recipe. `memories`: stacked, those of names in `recipe.memory` and own."""
    count = len(group.clients)
    own = memories.get("personal", {})
    given = {name: own.get(name, told.params[name]) for name in (*names.shared, *names.personal)}
    local = Local(given, memories, told.server, training.rate)
    params = {**told.params, **{name: _spread(array, count) for name, array in given.items()}}
    memory = {name: dict(tree) for name, tree in memories.items()}
    steps = torch.zeros(count)
    for turn, one in enumerate(recipe.passes):
        at = params
        if one.moves == "copy":
            memory["copy"] = {n: _spread(a, count) for n, a in memories["copy"].items()}
            at = {**params, **memory["copy"]}
        done = descend(model, recipe, training, names, group, at, local, one, (told.round, turn))
        if one.moves != "copy":
            steps += done
    shared = Local(only(given, names.steered), local.memory, local.server, local.rate)
    end = End(only(params, names.steered), shared, steps.clamp_min(1))
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
    one: Pass,
    key: tuple[int, ...],
    velocity: Params | None = None,
) -> Tensor:
    """θ ← θ − η·(step + decay·θ), in place, for the parts this pass moves; steps of each client.

    `velocity`: momentum to go on with, changed as well; without it, it begins at 0.
    """
    moved = {"personal": names.personal, "shared": names.shared}.get(
        one.moves, (*names.shared, *names.personal)
    )
    moving = [name for name in moved if name in names.learned]
    correct = one.correct or recipe.correct
    statistics = model.statistics  # wherever a gradient is taken, the client's own are updated
    velocity = {} if velocity is None else velocity
    for name in moving if training.momentum else ():
        velocity.setdefault(name, torch.zeros_like(params[name]))
    steps = torch.zeros(len(group.clients))
    if not moving:
        return steps
    epochs = training.epochs if one.epochs is None else one.epochs
    for count, batch in group.batches(epochs, training.batch, *key):
        now = {name: array[:count] for name, array in params.items()}

        def gradient(
            at: Tree, half: int | None = None, batch: Batch = batch, count: int = count
        ) -> Params:
            own = {name: at[name].expand(count, *at[name].shape[1:]) for name in moving}
            own |= {name: array[:count] for name, array in params.items() if name in statistics}
            return model.gradient(recipe.loss, {**at, **own}, moving, batch.half(half))

        step = correct(gradient, now, local.first(count))
        for name in moving:
            change = torch.add(step[name], now[name], alpha=training.decay)
            if training.momentum:
                change = velocity[name][:count].mul_(training.momentum).add_(change)
            now[name].sub_(change, alpha=training.rate)
        steps[:count] += 1
    return steps


def finite(where: str, rate: float, trees: Iterable[Mapping[str, Tensor]]) -> None:
    """Refuse to go on with numbers that are none."""
    if not all(bool(array.isfinite().all()) for tree in trees for array in tree.values()):
        raise HeadstartError(
            f"{where}: the model is no longer finite at learning rate {rate:g}; give a smaller one"
        )


def _spread(array: Tensor, count: int) -> Tensor:
    """A copy for each client."""
    return array.expand(count, *array.shape[1:]).clone()

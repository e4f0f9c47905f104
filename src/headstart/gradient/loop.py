"""The server's loop: ask a cohort, add, step; the same for every algorithm and any federation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DivergedError, HeadstartError
from headstart.federation.protocol import Arrays, Federation
from headstart.gradient import steps
from headstart.gradient.checks import whole
from headstart.gradient.diagnose import means
from headstart.gradient.models import shaped
from headstart.gradient.recipe import RoundAggregate
from headstart.gradient.steps import Job
from headstart.gradient.tree import Tree, add, only, scaled
from headstart.heads.base import number
from headstart.statistics.vectors import Vectors

Outside = Callable[[int], Arrays | None]
_LEAST = {"rounds": 0, "clients": 1, "seed": 0, "window": 0, "patience": 0}


@dataclass(frozen=True)
class Plan:
    """How long a training goes on, and with how many clients per round.

    `drops`: rounds at which the clients' learning rate is multiplied by `drop`. `poly`: p, where
    the rate of round t (from 0) of T is (1 − t/T)^p of the first; 0: it is constant. `window`:
    WIMA, the evaluated model is the mean of so many last ones (0: as the algorithm says).
    `patience`: stop after so many rounds without a lower training loss (0: never).
    """

    rounds: int = 50
    clients: int = 10
    seed: int = 0
    drops: tuple[int, ...] = ()
    drop: float = 0.1
    poly: float = 0.0
    window: int = 0
    patience: int = 0

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            whole(name, getattr(self, name), least)
        for at in self.drops:
            whole("drops", at, 0)
        number("drop", self.drop, strict=True)
        number("poly", self.poly)

    def pace(self, round_: int) -> float:
        """By what the clients' learning rate is multiplied in a round."""
        left = 1 - round_ / self.rounds if self.poly else 1.0
        return float(left**self.poly * self.drop ** sum(round_ >= at for at in self.drops))

    def cohort(self, names: Sequence[str], round_: int) -> list[str]:
        """Who takes part: a function of the seed and the round alone."""
        if self.clients > len(names):
            raise HeadstartError(
                f"clients: expected at most the federation's {len(names)} per round, "
                f"got {self.clients}"
            )
        key = b"cohort %d %d" % (self.seed, round_)
        bits = np.frombuffer(hashlib.shake_256(key).digest(8 * len(names)), "<u8")
        chosen = bits.argpartition(self.clients - 1)[: self.clients].tolist()
        return [names[i] for i in sorted(chosen)]


@dataclass(frozen=True)
class State:
    """Where a training stands: enough to go on as if nothing had happened."""

    params: dict[str, NDArray[Any]]
    server: dict[str, Tree]
    round: int = 0
    recent: tuple[Tree, ...] = ()  # shared parameters of the last rounds, for the window
    best: float = np.inf
    best_round: int = 0
    up: int = 0  # bytes from clients
    down: int = 0  # and to them
    diagnosis: dict[str, float] | None = None  # of this round, if it was asked for

    def evaluated(self) -> dict[str, NDArray[Any]]:
        """The model to use: the mean of the window."""
        if len(self.recent) < 2:
            return self.params
        mean = scaled(self.recent[0], 1 / len(self.recent))
        for tree in self.recent[1:]:
            mean = add(mean, tree, 1 / len(self.recent))
        return {**self.params, **{n: a.astype(np.float32) for n, a in mean.items()}}


def begin(job: Job, params: Mapping[str, NDArray[Any]]) -> State:
    """Return the state before round 1; refuse parameters that do not fit the model."""
    for name, shape in job.model.shapes.items():
        if name not in params or params[name].shape != shape:
            got = params[name].shape if name in params else "none"
            raise HeadstartError(f"{name}: expected an array of shape {shape}, got {got}")
    return State(dict(params), job.recipe.server.start(only(params, job.names.steered)))


def rounds(
    job: Job,
    plan: Plan,
    federation: Federation,
    classes: NDArray[Any],
    state: State,
    outside: Outside | None = None,
) -> Iterator[State]:
    """The state after every round, from where it stands to the end of the plan.

    `outside`: the samples on which a round (from 0) is to be diagnosed, or none of them.
    """
    while state.round < plan.rounds:
        if plan.patience and state.round - state.best_round >= plan.patience:
            return
        samples = outside(state.round) if outside else None
        state = one_round(job, plan, federation, classes, state, samples)
        yield state


def one_round(
    job: Job,
    plan: Plan,
    federation: Federation,
    classes: NDArray[Any],
    state: State,
    samples: Arrays | None = None,
) -> State:
    """Run one round with a cohort of the plan and return the state after it."""
    recipe, names, shapes = job.recipe, job.names, job.model.shapes
    slower = plan.pace(state.round)
    if slower != 1:
        job = replace(job, training=replace(job.training, rate=job.training.rate * slower))
    clients = federation.clients
    cohort = plan.cohort(clients, state.round)
    server, up, down = dict(state.server), state.up, state.down
    if recipe.needs_full_gradient:
        arrays = steps.broadcast(job, state.params, {}, classes)
        full = federation.total(steps.full_gradient(job, state.round), arrays, cohort)
        up, down = up + full.up, down + full.down
        gradients = full.statistic
        mean = gradients.vector("gradient") / _some(gradients.number("clients"))
        server["gradient"] = only(shaped(mean, names.shared, shapes), names.steered)
    arrays = steps.broadcast(job, state.params, only(server, recipe.broadcast_state), classes)
    watch = plan.patience > 0
    asked_for = {**arrays, **(samples or {})}
    answer = federation.total(steps.update(job, state.round, watch=watch), asked_for, cohort)
    total = answer.statistic
    mean, sums, loss = _sums(job, total, server.get("gradient"), len(clients))
    moved, kept = recipe.server.step(only(state.params, names.steered), server, sums)
    others = [name for name in names.shared if name not in moved]
    averaged = add(only(state.params, others), mean)  # running statistics, whatever the server does
    with np.errstate(over="ignore"):
        every = {**averaged, **moved}
        shared = {name: np.asarray(every[name], np.float32) for name in names.shared}
    finite_params(shared, state.round, job.training.rate)
    window = plan.window or recipe.window
    recent = (*state.recent, shared)[-window:] if window > 1 else ()
    better = watch and loss < state.best
    return State(
        {**state.params, **shared},
        kept,
        state.round + 1,
        recent,
        loss if better else state.best,
        state.round + 1 if better else state.best_round,
        up + answer.up,
        down + answer.down,
        means(total.number) if samples else None,
    )


def _sums(
    job: Job, answer: Vectors, gradient: Tree | None, clients: int
) -> tuple[Tree, RoundAggregate, float]:
    """The mean difference of all that is shared, what the server's step sees, and the loss."""
    names, shapes = job.names, job.model.shapes
    weight, count, squares, loss = map(answer.number, steps.NUMBERS)
    _some(count)
    extra: dict[str, Tree] = {
        kind: only(shaped(answer.vector(kind), names.shared, shapes), names.steered)
        for kind in job.recipe.extra_names
    }
    if gradient is not None:
        extra["gradient"] = gradient
    mean = shaped(answer.vector("update") / weight, names.shared, shapes)
    steered = only(mean, names.steered)
    return mean, RoundAggregate(steered, squares, extra, int(count), clients), loss / count


def _some(count: float) -> float:
    if not count:
        raise HeadstartError("round: expected clients with samples, got none")
    return count


def finite_params(params: Tree, round_: int, rate: float) -> None:
    """Refuse to go on with numbers that are none."""
    if not all(np.isfinite(array).all() for array in params.values()):
        raise DivergedError(
            f"round {round_ + 1}: the model is no longer finite at learning rate {rate:g}; "
            "give a smaller one, or a smaller server rate"
        )

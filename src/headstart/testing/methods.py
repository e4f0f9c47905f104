"""What every training method promises, one function per promise, which takes a case."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headstart import gradient
from headstart.errors import HeadstartError
from headstart.federation.grouped import Grouped
from headstart.federation.protocol import Step, added
from headstart.federation.simulator import Simulator
from headstart.gradient import steps
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan, State, begin, rounds
from headstart.gradient.models import Spec, initial
from headstart.gradient.recipe import PARTS, Recipe
from headstart.gradient.steps import Job
from headstart.testing.federations import (
    AWKWARD,
    SHORT,
    Clients,
    assert_close,
    assert_same,
    everything,
    fresh,
    identical,
    images,
    run,
    vectors,
)
from headstart.testing.heads import quick
from headstart.testing.require import require

Check = Callable[["Case"], None]
CNN = Spec(3, 128, network="small_cnn")
GENTLE = Training(rate=0.05, batch=4, decay=0.01)
PICTURES = images((5, 6, 4))


@dataclass(frozen=True)
class Case:
    """A method and its settings, and federations that suit it."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recipe(self) -> Recipe:
        return gradient.make(self.name, self.settings)

    def job(self, spec: Spec, training: Training, train: Any) -> Job:
        return Job(self.name, spec, training, train, self.settings)

    def problem(
        self, sizes: Sequence[int] | None = None, training: Training = SHORT
    ) -> tuple[Job, Clients]:
        """A job, and clients for it: features, or a network where that matters."""
        recipe = self.recipe
        if turned(recipe):
            spec = Spec(3, 2, network="testing-turn")
            job = self.job(spec, training, recipe.trains or "model")
            return job, vectors(sizes or AWKWARD[:9])
        if recipe.personal in ("head", "extractor"):  # a network trains one at a time
            job = self.job(Spec(2, 1, network="testing-scale"), training, "model")
            return job, vectors(sizes or AWKWARD[:9], 3, 2)
        return self.job(Spec(3, 3), training, "head"), vectors(sizes or AWKWARD)


def turned(recipe: Recipe) -> bool:
    """Whether a method is about features that move, and their directions."""
    return bool(recipe.trains) or any(term.name in ("fd", "moon") for term in recipe.objective)


def everybody(data: Clients, rounds: int = 3) -> Plan:
    """Return a plan in which all clients take part in every round."""
    return Plan(rounds=rounds, clients=len(data))


# -- any grouping, any order -----------------------------------------------------------------------


def together_or_alone(case: Case) -> None:
    """Clients trained together are clients trained alone, and so are the bytes they send."""
    job, data = case.problem()
    together, alone = Simulator(fresh(data)), Simulator(fresh(data), together=False)
    grouped, two = (run(job, data, everybody(data), federation=side) for side in (together, alone))
    assert_close(everything(*grouped), everything(*two), what="together and alone")
    sent = [(state.up, state.down) for state, _ in (grouped, two)]
    require(sent[0] == sent[1], f"together and alone: the bytes differ ({sent[0]} and {sent[1]})")
    require(min(sent[0]) > 0, "expected something sent both ways")


def any_number_of_threads(case: Case) -> None:
    """Groups of clients side by side are clients alone, whatever the number of threads."""
    job, data = case.problem()
    results = []
    with mock.patch.multiple(steps, _SMALL=-1, _LANE=2):  # large work, in small groups
        for threads in (1, 2, 3):
            with _threads(threads):
                results.append(everything(*run(job, data, everybody(data))))
                require(torch.get_num_threads() == threads, "the number of threads has changed")
    for threads, other in zip((2, 3), results[1:], strict=True):
        assert_same(other, results[0], f"{threads} threads and one")
    alone = Simulator(fresh(data), together=False)
    expected = everything(*run(job, data, everybody(data), federation=alone))
    assert_close(results[0], expected, what="groups and clients alone")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class Scattered:
    """A federation that asks in another order and adds in other groups."""

    inner: Any
    seed: int

    @property
    def clients(self) -> Sequence[str]:
        names: Sequence[str] = self.inner.clients
        return names

    @property
    def data(self) -> Clients:
        held: Clients = self.inner.data
        return held

    def total(self, step: Step, broadcast: Any = None, cohort: Sequence[str] = ()) -> Any:
        rng = np.random.default_rng(self.seed)
        mixed = [cohort[i] for i in rng.permutation(len(cohort))]
        cuts = np.sort(rng.choice(np.arange(1, len(mixed)), 3, replace=False)).tolist()
        parts = [mixed[i:j] for i, j in zip([0, *cuts], [*cuts, len(mixed)], strict=True)]
        return added(self.inner.total(step, broadcast, part) for part in parts)


def order_and_groups(case: Case) -> None:
    """The order of a cohort and the groups it is added in do not matter."""
    job, data = case.problem()
    expected = everything(*run(job, data, everybody(data)))

    @settings(quick, max_examples=4)
    @given(st.integers(0, 2**16))
    def holds(seed: int) -> None:
        scattered = Scattered(Simulator(fresh(data)), seed)
        scattered_result = everything(*run(job, data, everybody(data), federation=scattered))
        assert_close(scattered_result, expected, what="another order and other groups")

    holds()


def sums_are_enough(case: Case) -> None:
    """The server needs no more than the sums of groups of clients."""
    job, data = case.problem()
    groups = Grouped(Simulator(fresh(data)), 5)
    state = begin(job, initial(job.model, None, 5))
    for last in rounds(job, everybody(data, 2), groups, np.arange(job.spec.classes), state):
        state = last
    expected, _ = run(job, data, everybody(data, 2))
    assert_close(state.params, expected.params, what="sums of groups and single answers")


@dataclass
class Filled(Scattered):
    """A federation that leaves clients without samples alone."""

    def total(self, step: Step, broadcast: Any = None, cohort: Sequence[str] = ()) -> Any:
        filled = [who for who in cohort if len(self.data[who].samples)]
        require(len(filled) < len(cohort), "expected a client without samples here")
        return self.inner.total(step, broadcast, filled)


def clients_without_samples(case: Case) -> None:
    """Clients without samples say nothing and remember nothing."""
    job, data = case.problem()
    expected = run(job, data, everybody(data), federation=Filled(Simulator(fresh(data)), 0))
    result = run(job, data, everybody(data))
    assert_same(everything(*result), everything(*expected), "with and without empty clients")
    require(not result[1]["c00"], "a client without samples remembers something")


# -- repeatable ------------------------------------------------------------------------------------


def seeds(case: Case) -> None:
    """A seed says every bit of a training, and another one says others."""
    job, data = case.problem()
    plan = Plan(rounds=3, clients=6, seed=1)
    first = everything(*run(job, data, plan, seed=2))
    assert_same(everything(*run(job, data, plan, seed=2)), first, "the same seeds")
    others = {
        "cohorts": run(job, data, replace(plan, seed=2), seed=2),
        "clients": run(job, data, plan, seed=3),
    }
    for what, other in others.items():
        same = identical(everything(*other), first)
        require(not same, f"another seed of the {what} changes nothing")


def interruptions(case: Case) -> None:
    """A training that was interrupted goes on bit for bit, if clients keep their memories."""
    job, data = case.problem()
    plan = Plan(rounds=6, clients=6, window=2, drops=(4,), patience=50)
    undisturbed, memories = run(job, data, plan)
    whole = everything(undisturbed, memories)
    sim = Simulator(fresh(data))
    halfway, _ = run(job, data, replace(plan, rounds=3), federation=sim)
    again = Simulator(fresh(data))
    again.restore({key: array.copy() for key, array in sim.snapshot().items()})
    done, kept = run(job, data, plan, state=halfway, federation=again)
    assert_same(everything(done, kept), whole, "interrupted and undisturbed")
    assert_same(done.evaluated(), undisturbed.evaluated(), "interrupted and undisturbed, evaluated")
    for key in ("round", "best", "best_round", "up", "down"):
        actual, wanted = getattr(done, key), getattr(undisturbed, key)
        require(actual == wanted, f"interrupted: {key}: expected {wanted!r}, got {actual!r}")
    if job.recipe.memory or job.recipe.personal:
        lost = everything(*run(job, data, plan, state=halfway))
        require(not identical(lost, whole), "the memories that the method declares change nothing")


# -- numbers that are none -------------------------------------------------------------------------


def absurd_learning_rates(case: Case) -> None:
    """A training that diverges says so, with its round and learning rate; no NaN is kept.

    One that does not, however large the rate, ends with numbers.
    """
    for rate in (1e30, 1e14):
        wild = replace(SHORT, rate=rate, decay=1.0, momentum=0.0)
        job, data = case.problem(training=wild)
        sim = Simulator(fresh(data))
        what = f"learning rate {rate:g}"
        try:
            state, _ = run(job, data, everybody(data, 20), federation=sim)
        except HeadstartError as error:
            named = str(error).startswith("round ") and what in str(error)
            require(named, f"{what}: expected the round and the rate in the error, got: {error}")
        else:
            require(_finite(state.params), f"{what}: the model is not finite, and nothing says so")
        for client in sim.data.values():
            require(_finite(client.memory), f"{what}: a client keeps numbers that are not finite")


def _finite(arrays: Mapping[str, NDArray[Any]]) -> bool:
    return all(bool(np.isfinite(array).all()) for array in arrays.values())


# -- what stays, and what leaves -------------------------------------------------------------------


def upload(
    job: Job, data: Clients, who: str = "c00", state: State | None = None
) -> tuple[Any, bytes]:
    """What a client sends in a round, and its message."""
    state = state or begin(job, initial(job.model, None, 5))
    server: dict[str, Any] = dict(state.server)
    if job.recipe.needs_full_gradient:
        server["gradient"] = {n: state.params[n] * 0 for n in job.names.steered}
    state_sent = {name: server[name] for name in job.recipe.broadcast_state}
    broadcast = steps.broadcast(job, state.params, state_sent, np.arange(job.spec.classes))
    (answer,) = Simulator(data).answers(steps.update(job, state.round), broadcast, [who])
    assert answer.payload is not None
    return answer.statistic, answer.payload


def moved_names(before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]) -> set[str]:
    """Return the names of the arrays that training has changed."""
    return {n for n, array in before.items() if not np.array_equal(array, after[n])}


def _in(part: str | None, name: str) -> bool:
    return part == "model" or name.startswith(f"{part}.")


def _sizes(job: Job) -> dict[str, int]:
    return {name: int(np.prod(shape)) for name, shape in job.model.shapes.items()}


def frozen_parts(case: Case) -> None:
    """What is not trained neither moves nor leaves; what is personal stays and is each one's own.

    On a small network, for every part that the method can train.
    """
    recipe = case.recipe
    for train in (recipe.trains,) if recipe.trains else PARTS:
        if recipe.personal and train != "model":
            continue
        job, data = case.job(CNN, GENTLE, train), fresh(PICTURES)
        start = initial(job.model, None, 5)
        state, memories = run(job, data, Plan(rounds=1, clients=3))
        shared = {n for n in start if _in(train, n) and not _in(recipe.personal, n)}
        moved = moved_names(start, state.params)
        require(moved <= shared, f"{train}: expected to stay as they are: {moved - shared}")
        require(moved or not shared, f"{train}: expected something that is shared to move")
        sent, _ = upload(job, fresh(PICTURES))
        wanted = (1 + len(recipe.extra_names), sum(_sizes(job)[n] for n in shared))
        got = sent.vectors.shape
        require(got == wanted, f"{train}: expected {wanted} numbers to be sent, got {got}")
        if recipe.personal:
            _personal(job, memories)


def _personal(job: Job, memories: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
    size = sum(n for name, n in _sizes(job).items() if _in(job.recipe.personal, name))
    personal = [kept["personal"] for kept in memories.values()]
    require(all(len(array) == size for array in personal), f"expected {size} personal numbers")
    alike = any(np.array_equal(a, b) for i, a in enumerate(personal) for b in personal[:i])
    require(not alike, "the personal parts of two clients are the same")


def sizes_of_what_is_sent(case: Case) -> None:
    """What is sent has the size of what is shared, and a row for each declared extra."""
    job, data = case.problem()
    part = job.recipe.personal
    wanted = sum(
        size for name, size in _sizes(job).items() if _in(job.train, name) and not _in(part, name)
    )
    sent, _ = upload(job, fresh(data), "c02")
    shape = (1 + len(job.recipe.extra_names), wanted)
    require(sent.vectors.shape == shape, f"expected {shape} numbers, got {sent.vectors.shape}")
    require(sent.numbers.shape == (4,), f"expected four sums, got {sent.numbers.shape}")


def lengths_where_asked_for(case: Case) -> None:
    """How far a client moved, ‖δ‖², is sent only where the recipe asks for norms."""
    job, data = case.problem()
    sent, _ = upload(job, fresh(data), "c02")
    weight, _, squares, _ = sent.numbers
    if not job.recipe.send_norms:
        require(squares == 0, f"expected no norms, got {squares}")
        return
    moved = sent.vectors[0] / weight
    expected = float(moved @ moved)
    require(squares > 0, "expected a length above 0")
    require(abs(squares - expected) <= 1e-5 * expected, f"expected {expected}, got {squares}")


def plain_values(case: Case) -> None:
    """A job of this method travels as plain values, and is the same on the other side."""
    job, _ = case.problem()
    again = Job.of(json.loads(json.dumps(job.plain)))
    require(again == replace(job, settings=dict(job.settings or {})), "the job has changed")
    require(again.names == job.names, "what is shared and personal has changed")


CHECKS: tuple[Check, ...] = (
    together_or_alone,
    any_number_of_threads,
    order_and_groups,
    sums_are_enough,
    clients_without_samples,
    seeds,
    interruptions,
    absurd_learning_rates,
    frozen_parts,
    sizes_of_what_is_sent,
    lengths_where_asked_for,
    plain_values,
)


def checks_of(case: Case) -> tuple[Check, ...]:
    """All of them, once the method can be made."""
    _ = case.recipe
    return CHECKS

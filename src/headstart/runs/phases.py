"""Phases 2 and 3 of a sentence: training, with or without a part that stays personal.

This is where torch is first needed; `pipeline` imports it for sentences that train.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from headstart import gradient, heads
from headstart.errors import HeadstartError
from headstart.federation.protocol import Arrays
from headstart.gradient import follow
from headstart.gradient.job import Job, Training
from headstart.gradient.loop import Outside, Plan, State, begin, rounds
from headstart.runs.at_home import one_name, only_part, trained_part
from headstart.runs.rates import rate_of
from headstart.runs.world import Params, Stage, World, uncounted
from headstart.sentences import Phase

BATCH, ROUNDS = 50, 50


def check(world: World, stage: Stage, phase: Phase, first: Phase) -> Stage:
    """What is known of the model after a training that can be carried out.

    `first`: the phase that made the initial head.
    """
    job, _ = planned(world, stage, phase)
    _ = job.names  # which refuses a part that this model has not
    if phase.follow and not world.prepared.config.network:
        raise HeadstartError("follow: expected an extractor that trains, got features")
    if phase.follow:
        follow.can_follow(heads.make(first.name))
    return _after(stage, phase, job)


def train(world: World, stage: Stage, phase: Phase, number: int, state: State | None) -> Stage:
    """Rounds of an algorithm; the model that is evaluated is the one that goes on."""
    job, plan = planned(world, stage, phase)
    world.personal = None  # what OLL gave before is not what this will give
    simulator, every = world.prepared.simulator, world.prepared.config.evaluate_every
    if state is None:
        simulator.forget()  # another algorithm's memories
        if job.recipe.directions:
            stage = directed(stage)
        state = begin(job, stage.params)
        if phase.follow:
            with uncounted(world.prepared):  # the initial head was solved from these very sums
                followed(world, stage, stage.params, simulator.clients)
    down, now = world.meter.down - state.down, stage
    whole = not (job.names.shared and job.names.personal)  # FedPer's extractor alone says nothing
    if state.round:
        now = replace(stage, params=state.evaluated())
    outside = diagnosing(world, plan)
    for after in rounds(job, plan, simulator, world.classes, state, outside):
        cohort = plan.cohort(simulator.clients, state.round)
        world.meter.trained(world.prepared, job, cohort)
        world.meter.down = down + after.down
        now = replace(stage, params=after.evaluated())
        if phase.follow:
            now = followed(world, now, state.params, cohort)
            world.meter.followed(world.prepared, now.method, cohort)
        state, last = after, after.round == plan.rounds
        if last or state.round % every == 0:
            known = world.accuracy(now) if whole else None
            world.point(number, state.round, known, state.diagnosis)
        if world.checkpoint and not last and state.round % world.checkpoint.every == 0:
            world.checkpoint.save(number, state, simulator, world.story())
        world.progress(str(phase), state.round, plan.rounds)
    at = world.curve[-1]["phase"], world.curve[-1]["round"]
    if state.round < plan.rounds and at != (number, state.round):  # stopped early
        world.point(number, state.round, world.accuracy(now) if whole else None)
    return _after(now, phase, job)


def diagnosing(world: World, plan: Plan) -> Outside | None:
    """The rounds that are evaluated are also diagnosed, if that is asked for."""
    if not world.prepared.config.diagnostics or not len(world.outside["outside/labels"]):
        return None
    every = world.prepared.config.evaluate_every

    def outside(round_: int) -> Arrays | None:
        asked = round_ + 1 == plan.rounds or (round_ + 1) % every == 0
        return world.outside if asked else None

    return outside


def _after(stage: Stage, phase: Phase, job: Job) -> Stage:
    """A personal training leaves memories, another its objective."""
    own = phase.kind == "personal"
    return replace(stage, job=job if own else None, last=None if own else job)


def directed(stage: Stage) -> Stage:
    """W_c ← W_c/‖W_c‖, b ← 0: what predicts is what a loss of directions trains."""
    rows = stage.params["head.weight"]
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = (rows / np.where(size > 0, size, 1)).astype(np.float32)
    none = np.zeros_like(stage.params["head.bias"])
    return replace(stage, params={**stage.params, "head.weight": unit, "head.bias": none})


def planned(world: World, stage: Stage, phase: Phase) -> tuple[Job, Plan]:
    """The settings of a phase, told apart: the algorithm's, the clients' training, the plan's."""
    config = world.prepared.config
    own = gradient.settings_of(phase.name)
    told: dict[str, Any] = dict(phase.settings)
    part = trained_part(world, phase)
    if "personal" in own:  # what a sentence says of such a method is what stays personal
        told = {"personal": phase.part or "head", **told}
        part = "model" if config.network else "head"
        if told["personal"] == "extractor" and not config.network:
            raise HeadstartError("personal: expected a part of the model, got no extractor")
    settings = {key: told.pop(key) for key in list(told) if key in own}
    recipe = gradient.make(phase.name, settings)
    part = only_part(world, phase, recipe, part)
    told = one_name(phase, told)
    given = {"rate": rate_of(stage, part, recipe), "batch": BATCH}
    training = Training(**{**given, **_taken(told, Training)})
    cohort = min(config.cohort, len(world.prepared.simulator.clients))
    given = {"rounds": phase.rounds or ROUNDS, "seed": config.seed, "clients": cohort}
    if "drops" in told:
        told["drops"] = _whole_numbers(told["drops"])
    plan = Plan(**{**given, **_taken(told, Plan)})
    if told:
        known = ", ".join(dict.fromkeys([*own, *_names(Training), *_names(Plan)]))
        raise HeadstartError(
            f"{phase.name}: expected settings among {known}, got {', '.join(told)}"
        )
    return Job(phase.name, stage.spec, training, part, settings), plan


def _whole_numbers(said: Any) -> tuple[int, ...]:
    """A sentence has no lists: 160, or "160,240"."""
    try:
        return tuple(int(part) for part in str(said).split(","))
    except ValueError:
        raise HeadstartError(f"drops: expected rounds, as in '160,240', got {said!r}") from None


def _names(kind: type[Any]) -> list[str]:
    return [one.name for one in fields(kind)]


def _taken(told: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """The settings that are fields of `kind`, taken out of what was told."""
    return {name: told.pop(name) for name in _names(kind) if name in told}


def followed(world: World, now: Stage, received: Params, cohort: Sequence[str]) -> Stage:
    """Fed3R-FT: the cohort's change of statistics, added; the head solved anew from the sum.

    The sum is that of what all clients sent last, each of which remembers it.
    """
    simulator, classes = world.prepared.simulator, world.classes
    words = follow.extractor_words(now.spec, received, classes)
    simulator.total(follow.follow(now.spec, now.method), words, cohort)
    sum_ = sum(
        client.memory["followed"]
        for client in simulator.data.values()
        if "followed" in client.memory
    )
    total = follow.unpacked(np.asarray(sum_), now.method.statistic, classes, now.spec.dimension)
    head = now.method.solve(total)
    weight = np.zeros((len(classes), now.spec.dimension), np.float32)
    bias = np.full(len(classes), -1e6, np.float32)  # a class nobody has shown yet
    at = np.searchsorted(classes, head.classes)
    weight[at], bias[at] = head.weights, head.bias
    return replace(now, params={**now.params, "head.weight": weight, "head.bias": bias})

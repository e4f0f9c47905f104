"""A sentence, carried out: initial head, training, partial and full personalization.

Each phase takes the model where the last one left it. What a run has to show is a curve (accuracy
by round, bytes and computation) and, with held-out parts, each client's hits before and after.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from headstart import gradient, heads
from headstart.data.backbones.catalogue import NETWORKS
from headstart.errors import HeadstartError
from headstart.evaluate import compared
from headstart.federation import steps
from headstart.federation.protocol import Arrays
from headstart.gradient import follow
from headstart.gradient.engine import Training
from headstart.gradient.loop import Outside, Plan, State, begin, rounds
from headstart.gradient.models import build, initial
from headstart.gradient.steps import Job
from headstart.results import Point, SeedResult
from headstart.runs.at_home import (
    check,
    closed,
    full,
    judge,
    one_name,
    only_part,
    trained_part,
    uncounted,
)
from headstart.runs.checkpoint import Checkpoint
from headstart.runs.config import Named
from headstart.runs.execute import build_head, calibrated, head_leverage, measure_step
from headstart.runs.federate import Prepared
from headstart.runs.inputs import Progress, silent
from headstart.runs.meter import Meter
from headstart.runs.outcome import head_summary, pipeline_result, shared_accuracy
from headstart.runs.rates import rate_of
from headstart.runs.world import Params, Stage, World, published, unwatched
from headstart.sentences import Phase, Sentence

BATCH, ROUNDS = 50, 50


def tell(
    prepared: Prepared,
    sentence: Sentence,
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
    watch: Callable[[Point], None] = unwatched,
) -> tuple[SeedResult, Stage]:
    """Carry out a sentence; what it found, and the model at the end."""
    began = time.perf_counter()
    simulator = prepared.simulator
    simulator.sent.clear()
    simulator.forget()
    world = World(prepared, progress, checkpoint, watch, meter=Meter.of(prepared))
    check_sentence(prepared, sentence)
    first, *rest = sentence.phases
    stage = start(world, first)
    saved = checkpoint.load(simulator) if checkpoint else None
    if saved:
        world.retold(saved[2])
    for number, phase in enumerate(rest, 1):
        if saved and number < saved[0]:  # its outcome is in the checkpoint, but for this
            stage = replace(stage, oll=stage.oll or phase.name == "oll")
            continue
        state = saved[1] if saved and number == saved[0] else None
        stage = _work(world, stage, phase, number, state)
    if prepared.config.personal and world.personal is None:
        judge(world, stage)
    tested = shared_accuracy(sentence, world.curve) is not None
    guess = world.predictions(stage) if tested else None
    head = None if stage.head is None else head_summary(stage.method, stage.head)
    result = pipeline_result(
        prepared,
        sentence,
        world.curve,
        head=head,
        scores=None if guess is None else compared(prepared.test.labels, guess, world.classes),
        personal=world.personal,
        epochs=world.epochs,
        domains=world.domains,
        seconds=time.perf_counter() - began,
    )
    return result, stage


def check_sentence(prepared: Prepared, sentence: Sentence) -> None:
    """Every phase's settings, before any of them is carried out."""
    world = World(prepared)
    first, *rest = sentence.phases
    if first.name != "none":
        _known(first)
    elif first.settings:
        raise HeadstartError(f"none: expected no settings, got {', '.join(first.settings)}")
    stage = Stage(world.spec(None), {})
    _check_network(world, stage)
    for phase in rest:
        if phase.kind in ("train", "personal"):
            job, _ = planned(world, stage, phase)
            _ = job.names  # which refuses a part that this model has not
            stage = _after(stage, phase, job)
            if phase.follow and not prepared.config.network:
                raise HeadstartError("follow: expected an extractor that trains, got features")
            if phase.follow:
                follow.can_follow(heads.make(first.name))
        else:
            check(world, stage, phase)
            own = phase.name if phase.name in ("prior", "ridge") else stage.closed
            stage = replace(stage, closed=own)


def _check_network(world: World, stage: Stage) -> None:
    """Statistics of batch norm that nobody has computed yet cannot stay as they are."""
    config, model = world.prepared.config, build(stage.spec)
    if config.network not in NETWORKS and model.statistics and config.batch_norm == "frozen":
        raise HeadstartError(
            f"batch_norm: expected average or local for {config.network}, which begins at random, "
            "got frozen"
        )


def _known(phase: Phase) -> None:
    """The settings of an initial head are its own."""
    expected = inspect.signature(heads.federated()[phase.name]).parameters
    strange = ", ".join(key for key in phase.settings if key not in expected)
    if strange:
        raise HeadstartError(
            f"{phase.name}: expected settings among {', '.join(expected)}, got {strange}"
        )


def _work(world: World, stage: Stage, phase: Phase, number: int, state: State | None) -> Stage:
    if phase.kind in ("train", "personal"):
        return train(world, stage, phase, number, state)
    if phase.kind == "closed":
        return closed(world, stage, phase)
    return full(world, stage, phase, number)


# -- phase 1: an initial head ----------------------------------------------------------------------


def start(world: World, phase: Phase) -> Stage:
    """A head solved from one message a client, and calibrated; or a random one."""
    config = world.prepared.config
    params = published(config.network, config.weights) if config.network else {}
    if phase.name == "none":
        spec = world.spec(None)
        stage = Stage(spec, {**initial(build(spec), None, config.seed), **params})
    else:
        stage = closed_form(world, phase, params)
    world.point(0, 0, world.accuracy(stage))
    return stage


def closed_form(world: World, phase: Phase, params: Params) -> Stage:
    """Every client speaks once."""
    if world.prepared.config.network:
        params = {**initial(build(world.spec(None)), None, world.prepared.config.seed), **params}
    view = world.features(params)
    method = build_head(view, Named(name=phase.name, **phase.settings))
    total = view.simulator.total(measure_step(view, method))
    world.meter.measured(view, method, through=bool(view.config.network))
    leverage = head_leverage(view, method, total)
    head = method.solve(total)
    if not getattr(method, "blind", False):
        world.meter.told(steps.with_head(head), view.simulator.clients)
        head = calibrated(view, head, leverage)
    spec = world.spec(head)
    whole = {**params, **_head_params(initial(build(spec), head, view.config.seed))}
    return Stage(spec, whole, method, head, leverage)


def _head_params(params: Params) -> Params:
    return {name: array for name, array in params.items() if name.startswith("head.")}


# -- phases 2 and 3: training, with or without a personal part -------------------------------------


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
    at = world.curve[-1].phase, world.curve[-1].round
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

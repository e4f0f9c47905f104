"""Phases 2 and 3: rounds of a federated algorithm, with or without a part that stays personal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from headstart import gradient, heads
from headstart.errors import HeadstartError
from headstart.federation.protocol import Arrays
from headstart.gradient import pixel_tests
from headstart.gradient.engine import Training
from headstart.gradient.loop import Outside, Plan, begin, rounds
from headstart.gradient.recipe import Part, Recipe
from headstart.gradient.refit import RunningTotal, can_refit, extractor_arrays, refit
from headstart.gradient.steps import Job
from headstart.heads.base import Head
from headstart.pipeline import init_head
from headstart.pipeline.checkpoint import SavedTraining
from headstart.pipeline.context import ModelState, PipelineContext
from headstart.pipeline.phases import FineTune, InitHead, Phase

BATCH, ROUNDS = 50, 50
ALIASES = {"lr": "rate", "local_momentum": "momentum"}  # a server has a momentum too
_UNSEEN = -1e6  # the bias of a class that nobody has shown yet


def check(phase: Phase, context: PipelineContext, state: ModelState) -> ModelState:
    """Every setting of a training, before it begins."""
    spec = context.spec(None)
    job, _ = planned(context, replace(state, spec=spec), phase)
    _ = job.names  # which refuses a part that this model has not
    context.trainings.append(settings_of(job))
    head = phase.refit if isinstance(phase, FineTune) else None
    if head is not None:
        if not context.config.network:
            raise HeadstartError("refit: expected an extractor that trains, got features")
        method = init_head.check(head, context, state).method
        can_refit(heads.make(head.name))
        state = replace(state, method=method)
    return _after(replace(state, spec=spec), phase, job)


def trainable(context: PipelineContext, state: ModelState) -> ModelState:
    """With parameters, to train."""
    return state if state.spec is not None else init_head.with_network(context, state, {})


def run(
    phase: Phase,
    context: PipelineContext,
    state: ModelState,
    number: int,
    resume: SavedTraining | None,
) -> ModelState:
    """Rounds of an algorithm; the model that is evaluated is the one that goes on."""
    state = trainable(context, state)
    job, plan = planned(context, state, phase)
    context.personal = None  # what OLL gave before is not what this will give
    federation, every = context.federation, context.config.evaluate_every
    refitted = HeadRefit.of(phase, context, state, resume)
    if resume is None:
        federation.begin_training(f"{number} {phase.name}")
        if job.recipe.directions:
            state = directed(state)
        where = begin(job, state.params)
        if refitted is not None:
            refitted.begin(state)
    else:
        where = resume.state

    def save() -> None:
        if context.checkpoint:
            made, running = context.progress_made(), refitted.running if refitted else None
            snapshot = federation.snapshot()
            context.checkpoint.save(SavedTraining(number, where, snapshot, made, running))

    if resume is None and number > 1:  # clients put away what an earlier checkpoint would need
        save()
    up, down, now = context.meter.up - where.up, context.meter.down - where.down, state
    whole = _tells(context, job)
    outside = diagnosing(context, plan)
    for after in rounds(job, plan, federation, context.classes, where, outside):
        cohort = plan.cohort(federation.clients, where.round)
        context.meter.trained(context, job, cohort)
        context.meter.up, context.meter.down = up + after.up, down + after.down
        now = replace(state, params=after.evaluated())
        if refitted is not None:
            now = refitted.solved(now, where.params, cohort, where.round)
            up += refitted.sent
        where, last = after, after.round == plan.rounds
        if last or where.round % every == 0:
            accuracy = context.accuracy(replace(now, last=job)) if whole else None
            context.point(number, where.round, accuracy, where.diagnosis)
        if context.checkpoint and not last and where.round % context.checkpoint.every == 0:
            save()
        context.progress(str(phase), where.round, plan.rounds)
    last_point = context.curve[-1].phase, context.curve[-1].round
    if where.round < plan.rounds and last_point != (number, where.round):  # stopped early
        accuracy = context.accuracy(replace(now, last=job)) if whole else None
        context.point(number, where.round, accuracy)
    if refitted is not None:
        now = refitted.finished(now)
    return _after(now, phase, job)


def _after(state: ModelState, phase: Phase, job: Job) -> ModelState:
    """A personal training leaves memories, another its objective."""
    personal = phase.kind == "personal"
    return replace(state, job=job if personal else None, last=None if personal else job)


def _tells(context: PipelineContext, job: Job) -> bool:
    """Whether what is shared can be tested: FedPer's extractor alone says nothing.

    A dense network is tested with other statistics than those that stay with clients (SiloBN).
    """
    statistics = set(job.names.personal) <= set(job.model.statistics)
    return not (job.names.shared and job.names.personal) or (context.config.dense and statistics)


def diagnosing(context: PipelineContext, plan: Plan) -> Outside | None:
    """The rounds that are evaluated are also diagnosed, where `diagnostics` is set."""
    if not context.config.diagnostics or not len(context.outside["outside/labels"]):
        return None
    every = context.config.evaluate_every

    def outside(round_: int) -> Arrays | None:
        evaluated = round_ + 1 == plan.rounds or (round_ + 1) % every == 0
        return context.outside if evaluated else None

    return outside


def directed(state: ModelState) -> ModelState:
    """W_c ← W_c/‖W_c‖, b ← 0: what predicts is what a loss of directions trains."""
    rows = state.params["head.weight"]
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = (rows / np.where(size > 0, size, 1)).astype(np.float32)
    none = np.zeros_like(state.params["head.bias"])
    return replace(state, params={**state.params, "head.weight": unit, "head.bias": none})


# -- what was said, resolved -----------------------------------------------------------------------


def planned(context: PipelineContext, state: ModelState, phase: Phase) -> tuple[Job, Plan]:
    """Return the job and the plan that a phase's settings say; unknown settings are refused."""
    config = context.config
    accepted = gradient.settings_of(phase.name)
    rest: dict[str, Any] = dict(phase.settings)
    settings = {key: rest.pop(key) for key in list(rest) if key in accepted}
    part = trained_part(context, phase)
    if "personal" in accepted:  # what is said of such a method is what stays personal
        settings |= {"personal": phase.part} if phase.part else {}
        part = "model" if config.network else "head"
    recipe = gradient.make(phase.name, settings)
    if "personal" in accepted and recipe.personal and not config.network:
        raise HeadstartError(
            f"{phase}: expected a network (network=…) whose {recipe.personal} is personal and the "
            "other part shared, got features and their head"
        )
    part = only_part(context, phase, recipe, part)
    scale = rate_scale(state, part)
    settings = {**{key: scale * rate for key, rate in recipe.inner_rates.items()}, **settings}
    rest = one_name(phase, rest)
    share = rest.pop("hardest", None) if config.dense else None
    training = Training(**{"rate": scale * recipe.rate, "batch": BATCH, **_taken(rest, Training)})
    cohort = min(config.cohort, len(context.federation.clients))
    usual = {"rounds": phase.rounds or ROUNDS, "seed": config.seed, "clients": cohort}
    if "drops" in rest:
        rest["drops"] = _whole_numbers(rest["drops"])
    plan = Plan(**{**usual, **_taken(rest, Plan)})
    if rest:
        more = ["hardest"] if config.dense else []
        names = ", ".join(dict.fromkeys([*accepted, *_names(Training), *_names(Plan), *more]))
        raise HeadstartError(
            f"{phase.name}: expected settings among {names}, got {', '.join(rest)}"
        )
    assert state.spec is not None
    job = Job(phase.name, replace(state.spec, hardest=share), training, part, settings)
    if context.config.dense:
        pixel_tests.check(job, context.config.inference)
    return job, plan


def settings_of(job: Job) -> dict[str, Any]:
    """The settings of a training, defaults too, as the notation says them."""
    spelling = {field: name for name, field in ALIASES.items()}
    training = {spelling.get(key, key): value for key, value in asdict(job.training).items()}
    share = {} if job.spec.hardest is None else {"hardest": job.spec.hardest}
    return {**training, **share, **(job.settings or {})}


def rate_scale(state: ModelState, part: str) -> float:
    """By what a method's own rates (0.1) are multiplied: 0.1 after a closed-form head, 0.1 by OLL.

    A head that trains alone after a closed form takes the second tenth in any case (FedCOF's linear
    probing, 0.001): at the temperature T of a closed-form head, a step on its logits is larger by
    1/T². A frame (ETF) knows nothing of the features: what trains towards it begins anew.
    """
    if state.method is None or state.data_free:
        return 0.1 if state.oll else 1.0
    return 0.01 if part == "head" or state.oll else 0.1


def trained_part(context: PipelineContext, phase: Phase) -> Part:
    """What a phase trains; where samples are features, the model is its head."""
    if phase.part == "extractor" or context.config.network:
        return phase.part or "model"  # type: ignore[return-value]  # one of PARTS, checked
    return "head"


def only_part(context: PipelineContext, phase: Phase, recipe: Recipe, part: Part) -> Part:
    """What a method trains that leaves the other part as it is; of any other, `part`."""
    if recipe.trains is None:
        return part
    if phase.part not in (None, recipe.trains):
        raise HeadstartError(f"{phase}: expected to train the {recipe.trains} alone")
    if not context.config.network:
        raise HeadstartError(f"{phase}: expected an extractor that trains (network=…), got none")
    return recipe.trains


def one_name(phase: Phase, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by the names of their fields, each said once."""
    named: dict[str, Any] = {}
    for key, value in settings.items():
        name = ALIASES.get(key, key)
        if name in named:
            both = " and ".join(other for other in settings if ALIASES.get(other, other) == name)
            raise HeadstartError(f"{phase.name}: expected one of {both}, got both")
        named[name] = value
    return named


def _whole_numbers(text: Any) -> tuple[int, ...]:
    """The notation has no lists: 160, or "160,240"."""
    try:
        return tuple(int(part) for part in str(text).split(","))
    except ValueError:
        raise HeadstartError(f"drops: expected rounds, as in '160,240', got {text!r}") from None


def _names(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]


def _taken(settings: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """The settings that are fields of `kind`, taken out."""
    return {name: settings.pop(name) for name in _names(kind) if name in settings}


# -- Fed3R-FT --------------------------------------------------------------------------------------


class HeadRefit:
    """A head solved anew after every round, from the sum of what each client last sent.

    As published the sum begins with nothing, and grows with the clients that are sampled. After an
    initial head of the same kind it begins with the very sums that head was solved from.
    """

    def __init__(self, context: PipelineContext, method: Head, running: RunningTotal) -> None:
        self.context, self.method, self.running = context, method, running
        self.sent = 0  # bytes up in the last round

    @classmethod
    def of(
        cls, phase: Phase, context: PipelineContext, state: ModelState, resume: SavedTraining | None
    ) -> HeadRefit | None:
        head = phase.refit if isinstance(phase, FineTune) else None
        if head is None:
            return None
        running = resume.running if resume and resume.running else RunningTotal()
        return cls(context, _same_or_made(head, context, state), running)

    def begin(self, state: ModelState) -> None:
        """Everybody's statistics first, where the initial head was solved from them."""
        if state.method is not None and state.method == self.method:
            self._ask(state, state.params, self.context.federation.clients, -1)

    def _ask(
        self, state: ModelState, received: dict[str, Any], cohort: Sequence[str], round_: int
    ) -> int:
        context = self.context
        assert state.spec is not None
        arrays = {
            **extractor_arrays(state.spec, received),
            "classes": context.classes,
            **self.running.broadcast(cohort),
        }
        answers = list(
            context.federation.answers(refit(state.spec, self.method, round_), arrays, cohort)
        )
        self.running = self.running.accepted(answers)
        return sum(answer.up for answer in answers)

    def solved(
        self, now: ModelState, received: dict[str, Any], cohort: Sequence[str], round_: int
    ) -> ModelState:
        """The model with the head of the sum after this round's clients measured.

        The extractor they measure through is the one that came with the round: no bytes more.
        """
        context = self.context
        assert now.spec is not None
        self.sent = self._ask(now, received, cohort, round_)
        context.meter.up += self.sent
        context.meter.refitted(context, self.method, cohort)
        classes, dimension = context.classes, self._dimension
        self.head = self.method.solve(self.running.statistic(self.method, classes, dimension))
        weight = np.zeros((len(classes), self.head.dimension), np.float32)
        bias = np.full(len(classes), _UNSEEN, np.float32)
        at = np.searchsorted(classes, self.head.classes)
        weight[at], bias[at] = self.head.weights, self.head.bias
        spec = context.spec(self.head)
        head = {"head.weight": weight, "head.bias": bias}
        spec = replace(spec, temperature=now.spec.temperature)
        return replace(now, spec=spec, params={**now.params, **head})

    @property
    def _dimension(self) -> int:
        mapped = getattr(self.method, "feature_map", None)
        return mapped.dimension if mapped else self.context.dimension

    def finished(self, now: ModelState) -> ModelState:
        """The head that was solved last, calibrated, is the model's from here on."""
        head = init_head.calibrated(self.context, self.head, now.leverage, now.params)
        assert now.spec is not None
        spec = replace(now.spec, temperature=head.temperature or 1.0)
        return replace(now, method=self.method, head=head, spec=spec)


def _same_or_made(head: InitHead, context: PipelineContext, state: ModelState) -> Head:
    """The initial head's own method where it is the same kind said the same way."""
    settings = dict(head.settings)
    current = state.method
    if current is not None and current.name == head.name:
        stated = {key: value for key, value in settings.items() if key != "bandwidth"}
        if all(getattr(current, key) == value for key, value in stated.items()):
            return current
    return init_head.made(head.name, settings, context, state.params)

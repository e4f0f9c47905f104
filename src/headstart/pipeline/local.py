"""Phase 4: every client trains alone, from the model it has; tests of clients' own models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import gradient
from headstart.errors import HeadstartError, NoAnswerError
from headstart.federation.protocol import tallies
from headstart.gradient.engine import Training
from headstart.gradient.local import FineTuning, fine_tune_locally, results
from headstart.gradient.steps import Job, broadcast
from headstart.pipeline.context import ModelState, PipelineContext
from headstart.pipeline.personalize import linear_head, need_tests
from headstart.pipeline.phases import Phase
from headstart.pipeline.training import (
    one_name,
    only_part,
    rate_scale,
    settings_of,
    trainable,
    trained_part,
)
from headstart.results import Epoch, PersonalScores

BATCH, EPOCHS = 64, 25


def check(phase: Phase, context: PipelineContext, state: ModelState) -> ModelState:
    """Every setting of training alone."""
    job, tuning = planned(phase, context, replace(state, spec=context.spec(None)))
    context.trainings.append({**settings_of(job), "epochs": tuning.epochs})
    return state


def run(
    phase: Phase,
    context: PipelineContext,
    state: ModelState,
    number: int,
    resume: object = None,
) -> ModelState:
    """Every client trains alone, and is tested before and after."""
    state = trainable(context, state)
    job, tuning = planned(phase, context, state)
    evaluate(context, state, job, tuning)
    context.meter.alone(context, job, tuning.epochs)
    context.point(number, tuning.epochs, None)
    return state


def planned(phase: Phase, context: PipelineContext, state: ModelState) -> tuple[Job, FineTuning]:
    """Return what each client trains alone, and for how long; refused where it cannot."""
    need_tests(phase, context)
    if state.closed_form == "ridge":
        raise HeadstartError("FP: expected to begin with a head, OLL or prior, got ridge")
    rest = one_name(phase, dict(phase.settings))
    algorithm, settings = _like(state, rest.pop("like", None))
    recipe = gradient.make(algorithm, settings)
    part = trained_part(context, phase)
    if phase.part is None:  # a part that is named trains whatever the algorithm does
        part = only_part(context, phase, recipe, part)
    extra: dict[str, Any] = {
        key: rest.pop(key) for key in ("strength", "every_epoch") if key in rest
    }
    accepted = [field.name for field in fields(Training) if field.name != "epochs"]
    unknown = ", ".join(key for key in rest if key not in accepted)
    if unknown:
        expected = ", ".join(["like", "strength", "every_epoch", *accepted])
        raise HeadstartError(f"FP: expected settings among {expected}, got {unknown}")
    rate = recipe.rate * rate_scale(state, part)
    training = Training(**{"rate": rate, "batch": BATCH, **rest})
    tuning = FineTuning(
        epochs=phase.rounds or EPOCHS, method=phase.name, **_begun(context, state), **extra
    )
    assert state.spec is not None
    job = Job(algorithm, state.spec, training, part, settings)
    _ = job.names  # which refuses a part that this model has not
    return job, tuning


def _like(state: ModelState, like: Any) -> tuple[str, dict[str, Any]]:
    """Whose objective a client descends alone: the last training's, or that of an algorithm."""
    if like is None:
        last = state.last
        return (last.algorithm, dict(last.settings or {})) if last else ("fedavg", {})
    return gradient.METHODS.entry(str(like), "like").name, {}


def _as_trained(state: ModelState) -> Job:
    """The model as it is, which predicts as its last training says (FedGELA: by a client's own
    frame)."""
    algorithm, settings = _like(state, None)
    return replace(state.plain, algorithm=algorithm, settings=settings)


def _begun(context: PipelineContext, state: ModelState) -> dict[str, Any]:
    smoothing = context.config.smoothing
    return {"oll": state.oll, "prior": state.closed_form == "prior", "smoothing": smoothing}


def evaluate(
    context: PipelineContext,
    state: ModelState,
    job: Job | None = None,
    tuning: FineTuning | None = None,
) -> None:
    """Each client's hits on its own part: the shared model's, and its own at the end.

    They are tests, and no part of the method's bytes.
    """
    classes = context.classes
    tuning = tuning or FineTuning(**_begun(context, state))
    job = job or state.job or _as_trained(state)
    arrays = broadcast(job, state.params, {}, classes)
    carried = linear_head(context, state).prior
    if carried is not None:
        arrays["carried"] = np.log(carried)
    if tuning.every_epoch:
        features, labels = context.test.read()
        arrays |= {"outside/features": features, "outside/labels": labels}
    plain = broadcast(state.plain, state.params, {}, classes)
    shared = tallies(context.federation, fine_tune_locally(state.plain, FineTuning()), plain)
    answers = tallies(context.federation, fine_tune_locally(job, tuning, begin=state.job), arrays)
    rows = {}
    answered = [name for name in context.federation.clients if name in answers and name in shared]
    if not answered:  # over a network some may be silent
        raise NoAnswerError("personal: expected an answer of some client, got none")
    for name in answered:
        sizes, hits = results(answers[name])
        rows[name] = np.array([sizes[0], results(shared[name])[1][0, 0], hits[-1, 0]])
    scores = PersonalScores.of(rows, ("global", "personal"))
    context.personal = replace(scores, final="personal")
    if tuning.every_epoch:
        context.epochs = by_epoch(answers)


def by_epoch(answers: Mapping[str, NDArray[np.float64]]) -> list[Epoch]:
    """Figure 12 of the papers: accuracy alone, on local and on absent classes, by epoch."""
    sizes = sum(results(values)[0] for values in answers.values())
    hits = sum(results(values)[1] for values in answers.values())
    shares = np.asarray(hits) / np.maximum(np.asarray(sizes), 1)
    return [
        Epoch(epoch, everyone, local, absent)
        for epoch, (everyone, local, absent) in enumerate(shares.tolist())
    ]

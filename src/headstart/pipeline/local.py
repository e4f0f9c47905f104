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
from headstart.gradient.home import Home, at_home, results
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
    job, home = planned(phase, context, replace(state, spec=context.spec(None)))
    context.trainings.append({**settings_of(job), "epochs": home.epochs})
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
    job, home = planned(phase, context, state)
    evaluate(context, state, job, home)
    context.meter.alone(context, job, home.epochs)
    context.point(number, home.epochs, None)
    return state


def planned(phase: Phase, context: PipelineContext, state: ModelState) -> tuple[Job, Home]:
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
    own: dict[str, Any] = {key: rest.pop(key) for key in ("strength", "every_epoch") if key in rest}
    known = [field.name for field in fields(Training) if field.name != "epochs"]
    unknown = ", ".join(key for key in rest if key not in known)
    if unknown:
        expected = ", ".join(["like", "strength", "every_epoch", *known])
        raise HeadstartError(f"FP: expected settings among {expected}, got {unknown}")
    rate = recipe.rate * rate_scale(state, part)
    training = Training(**{"rate": rate, "batch": BATCH, **rest})
    home = Home(epochs=phase.rounds or EPOCHS, method=phase.name, **_begun(context, state), **own)
    assert state.spec is not None
    job = Job(algorithm, state.spec, training, part, settings)
    _ = job.names  # which refuses a part that this model has not
    return job, home


def _like(state: ModelState, said: Any) -> tuple[str, dict[str, Any]]:
    """Whose objective a client descends alone: the last training's, or that of an algorithm."""
    if said is None:
        last = state.last
        return (last.algorithm, dict(last.settings or {})) if last else ("fedavg", {})
    return gradient.METHODS.entry(str(said), "like").name, {}


def _as_trained(state: ModelState) -> Job:
    """The model as it is, which predicts as its last training says (FedGELA: by a client's own
    frame)."""
    algorithm, settings = _like(state, None)
    return replace(state.plain, algorithm=algorithm, settings=settings)


def _begun(context: PipelineContext, state: ModelState) -> dict[str, Any]:
    smoothing = context.config.smoothing
    return {"oll": state.oll, "prior": state.closed_form == "prior", "smoothing": smoothing}


def evaluate(
    context: PipelineContext, state: ModelState, job: Job | None = None, home: Home | None = None
) -> None:
    """Each client's hits on its own part: the shared model's, and its own at the end.

    They are tests, and no part of the method's bytes.
    """
    classes = context.classes
    home = home or Home(**_begun(context, state))
    job = job or state.job or _as_trained(state)
    arrays = broadcast(job, state.params, {}, classes)
    carried = linear_head(context, state).prior
    if carried is not None:
        arrays["carried"] = np.log(carried)
    if home.every_epoch:
        features, labels = context.test.read()
        arrays |= {"outside/features": features, "outside/labels": labels}
    plain = broadcast(state.plain, state.params, {}, classes)
    shared = tallies(context.federation, at_home(state.plain, Home()), plain)
    own = tallies(context.federation, at_home(job, home, begin=state.job), arrays)
    rows = {}
    answered = [name for name in context.federation.clients if name in own and name in shared]
    if not answered:  # over a network some may be silent
        raise NoAnswerError("personal: expected an answer of some client, got none")
    for name in answered:
        sizes, hits = results(own[name])
        rows[name] = np.array([sizes[0], results(shared[name])[1][0, 0], hits[-1, 0]])
    scores = PersonalScores.of(rows, ("global", "personal"))
    context.personal = replace(scores, final="personal")
    if home.every_epoch:
        context.epochs = by_epoch(own)


def by_epoch(found: Mapping[str, NDArray[np.float64]]) -> list[Epoch]:
    """Figure 12 of the papers: accuracy alone, on local and on absent classes, by epoch."""
    sizes = sum(results(values)[0] for values in found.values())
    hits = sum(results(values)[1] for values in found.values())
    shares = np.asarray(hits) / np.maximum(np.asarray(sizes), 1)
    return [
        Epoch(epoch, own, local, absent)
        for epoch, (own, local, absent) in enumerate(shares.tolist())
    ]

"""Closed-form personalization, and what every pipeline says of its clients' own test parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headstart.data.cells import CellSamples
from headstart.errors import HeadstartError, NoAnswerError, StepRefusedError
from headstart.evaluate import PERSONAL
from headstart.federation import steps
from headstart.federation.protocol import tallies
from headstart.heads.linear import LinearHead
from headstart.pipeline.context import ModelState, PipelineContext
from headstart.results import PersonalScores, PixelScores
from headstart.statistics.confusion import Confusion

if TYPE_CHECKING:
    from headstart.pipeline.phases import Phase


def check(phase: Phase, context: PipelineContext, state: ModelState) -> ModelState:
    """Whether this closed form can be made of the model so far."""
    need_tests(phase, context)
    if phase.settings:
        unknown = ", ".join(phase.settings)
        raise HeadstartError(f"{phase.name}: expected no settings, got {unknown}")
    if phase.name == "oll":
        return replace(state, oll=True)
    if state.job is not None:
        raise HeadstartError(f"{phase.name}: expected a head that clients share, got their own")
    if state.closed_form:
        raise HeadstartError(f"{phase.name}: expected one of prior and ridge, got both")
    if state.method and state.data_free and not (state.spec or context.config.network):
        raise HeadstartError(
            f"{phase.name}: expected a head that has seen features, or a training before it, "
            f"got {state.method.title}"
        )
    return replace(state, oll=True, closed_form=phase.name)


def need_tests(phase: Phase, context: PipelineContext) -> None:
    """Refuse what only clients' own test parts could show."""
    if not context.config.personal:
        raise HeadstartError(f"{phase}: expected held-out parts to test on; give held_out=0.45")
    if context.config.federation.secure:
        raise HeadstartError(f"{phase}: expected answers of single clients, got secure sums")


def run(
    phase: Phase,
    context: PipelineContext,
    state: ModelState,
    number: int = 0,
    resume: object = None,
) -> ModelState:
    """OLL; or the local prior or the residual ridge, which hold OLL, from the shared head."""
    after = check(phase, context, state)
    shared = state.head  # not calibrated: no prior could be put into it, and nothing is tested yet
    if phase.name == "oll" and (state.spec or shared is None or shared.temperature is None):
        evaluate_personal(context, after)
    else:
        context.personal = variants(context, state, final=phase.name)
    return after


def variants(context: PipelineContext, state: ModelState, final: str) -> PersonalScores:
    """Every client's hits with the shared head, and with each closed form made of it.

    It is a test, and no part of the method's bytes.
    """
    step = steps.personal(context.config.smoothing, state.leverage)
    step, arrays = context.through(step, state.params)
    head = steps.with_head(linear_head(context, state))
    answers = tallies(context.federation, step, {**head, **arrays})
    if not answers:
        raise NoAnswerError("personal: expected an answer of some client, got none")
    return replace(PersonalScores.of(answers, PERSONAL), final=final)


def evaluate_personal(context: PipelineContext, state: ModelState) -> None:
    """Each client's hits on its own part: the shared model's, and its own at the end.

    Where single clients may not be seen there are none, and the results say so.
    """
    try:
        if state.spec is None and (state.head is None or state.head.temperature is None):
            return  # it knows nothing of the features yet, or nobody has calibrated it
        if state.spec is None:
            context.personal = variants(context, state, final="oll" if state.oll else "global")
            return
        from headstart.pipeline import local

        local.evaluate(context, state)
    except NoAnswerError as error:
        context.note(f"No personal accuracy: {error}.")
    except StepRefusedError:
        context.note("No personal accuracy: answers of single clients are not seen here.")


def evaluate_cells(context: PipelineContext, state: ModelState) -> None:
    """A head on every pixel of masks, the server's and those that clients have held back."""
    head = state.head
    if not isinstance(context.test, CellSamples) or head is None or state.spec is not None:
        return
    unseen = context.scores(head)
    found = {"unseen": Confusion(unseen.classes, unseen.confusion)}
    names = np.unique(np.array(context.test.data.names))
    try:
        answer = context.federation.total(steps.confusion(names), steps.with_head(head))
        found["seen"] = Confusion.received(answer.statistic, names)
    except (NoAnswerError, StepRefusedError):
        return  # there is a note of it already: no personal accuracy
    context.pixels = tuple(PixelScores.of(test, "frozen", matrix) for test, matrix in found.items())


def linear_head(context: PipelineContext, state: ModelState) -> LinearHead:
    """The shared head as one that closed forms and files know."""
    if state.spec is None:
        assert state.head is not None
        return state.head
    weights, bias = (state.params[f"head.{name}"].astype(np.float64) for name in ("weight", "bias"))
    head = state.head
    if head is not None and not state.data_free and len(weights) == len(head.weights):
        return replace(head, weights=weights, bias=bias)
    # Cross-entropy alone leaves the global class frequencies in the scores.
    holdings = context.holdings
    about = dict(state.head.provenance) if state.head else {}
    prior, temperature = holdings.counts / holdings.counts.sum(), state.spec.temperature
    return LinearHead(weights, bias, holdings.classes, None, prior, temperature, about)

"""Dense networks in a pipeline: what they can be asked for, and how they are tested on masks.

Unseen: the server's own test set. Seen: the clients' own test parts, whose matrices they send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headstart.errors import HeadstartError, NoAnswerError, StepRefusedError
from headstart.gradient import pixel_tests
from headstart.gradient.steps import Job
from headstart.results import PixelScores
from headstart.statistics.confusion import Confusion

if TYPE_CHECKING:
    from headstart.pipeline.context import ModelState, PipelineContext
    from headstart.pipeline.pipeline import Pipeline

UNSEEN, SEEN = "unseen", "seen"


def check(context: PipelineContext, pipeline: Pipeline) -> None:
    """Refuse what needs a label per image."""
    network, config = context.config.network, context.config
    if pipeline.init.name != "none":
        raise HeadstartError(
            f"{pipeline.init}: expected training from a random head for {network}, whose cells no "
            f"closed form measures; say it alone, without network, on the cells of an extractor"
        )
    for phase in pipeline.phases[1:]:
        if phase.kind not in ("train", "source"):
            raise HeadstartError(
                f"{phase}: expected training of the whole federation for {network}, "
                f"got {phase.description}, which looks at a label per image"
            )
        if getattr(phase, "refit", None) is not None:
            raise HeadstartError(f"{phase}: refit: expected a label per image, got masks")
    if config.diagnostics:
        raise HeadstartError("diagnostics: expected a label per image, got masks")


def evaluated(context: PipelineContext, state: ModelState) -> dict[str, Confusion]:
    """The matrices of the inference that the settings name, by the test."""
    job = _job(state)
    return _both(context, job, state, context.config.inference or pixel_tests.usual(job))


def every(context: PipelineContext, state: ModelState) -> tuple[PixelScores, ...]:
    """All that the model can be tested with, the named inference first."""
    job = _job(state)
    first = context.config.inference or pixel_tests.usual(job)
    order = dict.fromkeys([first, *pixel_tests.possible(job)])
    rows = []
    for inference in order:
        found = _both(context, job, state, inference)
        rows += [PixelScores.of(test, inference, matrix) for test, matrix in found.items()]
    return tuple(rows)


def _job(state: ModelState) -> Job:
    """The model as its last training has it: its statistics stay with clients, or do not."""
    return state.plain if state.last is None else state.last


def _both(
    context: PipelineContext, job: Job, state: ModelState, inference: str
) -> dict[str, Confusion]:
    names = tuple(context.classes.tolist())
    found = {}
    if len(context.test) and not _of_clients_alone(context, inference):
        parts = [(state.params, context.test)]
        if state.clusters is not None:
            split = state.clusters.parts(context.test)
            parts = [(state.clusters.params[cluster], own) for cluster, own in split.items()]
        several = (pixel_tests.tested(job, *part, names, inference) for part in parts)
        found[UNSEEN] = sum(several, Confusion.empty(names))
    if context.config.personal:
        arrays = (state.params, context.classes, names, inference)
        try:
            found[SEEN] = pixel_tests.seen(context.federation, job, *arrays)
        except (NoAnswerError, StepRefusedError) as error:
            context.note(f"No test of seen domains: {error}.")
    return found


def _of_clients_alone(context: PipelineContext, inference: str) -> bool:
    """By domain the server's own images have no statistics; named, they take those of whole."""
    named = context.config.inference == inference
    return inference in pixel_tests.BY_DOMAIN and context.config.personal and not named


def described(context: PipelineContext, state: ModelState) -> dict[str, Any]:
    """What a saved model must remember to make masks of other images."""
    height, width = context.config.sides
    inference = context.config.inference or pixel_tests.usual(_job(state))
    return {
        "classes": context.classes.tolist(),
        "pixels": [height, width],
        "inference": inference,
    }

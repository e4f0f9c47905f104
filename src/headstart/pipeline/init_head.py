"""The first phase: a head solved from one message per client, and calibrated; or a random one."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from headstart import heads, threads
from headstart.errors import HeadstartError, NoAnswerError, StepRefusedError
from headstart.federation import steps
from headstart.federation.protocol import Step, added
from headstart.heads.base import Head
from headstart.heads.leverage import Leverage
from headstart.heads.linear import LinearHead
from headstart.heads.random_features import bandwidth_of
from headstart.heads.shared_variances import SharedVariances
from headstart.pipeline.arrivals import collected
from headstart.pipeline.context import ModelState, Params, PipelineContext
from headstart.pipeline.private import note_head

if TYPE_CHECKING:
    from headstart.pipeline.phases import InitHead

STATED = 0.1  # the papers' temperature after Fed3R, where no client's losses are seen


def check(phase: InitHead, context: PipelineContext, state: ModelState) -> ModelState:
    """The settings of an initial head are its own."""
    if phase.name == "none":
        if phase.settings:
            raise HeadstartError(f"none: expected no settings, got {', '.join(phase.settings)}")
        return ModelState()
    expected = inspect.signature(heads.HEADS[phase.name]).parameters
    unknown = ", ".join(key for key in phase.settings if key not in expected)
    if unknown:
        raise HeadstartError(
            f"{phase.name}: expected settings among {', '.join(expected)}, got {unknown}"
        )
    return ModelState(method=cast(Head, heads.HEADS[phase.name]))  # the class knows enough


def run(
    phase: InitHead,
    context: PipelineContext,
    state: ModelState,
    number: int = 0,
    resume: object = None,
) -> ModelState:
    """Return the model as it begins; the curve has its first point."""
    if phase.name == "none" and context.source is not None and not context.config.network:
        return ModelState()  # the source is the first to say something
    params = _network_params(context)
    state = _random(context, params) if phase.name == "none" else _solved(phase, context, params)
    context.point(number, 0, context.accuracy(state))
    return state


def _network_params(context: PipelineContext) -> Params:
    """The network that is to train: its published weights, or random ones."""
    config = context.config
    if not config.network:
        return {}
    from headstart.gradient.models import build, initial
    from headstart.pipeline.networks import published

    random = initial(build(context.spec(None)), None, config.seed)
    return {**random, **published(config.network, config.weights)}


def _random(context: PipelineContext, params: Params) -> ModelState:
    from headstart.gradient.models import build, initial

    spec = context.spec(None)
    return ModelState(
        spec=spec, params={**initial(build(spec), None, context.config.seed), **params}
    )


def _solved(phase: InitHead, context: PipelineContext, params: Params) -> ModelState:
    """Every client speaks once."""
    method = made(phase.name, dict(phase.settings), context, params)
    sum_ = collected(context, method, *measuring(context, method, params))
    context.meter.measured(context, method)
    if context.config.private:
        note_head(context, method.name)
    leverage = leverage_of(context, method, sum_)
    with threads.for_size(sum_.dimension):
        head = method.solve(sum_)
    state = ModelState(method, head, leverage)
    if not state.data_free:
        state = ModelState(method, calibrated(context, head, leverage, params), leverage)
    return with_network(context, state, params) if params else state


def with_network(context: PipelineContext, state: ModelState, params: Params) -> ModelState:
    """A solved head as the head of a model, to go on from."""
    from dataclasses import replace

    from headstart.gradient.models import build, initial

    spec = context.spec(state.head)
    begun = initial(build(spec), state.head, context.config.seed)
    head_params = {name: array for name, array in begun.items() if name.startswith("head.")}
    return replace(state, spec=spec, params={**params, **head_params})


def made(name: str, settings: dict[str, Any], context: PipelineContext, params: Params) -> Head:
    """The head; random features with bandwidth "auto" ask once for the spread of the samples."""
    if settings.get("bandwidth") == "auto":
        step, broadcast = measuring(context, SharedVariances("spherical"), params)
        spread = added(map(context.received, context.federation.answers(step, broadcast)))
        settings["bandwidth"] = bandwidth_of(spread.statistic)
    return heads.make(name, settings)


def measuring(context: PipelineContext, head: Head, params: Params) -> tuple[Step, dict[str, Any]]:
    """The step that asks for a head's statistic, and what is broadcast with it."""
    config = context.config
    bound = context.bound(params) if config.exact else 16.0
    return context.through(steps.measure(head, exact=config.exact, bound=bound), params)


def leverage_of(context: PipelineContext, head: Head, sum_: Any) -> Leverage:
    """Of the samples on their own scores, where a head knows it and something needs it."""
    needed = context.config.personal or context.config.temperature == "left-out"
    if not needed or context.config.private or not hasattr(head, "leverage"):
        return Leverage()
    with threads.for_size(sum_.dimension):
        return cast(Leverage, head.leverage(sum_))


def calibrated(
    context: PipelineContext, head: LinearHead, leverage: Leverage, params: Params
) -> LinearHead:
    """With the temperature of the lowest training loss over the federation, or the stated one."""
    from dataclasses import replace

    if context.config.private:
        context.note("Not calibrated: losses of training samples are no part of the release.")
        return head
    stated = context.config.temperature
    if not isinstance(stated, str):
        return replace(head, temperature=stated)
    mode = leverage if stated == "left-out" else None
    step, arrays = context.through(steps.calibrate(mode), params)
    broadcast = steps.with_head(head)
    try:
        losses = context.federation.total(step, {**broadcast, **arrays})
    except NoAnswerError as error:
        context.note(f"Not calibrated: {error}.")
        return head
    except StepRefusedError:
        context.note(
            f"Not calibrated: no client's losses are seen here; the temperature is {STATED:g}."
        )
        return replace(head, temperature=STATED)
    context.meter.up += losses.up
    context.meter.broadcast(broadcast, context.federation.clients)
    return head.calibrated(losses.statistic.values)

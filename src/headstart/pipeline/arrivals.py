"""One message per client, folded as they come; the head can be solved and tested along the way."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart import threads
from headstart.data.cells import CellSamples
from headstart.errors import NoAnswerError, SolveError
from headstart.evaluate import tested
from headstart.federation.protocol import Arrays, Step
from headstart.heads.base import Head
from headstart.heads.linear import LinearHead
from headstart.results import Arrival
from headstart.statistics.base import total

if TYPE_CHECKING:
    from headstart.pipeline.context import PipelineContext

_TOGETHER = 256  # messages folded at once: what the server holds does not grow with clients


def collected(context: PipelineContext, head: Head, step: Step, broadcast: Arrays) -> Any:
    """The sum of all clients' statistics; of a head that ends the pipeline also how it grew."""
    if not context.arriving:
        answer = context.federation.total(step, broadcast)
        context.meter.up += answer.up
        return answer.statistic
    names = context.federation.clients
    points = min(len(names), context.config.curve_points)
    if isinstance(context.test, CellSamples):  # every test is one of all pixels: the last is enough
        points = 1
    # The last is always a stop, or answers would be left out: linspace(1, n, 1) is [1].
    stops = {len(names)} if points == 1 else set(np.linspace(1, len(names), points, dtype=int))
    so_far: Any = None
    waiting: list[Any] = []
    seen = 0
    for answer in context.federation.answers(step, broadcast):
        seen += len(answer.clients)
        context.received(answer)
        if answer.payload is not None:
            context.messages[answer.clients[0]] = hashlib.sha256(answer.payload).hexdigest()
        waiting.append(answer.statistic)
        passed = {stop for stop in stops if stop <= seen}
        if passed or len(waiting) == _TOGETHER:
            so_far = total(waiting if so_far is None else [so_far, *waiting])
            waiting = []
        if passed:
            stops -= passed
            context.arrivals.append(_arrival(context, head, so_far, seen))
        context.progress(head.title, seen, len(names))
    if waiting:  # somebody has not answered
        so_far = total(waiting if so_far is None else [so_far, *waiting])
        context.arrivals.append(_arrival(context, head, so_far, seen))
    if so_far is None:
        raise NoAnswerError(f"{step.name}: expected an answer of some client, got none")
    context.total = so_far
    return so_far


def _arrival(context: PipelineContext, head: Head, so_far: Any, clients: int) -> Arrival:
    """How a head from the messages so far does; 0 where it cannot be solved yet."""
    accuracy: float | None = None
    if len(context.test):
        with threads.for_size(so_far.dimension):
            try:
                accuracy = _accuracy(context, head.solve(so_far))
            except SolveError:
                accuracy = 0.0
    return Arrival(clients, int(context.meter.up), accuracy, len(so_far.classes))


def _accuracy(context: PipelineContext, head: LinearHead) -> float:
    if isinstance(context.test, CellSamples):
        return tested(head, context.test).accuracy
    return head.accuracy(*context.test.read())

"""What clients can be asked for: measure for a head, count classes, score its temperature, test it.

Each also through a network that the broadcast carries (`through`), for an extractor that trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import heads
from headstart.federation.protocol import EXTRACTOR, Arrays, ClientData, Step, register
from headstart.heads.base import settings
from headstart.heads.leverage import Leverage
from headstart.heads.linear import LinearHead
from headstart.personal import VARIANTS, Settings, known
from headstart.statistics.base import Summable
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.tally import Tally


def measure(head: Any, *, exact: bool = False, bound: float = 16.0) -> Step:
    """Ask for the statistic of a head."""
    about = {"head": heads.name_of(head), "settings": settings(head)}
    return Step("measure", {**about, "exact": exact, "bound": bound})


def counts() -> Step:
    """Ask how many samples of each class a client has; whole numbers, so that masks can hide it."""
    return Step("counts")


def calibrate(leverage: Leverage | None = None) -> Step:
    """Ask for the training loss of the broadcast head at every temperature.

    With the head's leverage: as if each sample had been left out of its solution.
    """
    return Step("calibrate", {"leverage": asdict(leverage)} if leverage else {})


def personal(smoothing: float = 0.5, leverage: Leverage | None = None) -> Step:
    """Ask how the broadcast head does on the client's own test part, made its own or not."""
    return Step("personal", {"smoothing": smoothing, "leverage": asdict(leverage or Leverage())})


def through(step: Step, network: Mapping[str, Any] | None) -> Step:
    """The same step on features that the broadcast network makes; None: on samples as they are."""
    if network is None:
        return step
    return replace(step, params={**step.params, EXTRACTOR: dict(network)})


def with_head(head: LinearHead) -> dict[str, NDArray[Any]]:
    """A head as the arrays of a broadcast."""
    return {"head": np.frombuffer(head.to_bytes(), np.uint8)}


def _head(broadcast: Arrays) -> LinearHead:
    return LinearHead.from_bytes(broadcast["head"].tobytes())


def _statistic(params: Mapping[str, Any]) -> type[Any]:
    """That of the head that is measured for."""
    return heads.make(params["head"], dict(params["settings"])).statistic


@register("measure", _statistic, discloses="a sum over few samples is nearly those samples")
def _measure(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    head = heads.make(params["head"], dict(params["settings"]))
    how = {"exact": params["exact"], "bound": params["bound"], "secret": client.secret}
    return head.measure(*client.samples.read(), **how)


@register("counts", ClassSums)
def _counts(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    labels = client.samples.labels
    return ClassSums.measure(np.zeros((len(labels), 1)), labels, exact=True, sums=False)


@register("calibrate", Tally)
def _calibrate(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    leverage = Leverage(**params["leverage"]) if "leverage" in params else None
    return Tally(_head(broadcast).losses(*client.samples.read(), leverage))


@register("personal", Tally, tests=True)
def _personal(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    """[tested, hits of each of VARIANTS]; each is made of the training part alone."""
    if client.test is None or not len(client.test):
        return Tally(np.zeros(1 + len(VARIANTS)))
    (x, labels), (z, y) = client.samples.read(), client.test.read()
    head = _head(broadcast)
    if not known(head, labels).any():
        return Tally(np.array([len(y), *[0.0] * len(VARIANTS)]))
    chosen = Settings(params["smoothing"], Leverage(**params["leverage"]))
    made = (make(head, x, labels, chosen) for make in VARIANTS.values())
    hits = [float((own.predict(z) == y).sum()) for own in made]
    return Tally(np.array([float(len(y)), *hits]))

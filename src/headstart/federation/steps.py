"""What clients can be asked for: measure for a head, score its temperature, test it at home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import heads
from headstart.federation.protocol import Arrays, ClientData, Step, register
from headstart.heads.base import settings
from headstart.heads.linear import LinearHead
from headstart.statistics.base import Summable
from headstart.statistics.tally import Tally

PERSONAL = ("global", "oll", "prior")  # the head as it came; only local labels; local prior


def measure(head: Any, *, exact: bool = False, bound: float = 16.0) -> Step:
    """Ask for the statistic of a head."""
    params = {"head": head.name, "settings": settings(head), "exact": exact, "bound": bound}
    return Step("measure", params)


def calibrate() -> Step:
    """Ask for the training loss of the broadcast head at every temperature."""
    return Step("calibrate")


def personal(smoothing: float = 0.5) -> Step:
    """Ask how the broadcast head does on the client's own test part, made its own or not."""
    return Step("personal", {"smoothing": smoothing})


def with_head(head: LinearHead) -> dict[str, NDArray[Any]]:
    """A head as the arrays of a broadcast."""
    return {"head": np.frombuffer(head.to_bytes(), np.uint8)}


def _head(broadcast: Arrays) -> LinearHead:
    return LinearHead.from_bytes(broadcast["head"].tobytes())


@register("measure")
def _measure(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    head = heads.make(params["head"], dict(params["settings"]))
    return head.measure(
        client.features,
        client.labels,
        exact=params["exact"],
        bound=params["bound"],
        secret=client.secret,
    )


@register("calibrate")
def _calibrate(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    return Tally(_head(broadcast).losses(client.features, client.labels))


@register("personal")
def _personal(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    """[tested, hits of each of PERSONAL]; the prior and the classes are of the training part."""
    z, y = client.test_features, client.test_labels
    if z is None or y is None or not len(y):
        return Tally(np.zeros(1 + len(PERSONAL)))
    head = _head(broadcast)
    classes, counts = np.unique(client.labels, return_counts=True)
    known = np.isin(classes, head.classes)
    if not known.any():
        return Tally(np.array([len(y), *[0.0] * len(PERSONAL)]))
    own = dict(zip(classes[known].tolist(), counts[known].tolist(), strict=True))
    variants = (
        head,
        head.restrict(classes[known]),
        head.with_prior(own, smoothing=params["smoothing"]),
    )
    hits = [float((variant.predict(z) == y).sum()) for variant in variants]
    return Tally(np.array([float(len(y)), *hits]))

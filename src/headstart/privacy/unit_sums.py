"""A client's half of a private release: sums of its samples at unit length, with or without noise.

Where nobody is trusted (`noise` in the step) the client draws all of it here. In a masked group it
draws its share later, under the mask; a trusted server adds it to the sum of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headstart.errors import StepRefusedError
from headstart.federation.promises import broken
from headstart.federation.protocol import Arrays, Check, ClientData, Step, register_step
from headstart.labels import Labels, as_labels
from headstart.privacy.layout import Layout
from headstart.privacy.sensitivity import BOUND, Noise, check_classes, unit_rows
from headstart.statistics.base import Summable
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.exact import Lattice
from headstart.statistics.moments import Moments
from headstart.statistics.noisy import NoisySums
from headstart.statistics.wire import Limits


def unit_sums(kind: str, classes: Any, noise: Noise | None = None) -> Step:
    """Ask for the sum of all samples (`mean`), the sums of classes (`sums`), or these and A
    (`gram`); with `noise`, clients add it."""
    params: dict[str, Any] = {"kind": kind, "classes": np.asarray(classes).tolist()}
    return Step("unit-sums", params | ({"noise": noise.to_plain()} if noise else {}))


def rows_of(params: Mapping[str, Any]) -> Labels:
    """The classes that the answer has rows for: all, or one that stands for all."""
    classes = np.unique(as_labels(params["classes"], "classes"))
    return classes[:1] if params["kind"] == "mean" else classes


def without_noise(step: Step) -> tuple[Step, Noise | None]:
    """What members of a masked group measure, and the noise that they add under their masks."""
    params = dict(step.params)
    plain = params.pop("noise", None)
    if plain is None:
        return step, None
    noise = Noise.from_plain(plain)
    if noise.colluding is None:
        raise StepRefusedError("noise: expected shares of it in a masked group, got all of it")
    return replace(step, params=params), noise


def _answer(params: Mapping[str, Any]) -> type[Any]:
    if "noise" in params and "colluding" not in params["noise"]:
        return NoisySums
    return Moments if params["kind"] == "gram" else ClassSums


def _summed(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """Sums of the agreed classes at unit length; with noise nothing is known of their size."""
    classes, noisy = rows_of(params), _answer(params) is NoisySums

    def check(statistic: Any, limits: Limits, clients: int) -> None:
        if not np.isin(statistic.classes, classes).all():
            raise broken("expected sums of the agreed classes, got others")
        if noisy and ("gram" in statistic.tables) != (params["kind"] == "gram"):
            raise broken(f"expected the tables of {params['kind']!r}, got others")
        if not noisy and statistic.lattice != Lattice(BOUND):
            raise broken(f"expected sums on the lattice of bound {BOUND:g}")

    return check


@register_step(
    "unit-sums",
    _answer,
    discloses="a sum over few samples is nearly those samples",
    promise=_summed,
    budget="measure",
)
def _unit_sums(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    features, labels = client.samples.read()
    check_classes(labels, as_labels(params["classes"], "classes"))
    rows = unit_rows(features, broadcast.get("direction"))
    classes = rows_of(params)
    if params["kind"] == "mean":
        labels = np.repeat(classes, len(rows))
    kind = Moments if params["kind"] == "gram" else ClassSums
    exact = kind.measure(rows, labels, exact=True, bound=BOUND, secret=client.secret)
    if "noise" not in params:
        return exact
    noise = Noise.from_plain(params["noise"])
    if noise.colluding is not None:
        raise StepRefusedError("noise: expected a masked group, in which shares of it add up")
    layout = Layout.of(exact, classes)
    return noise.restored(layout, noise.added(layout, noise.vector(layout, exact)))

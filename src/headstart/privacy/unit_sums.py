"""A client's half of a private release: sums of its samples at unit length, with or without noise.

Where nobody is trusted (`noise` in the step) the client draws all of it here. In a masked group it
draws its share later, under the mask; a trusted server adds it to the sum of all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headstart.data.samples import Positions, images_of, pieces
from headstart.errors import HeadstartError, StepRefusedError
from headstart.federation.promises import broken
from headstart.federation.protocol import Arrays, Check, ClientData, Step, register_step
from headstart.labels import Labels, as_labels
from headstart.privacy.layout import Layout
from headstart.privacy.noise import REACH
from headstart.privacy.residual import residual_sums
from headstart.privacy.sensitivity import (
    BOUND,
    Noise,
    along,
    check_classes,
    shortened,
    steps_of,
    unit_rows,
)
from headstart.statistics.base import Summable, total
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.exact import MOST_SAMPLES, Lattice
from headstart.statistics.moments import Moments
from headstart.statistics.noisy import NoisySums
from headstart.statistics.wire import Limits

ONE_ROW = ("mean", "residual")  # kinds whose sum is one vector
ROOM = 2**62  # of a sum with its noise
_ROUNDED = 1e-9  # more than the rounding of a norm


def unit_sums(
    kind: str,
    classes: Any,
    noise: Noise | None = None,
    most: Mapping[str, int | None] | None = None,
    image: Noise | None = None,
) -> Step:
    """Ask for the sum of all samples (`mean`), the sums of classes (`sums`), these and A (`gram`),
    or what class means leave unexplained (`residual`); with `noise`, clients add it.

    `most`: the samples that are planned, the clients asked and the dimension, by which answers are
    checked. `image`: the noise in which the samples of an image must hide together.
    """
    params: dict[str, Any] = {"kind": kind, "classes": np.asarray(classes).tolist()}
    params |= {name: value for name, value in (most or {}).items() if value is not None}
    given = {"noise": noise, "image": image}
    plain = {name: value.to_plain() for name, value in given.items() if value is not None}
    return Step("unit-sums", params | plain)


def rows_of(params: Mapping[str, Any]) -> Labels:
    """The classes that the answer has rows for: all, or one that stands for all."""
    classes = np.unique(as_labels(params["classes"], "classes"))
    return classes[:1] if params["kind"] in ONE_ROW else classes


def without_noise(step: Step) -> tuple[Step, Noise | None]:
    """What members of a masked group measure, and the noise that they add under their masks."""
    params = dict(step.params)
    plain = params.pop("noise", None)
    if plain is None:
        return step, None
    noise = _agreed(Noise.from_plain(plain), params)
    if noise.colluding is None:
        raise StepRefusedError("noise: expected shares of it in a masked group, got all of it")
    return replace(step, params=params), noise


def _agreed(noise: Noise, params: Mapping[str, Any]) -> Noise:
    """The noise in which a client's images are to hide must be the noise that is added."""
    image = Noise.from_plain(params["image"]) if "image" in params else None
    if (image is None) != (noise.rows is None) or (image and not image.same_size(noise)):
        raise StepRefusedError("image: expected the noise that is added, got another")
    return noise


def _answer(params: Mapping[str, Any]) -> type[Any]:
    if "noise" in params and "colluding" not in params["noise"]:
        return NoisySums
    return Moments if params["kind"] == "gram" else ClassSums


def _summed(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """Sums of the agreed classes at unit length, in the agreed dimension."""
    classes, noisy = rows_of(params), _answer(params) is NoisySums
    noise = Noise.from_plain(params["noise"]) if noisy else None
    dimension = params.get("dimension")
    if "weights" in broadcast:
        dimension = broadcast["weights"].size
    elif "direction" in broadcast:
        dimension = len(broadcast["direction"])

    def check(statistic: Any, limits: Limits, clients: int) -> None:
        if dimension is not None and statistic.dimension != dimension:
            raise broken(f"expected sums of {dimension} features, got {statistic.dimension}")
        if not np.isin(statistic.classes, classes).all():
            raise broken("expected sums of the agreed classes, got others")
        if noise is not None:
            _check_noisy(statistic, classes, noise, clients, params)
        elif statistic.lattice != Lattice(BOUND):
            raise broken(f"expected sums on the lattice of bound {BOUND:g}")
        else:
            _check_lengths(statistic)

    return check


def _check_noisy(
    found: NoisySums, classes: Labels, noise: Noise, clients: int, params: Mapping[str, Any]
) -> None:
    """All classes, the tables and variances that were asked for, nothing beyond samples and noise.

    A number is |x| ≤ n·step + REACH·s (n samples at most, or μ·s of who is clipped), and within a
    part of 62 bits, so that no answer makes the sum of all leave them.
    """
    if not np.array_equal(found.classes, classes):
        raise broken("expected sums of all agreed classes")
    given = (found.direction, found.projection, found.correction)
    if set(found.tables) != set(noise.variances) or any(array is not None for array in given):
        raise broken(f"expected the tables of {params['kind']!r}, got others")
    planned, asked = int(params.get("samples", MOST_SAMPLES)), int(params.get("clients", 1))
    for part, variance in noise.variances.items():
        if not math.isclose(found.variances[part], variance * clients, rel_tol=_ROUNDED):
            raise broken(f"{part}: expected the variance of the noise that was asked for")
        deviation = math.sqrt(variance)
        own = noise.mu * deviation if noise.clip else planned * steps_of(part)
        most = min(math.ceil(own + REACH * deviation), ROOM // max(asked, clients)) * clients
        table = found.tables[part]
        if max(int(table.max(initial=0)), -int(table.min(initial=0))) > most:
            raise broken(f"{part}: expected numbers of at most {most:.6g}, of samples and noise")


def _check_lengths(found: Moments | ClassSums) -> None:
    """tr(Σqqᵀ) ≤ n·R², or ‖Σq‖ ≤ n·R in every class: no sample is longer than one.

    (A factor has its trace without being multiplied out.)
    """
    if isinstance(found, Moments):
        long = found.trace() > found.samples * (1 + _ROUNDED)
    else:
        norms = np.linalg.norm(found.class_sums(), axis=1)
        long = bool((norms > found.counts * (1 + _ROUNDED)).any())
    if long:
        raise broken("expected sums of samples of unit length, got longer ones")


def _direction(broadcast: Arrays, dimension: int) -> Any:
    """What all samples share, of length 1: with another one, rows would not be of unit length."""
    direction = broadcast.get("direction")
    if direction is None:
        return None
    known = direction.shape == (dimension,) and direction.dtype == np.float64
    if not known or not abs(float(np.linalg.norm(direction)) - 1) < 1e-6:
        raise HeadstartError(f"direction: expected {dimension} numbers of length 1")
    return direction


def _part(
    client: ClientData, at: Positions, params: Mapping[str, Any], broadcast: Arrays
) -> Summable:
    """The sums of some of the samples; of images, of whole ones."""
    features, labels = client.samples.read(at)
    agreed = np.unique(as_labels(params["classes"], "classes"))
    check_classes(labels, agreed)
    if "projection" in broadcast:
        features = along(features, broadcast["projection"])
    rows = unit_rows(features, _direction(broadcast, features.shape[1]))
    if params["kind"] == "residual":
        return residual_sums(rows, labels, agreed, broadcast["weights"])
    if params["kind"] == "mean":
        labels = np.repeat(agreed[:1], len(rows))
    if "image" in params:
        noise = Noise.from_plain(params["image"])
        rows = shortened(rows, labels, images_of(client.samples)[at], noise)
    kind = Moments if params["kind"] == "gram" else ClassSums
    return kind.measure(rows, labels, exact=True, bound=BOUND, secret=client.secret)


@register_step(
    "unit-sums",
    _answer,
    discloses="a sum over few samples is nearly those samples",
    promise=_summed,
    budget="measure",
)
def _unit_sums(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    parts = [_part(client, at, params, broadcast) for at in pieces(client.samples)]
    exact = parts[0] if len(parts) == 1 else total(parts)
    classes = rows_of(params)
    if "noise" not in params:
        return exact
    noise = _agreed(Noise.from_plain(params["noise"]), params)
    if noise.colluding is not None:
        raise StepRefusedError("noise: expected a masked group, in which shares of it add up")
    layout = Layout.of(exact, classes)
    return noise.restored(layout, noise.added(layout, noise.vector(layout, exact)))

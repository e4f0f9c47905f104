"""A closed-form head on an extractor that moves: measured through it, and followed as it trains.

Fed3R-FT (Fanì et al. 2025): a client of a round measures with the extractor it received, before it
trains, and sends its new statistic less its last (counts the first time only); the server adds. So
the total is that of every client's last visit, and a client that comes again with more samples, or
a new class, changes it by exactly that. The difference of two statistics is not one of samples, so
it travels as a vector: the triangle of A, B and g.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headstart import heads
from headstart.errors import DataError
from headstart.federation.protocol import Arrays, ClientData, Step, register
from headstart.gradient.models import Model, Spec, build, flat, shaped
from headstart.gradient.steps import tensors
from headstart.heads.base import settings
from headstart.statistics.base import Summable
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.moments import Moments
from headstart.statistics.parts import Gram
from headstart.statistics.vectors import Vectors

_BLOCK = 256  # samples through the network at a time


def follow(spec: Spec, head: Any) -> Step:
    """Ask for what a head's statistic, by the broadcast extractor, has changed by since last."""
    can_follow(head)
    told = {"head": heads.name_of(head), "settings": settings(head)}
    return Step("follow", {"spec": spec.plain(), **told})


def can_follow(head: Any) -> None:
    """Refuse a head that is not solved from A, B and g alone."""
    if head.statistic is Moments:
        return
    one = head.measure(np.zeros((1, 1)), [0]) if head.statistic is ClassSums else None
    if one is None or set(one.tables) != {"sums"}:
        raise DataError(f"follow: expected a head of sums of features, got {head.name}")


def extractor_words(
    spec: Spec, params: Mapping[str, NDArray[Any]], classes: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """The extractor of a model as a broadcast."""
    return {"extractor": flat(params, build(spec).part("extractor")), "classes": classes}


def features_of(
    model: Model, params: Mapping[str, NDArray[Any]], samples: NDArray[Any]
) -> NDArray[np.float32]:
    """φ(x) of many samples; every block has one shape, so a sample's features are its own.

    Without the random features of a model that has them: its closed form applies them itself.
    """
    if model.module is None:
        return np.asarray(samples, np.float32)
    told = tensors({name: params[name] for name in model.part("extractor")})
    found = [np.zeros((0, model.extracted_dimension), np.float32)]
    with torch.no_grad():
        for at in range(0, len(samples), _BLOCK):
            block = samples[at : at + _BLOCK]
            filled = np.concatenate([block, np.repeat(block[:1], _BLOCK - len(block), axis=0)])
            made = model.extracted(told, model.inputs(filled)[None])[0]
            found.append(made[: len(block)].numpy())
    return np.concatenate(found)


@register("follow")
def _follow(client: ClientData, params: Mapping[str, Any], words: Arrays) -> Summable:
    head = heads.make(params["head"], dict(params["settings"]))
    model = build(Spec.of(params["spec"]))
    own = shaped(words["extractor"], model.part("extractor"), model.shapes)
    features = features_of(model, own, client.features)
    now = packed(head.measure(features, client.labels, secret=client.secret), words["classes"])
    change = now - client.memory.get("followed", 0.0)
    client.memory["followed"] = now
    return Vectors(change[None], np.array([1.0]))


def packed(statistic: Any, classes: NDArray[Any]) -> NDArray[np.float64]:
    """[triangle of A], B, g over all classes."""
    if not np.isin(statistic.classes, classes).all():
        raise DataError("labels: expected classes the federation knows, got others")
    at, d = np.searchsorted(classes, statistic.classes), statistic.dimension
    sums, counts = np.zeros((len(classes), d)), np.zeros(len(classes))
    sums[at], counts[at] = statistic.class_sums(), statistic.counts
    square = isinstance(statistic, Moments)
    triangle = statistic.gram()[np.triu_indices(d)] if square else np.zeros(0)
    return np.concatenate([triangle, sums.ravel(), counts])


def unpacked(
    vector: NDArray[np.float64], kind: type[Any], classes: NDArray[Any], d: int
) -> Moments | ClassSums:
    """The statistic that a packed sum stands for."""
    every = len(classes)
    counts = np.rint(vector[-every:]).astype(np.int64)
    sums = vector[-every - every * d : -every].reshape(every, d)
    shown = counts > 0
    if kind is ClassSums:
        return ClassSums(d, classes[shown], counts[shown], {"sums": sums[shown]})
    a = np.zeros((d, d))
    a[np.triu_indices(d)] = vector[: d * (d + 1) // 2]
    return Moments(d, (Gram(classes[shown], counts[shown], a, sums[shown]),))

"""A closed-form head on an extractor that moves: measured through it, and solved anew as it trains.

Fed3R-FT (Fanì et al. 2025): a client of a round measures with the extractor it received, before it
trains, and sends its new statistic less its last (counts the first time only); the server adds. So
the total is that of every client's last visit, and a client that comes again with more samples, or
a new class, changes it by exactly that. The difference of two statistics is not one of samples, so
it travels as a vector: the triangle of A, B and g.

An answer that is lost or refused must not be subtracted later. Each answer has a tag; the next
question carries the tags that the server has accepted from its cohort, and the difference is taken
against the statistic of that tag: the one that is pending, or the one before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from headstart import heads
from headstart.data.samples import ArraySamples, Samples, block_size
from headstart.errors import DataError
from headstart.federation import promises
from headstart.federation.protocol import (
    EXTRACTOR,
    Answer,
    Arrays,
    Check,
    ClientData,
    Step,
    register_step,
    register_view,
)
from headstart.federation.steps import through
from headstart.gradient.models import Model, Spec, build, flat, shaped
from headstart.gradient.steps import tensors
from headstart.heads.base import settings
from headstart.statistics.base import Summable
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.moments import Moments
from headstart.statistics.parts import Gram
from headstart.statistics.vectors import Vectors
from headstart.statistics.wire import Limits

_BLOCK, _NUMBERS = 256, 2**20  # samples through the network at a time, and the numbers in them
ACCEPTED = "accepted"


# -- a client uses the broadcast network --------------------------------------------------


def extractor_arrays(
    spec: Spec, params: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[np.float32]]:
    """The extractor of a model as a broadcast."""
    return {"extractor": flat(params, build(spec).part("extractor"))}


def features_of(
    model: Model, params: Mapping[str, NDArray[Any]], samples: Samples
) -> NDArray[np.float32]:
    """φ(x) of many samples; every block has one shape, so a sample's features are its own.

    Without the random features of a model that has them: its closed form applies them itself.
    """
    if model.module is None:
        return np.asarray(samples.read()[0], np.float32)
    received = tensors({name: params[name] for name in model.part("extractor")})
    features = [np.zeros((0, model.extracted_dimension), np.float32)]
    size = block_size(samples, _BLOCK, _NUMBERS)
    with torch.no_grad():
        for at in range(0, len(samples), size):
            block, _ = samples.read(slice(at, at + size))
            filled = np.concatenate([block, np.repeat(block[:1], size - len(block), axis=0)])
            made = model.extracted(received, model.inputs(filled)[None])[0]
            features.append(made[: len(block)].numpy())
    return np.concatenate(features)


# A client's features by the last network it looked through: several steps ask for the same ones.
_SEEN: WeakKeyDictionary[ClientData, tuple[NDArray[Any], dict[str, NDArray[Any]]]] = (
    WeakKeyDictionary()
)


@register_view
def _through(
    client: ClientData, network: Mapping[str, Any], broadcast: Arrays, *, tests: bool
) -> ClientData:
    model, vector = build(Spec.of(network)), broadcast["extractor"]
    last, seen = _SEEN.get(client, (None, {}))
    if last is not vector:
        seen = {}
        _SEEN[client] = vector, seen
    params = shaped(vector, model.part("extractor"), model.shapes)

    def features(key: str, samples: Samples) -> ArraySamples:
        if key not in seen:
            seen[key] = features_of(model, params, samples)
        return ArraySamples(seen[key], samples.labels)

    test = features("test", client.test) if tests and client.test is not None else None
    return replace(client, samples=features("train", client.samples), test=test)


# -- the running total -----------------------------------------------------------------------------


def refit(spec: Spec, head: Any, round_: int) -> Step:
    """Ask by what a head's statistic, through the broadcast extractor, differs from its last."""
    can_refit(head)
    params = {"head": heads.name_of(head), "settings": settings(head), "round": round_}
    return through(Step("refit", params), spec.plain())


def can_refit(head: Any) -> None:
    """Refuse a head that is not solved from A, B and g alone."""
    if head.statistic is Moments:
        return
    sample = head.measure(np.zeros((1, 1)), [0]) if head.statistic is ClassSums else None
    if sample is None or set(sample.tables) != {"sums"}:
        raise DataError(f"refit: expected a head of sums of features, got {head.name}")


@dataclass(frozen=True, eq=False)
class RunningTotal:
    """The server's half: the sum of every client's last accepted statistic, and its tag."""

    vector: NDArray[np.float64] | None = None
    tags: Mapping[str, int] = field(default_factory=dict)

    def broadcast(self, cohort: Iterable[str]) -> dict[str, NDArray[np.int64]]:
        """The tags that a cohort needs, in an order that names nobody."""
        tags = sorted(self.tags[name] for name in cohort if name in self.tags)
        return {ACCEPTED: np.array(tags, np.int64)}

    def accepted(self, answers: Iterable[Answer]) -> RunningTotal:
        """With these answers, each one client's."""
        vector = None if self.vector is None else self.vector.copy()
        tags = dict(self.tags)
        for answer in answers:
            (name,), change = answer.clients, answer.statistic.vector("change")
            vector = change.astype(np.float64) if vector is None else vector + change
            tags[name] = int(answer.statistic.number("tag"))
        return RunningTotal(vector, tags)

    def statistic(self, head: Any, classes: NDArray[Any], dimension: int) -> Moments | ClassSums:
        """What the head is solved from."""
        if self.vector is None:
            raise DataError("refit: expected statistics of some client, got none")
        return unpacked(self.vector, head.statistic, classes, dimension)


def _tag(secret: bytes | None, round_: int) -> int:
    """48 bits, which the wire's float64 and int64 both hold; only this client can make them."""
    mark = hashlib.sha256(b"headstart refit %d " % round_ + (secret or b"")).digest()
    return int.from_bytes(mark[:6], "big")


def _last_accepted(
    client: ClientData, round_: int, accepted: NDArray[Any]
) -> tuple[int, NDArray[np.float64]]:
    """The tag and the statistic that the server holds of this client; 0 and zeros: none."""
    held = {int(tag) for tag in accepted}
    pending, before = (int(tag) for tag in client.memory.get("refit/tags", np.zeros(2, np.int64)))
    if pending in held:
        return pending, client.memory["refit/pending"]
    if before in held:
        return before, client.memory["refit/accepted"]
    lost = next((at for at in range(-1, round_) if _tag(client.secret, at) in held), None)
    if lost is not None:
        raise DataError(
            f"refit: the server holds this client's statistic of round {lost + 1}, which it no "
            "longer has itself; begin a new training"
        )
    return 0, np.zeros(1)


def _changed(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """[triangle of A], B, g of the features that the broadcast extractor makes; a tag of 48 bits.

    How large the features of a network may be is not known.
    """
    head = heads.make(params["head"], dict(params["settings"]))
    model, every = build(Spec.of(params[EXTRACTOR])), len(broadcast["classes"])
    mapped = getattr(head, "feature_map", None)
    d = mapped.dimension if mapped else model.extracted_dimension
    size = (d * (d + 1) // 2 if head.statistic is Moments else 0) + every * d + every

    def check(answer: Vectors, limits: Limits, clients: int) -> None:
        promises.shape(answer, ("change",), ("tag",), size)
        promises.count(answer.number("tag"), clients * 2**48, "tag")

    return check


@register_step(
    "refit",
    Vectors,
    discloses="a difference of statistics is a sum of features",
    promise=_changed,
    budget="training",
)
def _refit(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    head = heads.make(params["head"], dict(params["settings"]))
    statistic = head.measure(*client.samples.read(), secret=client.secret)
    now = packed(statistic, broadcast["classes"])
    tag = _tag(client.secret, params["round"])
    before, accepted = _last_accepted(client, params["round"], broadcast[ACCEPTED])
    client.memory["refit/accepted"], client.memory["refit/pending"] = accepted, now
    client.memory["refit/tags"] = np.array([tag, before], np.int64)
    return Vectors((now - accepted)[None], np.array([float(tag)]), ("change",), ("tag",))


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

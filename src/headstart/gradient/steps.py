"""What clients are asked in training: a round's update, a gradient, local fine-tuning.

A model, a recipe and a training travel as plain values, parameters as vectors: `shared` and
`frozen`, what the server adds as `server/NAME`. What a client keeps it keeps as vectors too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart import gradient
from headstart.data.backbones.catalogue import NETWORKS
from headstart.data.samples import ArraySamples, Samples
from headstart.errors import DataError, HeadstartError
from headstart.federation.protocol import Arrays, Check, ClientData, Step, register_together
from headstart.gradient import answers as promised
from headstart.gradient import diagnose
from headstart.gradient.engine import (
    Broadcast,
    Group,
    Params,
    Trained,
    Training,
    TrainingSet,
    finite,
    local_update,
)
from headstart.gradient.models import Model, Names, Spec, build, flat, shaped
from headstart.gradient.parallel import parallel
from headstart.gradient.product import whole
from headstart.gradient.recipe import PARTS, Local, Part, Recipe
from headstart.gradient.tree import each, only
from headstart.heads.base import choice
from headstart.statistics.vectors import Vectors

DEFAULT = Training()
_SMALL = 2**23  # samples × parameters
BESIDE = "model/"  # arrays of a broadcast that are models for losses to look through
TOGETHER = 16  # clients in a group: their parameters stay in the cache
_LANE = 5  # clients in a group when the work is large: groups then train side by side, one per core


@dataclass(frozen=True)
class Job:
    """What is trained and how: the plain values every step of a training carries."""

    algorithm: str
    spec: Spec
    training: Training = DEFAULT
    train: Part = "head"
    settings: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        choice("train", self.train, PARTS)
        if self.recipe.dense and not (self.spec.network and NETWORKS[self.spec.network].stride):
            raise HeadstartError(
                f"{self.algorithm}: expected a network that gives a class per pixel (network=…), "
                f"got {self.spec.network or 'features'}"
            )
        policy = self.recipe.batch_norm  # refuses a method that it does not know
        if policy is not None and policy != self.spec.batch_norm:
            object.__setattr__(self, "spec", replace(self.spec, batch_norm=policy))

    @functools.cached_property
    def plain(self) -> dict[str, Any]:
        return {**asdict(self), "spec": self.spec.plain(), "settings": dict(self.settings or {})}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Job:
        """The job that these plain values say; that of the same object as last time is kept, for a
        simulation asks for it in every round."""
        last = _LAST[-1:]
        if last and last[0][0] is values:
            return last[0][1]
        job = cls(
            values["algorithm"],
            Spec.of(values["spec"]),
            Training(**values["training"]),
            values["train"],
            values["settings"],
        )
        _LAST[:] = [(values, job)]
        return job

    @functools.cached_property
    def model(self) -> Model:
        return build(self.spec)

    @functools.cached_property
    def recipe(self) -> Recipe:
        return gradient.make(self.algorithm, self.settings)

    @functools.cached_property
    def names(self) -> Names:
        return self.model.split(self.train, self.recipe.personal)


_LAST: list[tuple[Mapping[str, Any], Job]] = []


def update(job: Job, round_: int, *, watch: bool = False) -> Step:
    """Ask for a round's training; `watch` also asks for the loss of the received model.

    With samples from outside in the broadcast, their diagnosis is asked for as well.
    """
    return Step("update", {"job": job.plain, "round": round_, "watch": watch})


def full_gradient(job: Job, round_: int) -> Step:
    """Ask for the gradient of all samples at the received model."""
    return Step("gradient", {"job": job.plain, "round": round_})


def broadcast(
    job: Job,
    params: Mapping[str, NDArray[Any]],
    server: Mapping[str, Mapping[str, Any]],
    classes: NDArray[Any],
    models: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the arrays that clients of a round receive; refuse other classes than the model's.

    `models`: whole ones beside the model that is trained, their running statistics with them.
    """
    names = job.names
    if len(classes) != job.spec.classes:
        raise HeadstartError(
            f"classes: expected the model's {job.spec.classes}, got {len(classes)}"
        )
    state = {f"server/{name}": flat(tree, names.steered) for name, tree in server.items()}
    return {
        "shared": flat(params, names.shared),
        "personal": flat(params, names.personal),
        "frozen": flat(params, names.frozen),
        "classes": classes,
        **state,
        **{f"{BESIDE}{name}": flat(tree, names.shared) for name, tree in (models or {}).items()},
    }


# -- on a client -----------------------------------------------------------------------------------


# What a client keeps for a training: it does not change, and is sent once.
KEPT = ("personal", "frozen", "classes", f"{BESIDE}source")
NUMBERS = ("weight", "clients", "squares", "loss")  # of an update: Σw, how many, Σ‖δ‖², Σ loss
_SHOWS = "a row of {} is a sum of features"


def _named(job: Job, arrays: Arrays) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of an update's vectors and numbers."""
    rows = ("update", *sorted(job.recipe.extra_names))
    return rows, NUMBERS if _outside(arrays) is None else (*NUMBERS, *diagnose.SUMS)


def _updated(params: Mapping[str, Any], arrays: Arrays) -> Check:
    job = Job.of(params["job"])
    return promised.update_check(job, arrays, *_named(job, arrays))


@register_together(
    "update",
    Vectors,
    discloses=_SHOWS.format("an update"),
    kept=KEPT,
    fused=True,
    promise=_updated,
    budget="training",
)
def _update(
    clients: Mapping[str, ClientData], params: Mapping[str, Any], arrays: Arrays
) -> Iterator[tuple[tuple[str, ...], Vectors]]:
    """The sums of w·δ, of the extras and of NUMBERS; zeros of clients without samples.

    ‖δ‖² is that of learned parameters, and extras are about them: zeros stand for the others, and
    for what is not asked for.
    """
    job = Job.of(params["job"])
    message, at = decode_broadcast(job, arrays, params["round"]), _outside(arrays)
    rows, names = _named(job, arrays)
    answers = [_silence(job, rows, names)]

    def one(part: tuple[Sequence[str], Group]) -> Vectors:
        members, group = [clients[name] for name in part[0]], part[1]
        with torch.no_grad():
            trained = train(job, group, message, members)
            answer = _answer(job, group, message, trained, params.get("watch", False))
            if at is not None:
                seen = diagnose.diagnosed(job.model, group, message, trained, arrays, at)
                answer = Vectors(answer.vectors, np.append(answer.numbers, seen), rows, names)
            sent = {"": torch.from_numpy(answer.vectors)}
            finite(
                f"round {message.round + 1}", job.training.rate, (sent, *trained.memory.values())
            )
            keep(job, trained, members)
        return answer

    samples = sum(len(client.samples) for client in clients.values())
    size = sum(math.prod(job.model.shapes[name]) for name in job.names.moving)
    small = samples * size <= _SMALL
    side_by_side = job.model.together and not small
    most = _LANE if side_by_side else TOGETHER
    parts = list(groups(job, clients, arrays["classes"], most=most))
    with parallel(small, side_by_side and len(parts) > 1) as each_of:
        answers += each_of(one, parts)
    yield tuple(clients), _sent(answers)


def _outside(arrays: Arrays) -> NDArray[np.int64] | None:
    """Where the labels of samples from outside stand, if there are any."""
    if "outside/labels" not in arrays:
        return None
    return positions(arrays["outside/labels"], arrays["classes"])


def _answer(job: Job, group: Group, message: Broadcast, trained: Trained, watch: bool) -> Vectors:
    names, by_samples = job.names, job.recipe.weigh == "samples"
    weights = group.sizes if by_samples else np.ones_like(group.sizes)
    moved = {name: trained.params[name] - message.params[name] for name in names.shared}
    rows = [_sum(moved, torch.from_numpy(weights.astype(np.float32)))]
    for _, tree in sorted(trained.extra.items()):
        row = _sum(only(tree, names.steered))
        rows.append(np.pad(row, (0, len(rows[0]) - len(row))))
    squares = sum(_square(moved[name]) for name in names.steered if job.recipe.send_norms)
    loss = _loss(job, group, message) if watch else 0.0
    numbers = np.array([weights.sum(), len(weights), squares, loss], np.float64)
    return Vectors(np.stack(rows), numbers, ("update", *sorted(trained.extra)), NUMBERS)


def _square(array: Tensor) -> float:
    """‖array‖², summed in float64."""
    long = array.double().flatten()
    return float(torch.dot(long, long))


def _sent(answers: Sequence[Vectors]) -> Vectors:
    """Their sum, at the four bytes per number that a client sends."""
    total = Vectors.total(answers)
    return Vectors(total.vectors.astype(np.float32), total.numbers, total.rows, total.names)


def _silence(job: Job, rows: tuple[str, ...], names: tuple[str, ...]) -> Vectors:
    """What a client without samples says."""
    size = sum(math.prod(job.model.shapes[name]) for name in job.names.shared)
    return Vectors(np.zeros((len(rows), size), np.float32), np.zeros(len(names)), rows, names)


def _sum(tree: Mapping[str, Tensor], weights: Tensor | None = None) -> NDArray[np.float32]:
    """Over clients, weighted, as a vector."""
    rows = [array.flatten(1) for array in tree.values()]
    sums = [row.sum(dim=0) if weights is None else weights @ row for row in rows]
    return np.concatenate([np.zeros(0, np.float32), *(tensor.numpy() for tensor in sums)])


def _sloped(params: Mapping[str, Any], arrays: Arrays) -> Check:
    return promised.gradient_check(Job.of(params["job"]), arrays)


@register_together(
    "gradient",
    Vectors,
    discloses=_SHOWS.format("a gradient"),
    kept=KEPT,
    fused=True,
    promise=_sloped,
    budget="training",
)
def _gradient(
    clients: Mapping[str, ClientData], params: Mapping[str, Any], arrays: Arrays
) -> Iterator[tuple[tuple[str, ...], Vectors]]:
    """The sum of the clients' mean gradients at the received model, and how many they are."""
    with torch.no_grad():
        job = Job.of(params["job"])
        message, steered = decode_broadcast(job, arrays, params["round"]), job.names.steered
        called = ("gradient",), ("clients",)
        answers = [_silence(job, *called)]
        size = answers[0].vectors.shape[1]
        for ids, group in groups(job, clients, arrays["classes"]):
            at = {**message.params, **{n: message.params[n].clone() for n in job.model.statistics}}
            for _, batch in group.whole():
                client = Local(message.params, {}, message.server, job.training.rate)
                gradient = job.model.gradient(job.recipe.objective, at, steered, batch, client)
                row = _sum(each(whole, gradient))
                row = np.pad(row, (0, size - len(row)))
                answers.append(Vectors(row[None], np.zeros(1), *called))
            answers[-1] = Vectors(answers[-1].vectors, np.array([float(len(ids))]), *called)
        yield tuple(clients), _sent(answers)


# -- pieces ----------------------------------------------------------------------------------------


def decode_broadcast(job: Job, arrays: Arrays, round_: int) -> Broadcast:
    """A broadcast as trees with an axis of 1."""
    names, shapes = job.names, job.model.shapes
    params = {
        **shaped(arrays["shared"], names.shared, shapes),
        **shaped(arrays["personal"], names.personal, shapes),
        **shaped(arrays["frozen"], names.frozen, shapes),
    }
    server = {
        key.removeprefix("server/"): tensors(shaped(vector, names.steered, shapes))
        for key, vector in arrays.items()
        if key.startswith("server/")
    }
    models = {
        key.removeprefix(BESIDE): tensors(shaped(vector, names.shared, shapes))
        for key, vector in arrays.items()
        if key.startswith(BESIDE)
    }
    return Broadcast(tensors(params), {**server, **models}, round_)


def tensors(tree: Mapping[str, NDArray[Any]]) -> Params:
    """Return arrays as float32 tensors with a leading axis of one client."""
    return {
        name: torch.from_numpy(np.array(array, np.float32))[None] for name, array in tree.items()
    }


def groups(
    job: Job,
    clients: Mapping[str, ClientData],
    classes: NDArray[Any],
    *,
    oll: bool = False,
    most: int = TOGETHER,
) -> Iterator[tuple[Sequence[str], Group]]:
    """Clients with samples, as many together as the model takes, with equally much work.

    In each, the clients with the most samples are first.
    """
    size = {name: len(client.samples) for name, client in clients.items() if len(client.samples)}
    order = sorted(size, key=lambda name: -size[name])
    for ids in _groups(order, size, most if job.model.together else 1, job.training.batch):
        yield ids, Group([training_set(job, clients[name], classes, oll=oll) for name in ids])


def _groups(order: list[str], size: Mapping[str, int], most: int, batch: int) -> list[list[str]]:
    """In as few groups as there must be, each name to the one with the fewest steps so far.

    Where clients differ, a group may have more than `most` that have little to do.
    """
    if most == 1:
        return [[name] for name in order]
    if len(order) <= most:
        return [order] if order else []
    groups: list[list[str]] = [[] for _ in range(-(-len(order) // most))]
    done = [0] * len(groups)
    for name in order:
        free = (i for i, ids in enumerate(groups) if len(ids) < most + most // 2)
        at = min(free, key=done.__getitem__)
        groups[at].append(name)
        done[at] += -(-size[name] // batch)
    return groups


_KEPT: WeakKeyDictionary[ClientData, tuple[Spec, NDArray[Any], TrainingSet]] = WeakKeyDictionary()


def training_set(
    job: Job, client: ClientData, classes: NDArray[Any], *, oll: bool = False
) -> TrainingSet:
    """Made once for all rounds of a training, unless that takes another copy of the features."""
    kept = _KEPT.get(client)
    if kept and kept[0] is job.model.spec and kept[1] is classes and not oll:
        return kept[2]
    if job.model.stride is not None:
        return masked_set(job, client, oll=oll)
    y = positions(client.samples.labels, classes)
    mask = None
    if oll:
        mask = torch.full((len(classes),), -torch.inf)
        mask[torch.from_numpy(np.unique(y))] = 0.0
    samples = as_inputs(job.model, client.samples.relabelled(y))
    counts = np.bincount(y, minlength=len(classes)).astype(np.float32)
    made = TrainingSet(samples, client.secret or b"", mask, counts)
    if not oll and _no_copy(samples, client.samples):
        _KEPT[client] = job.model.spec, classes, made
    return made


def masked_set(job: Job, client: ClientData, *, oll: bool = False) -> TrainingSet:
    """Images with masks, which say the places of classes already (−1: void)."""
    if oll:
        raise HeadstartError(f"oll: expected a label per image, got masks for {job.spec.network}")
    return TrainingSet(as_inputs(job.model, client.samples), client.secret or b"")


def as_inputs(model: Model, samples: Samples) -> Samples:
    """The same samples as the model takes them: arrays are made so at once, others are so."""
    if not isinstance(samples, ArraySamples):
        return samples
    return ArraySamples(model.inputs(samples.features).numpy(), samples.labels)


def _no_copy(made: Samples, held: Samples) -> bool:
    if isinstance(made, ArraySamples) and isinstance(held, ArraySamples):
        return np.may_share_memory(made.features, held.features)
    return True


def positions(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Where each label stands among the model's classes."""
    at = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    if (classes[at] != labels).any():
        strange = labels[classes[at] != labels][0].item()
        raise DataError(f"labels: expected one of the model's {len(classes)}, got {strange!r}")
    return at.astype(np.int64)


def train(job: Job, group: Group, message: Broadcast, members: Sequence[ClientData]) -> Trained:
    """One local update of a group, from what its clients remember."""
    names, shapes = job.names, job.model.shapes
    memories = {
        kind: _recalled(kind, begin, keys, members, message, shapes)
        for kind, begin, keys in _kinds(job)
    }
    return local_update(job.model, job.recipe, job.training, names, group, message, memories)


def keep(job: Job, trained: Trained, members: Sequence[ClientData]) -> None:
    """Put what each client is to remember into its memory."""
    for kind, _, keys in _kinds(job):
        for place, client in enumerate(members):
            tree = {name: trained.memory[kind][name][place] for name in keys}
            client.memory[kind] = flat(tree, keys)


def _kinds(job: Job) -> list[tuple[str, str, tuple[str, ...]]]:
    """(name, how it begins, the parameters it is shaped like) of what a client keeps."""
    names = job.names
    whole = (*names.shared, *names.personal)
    kinds: list[tuple[str, str, tuple[str, ...]]] = [
        (kind, begin, whole if kind == "copy" else names.steered)
        for kind, begin in job.recipe.memory.items()
    ]
    return kinds + ([("personal", "received", names.personal)] if names.personal else [])


def _recalled(
    kind: str,
    begin: str,
    keys: tuple[str, ...],
    members: Sequence[ClientData],
    message: Broadcast,
    shapes: Mapping[str, tuple[int, ...]],
) -> Params:
    """The memories of a group, stacked; one that is not there begins with zeros or the received."""
    start = flat({n: message.params[n][0] for n in keys}, keys) * (begin == "received")
    vectors = [client.memory.get(kind, start) for client in members]
    trees = [shaped(vector, keys, shapes) for vector in vectors]
    return {
        name: torch.from_numpy(np.stack([tree[name] for tree in trees]).astype(np.float32))
        for name in keys
    }


def _loss(job: Job, group: Group, message: Broadcast) -> float:
    """Σ over clients of the mean loss of the received model on their samples."""
    client = Local(message.params, {}, message.server, job.training.rate)
    values = (
        job.model.value(job.recipe.objective, message.params, batch, client)
        for _, batch in group.whole()
    )
    return sum(map(float, values))

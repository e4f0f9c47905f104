"""Local fine-tuning: a client trains the model further alone, and tests it on its own part.

Full personalization (Fanì et al. 2025): SGD, or Ditto's pull towards the received model, on the
model, the extractor or the head; with OLL only the client's own classes can be predicted. The
diagnosis of their figure 12 goes beyond: hits of each epoch on an outside test set, apart for the
classes the client has and those it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.data.samples import ArraySamples, Samples, blocks
from headstart.errors import HeadstartError
from headstart.federation import promises
from headstart.federation.promises import broken
from headstart.federation.protocol import Arrays, Check, ClientData, Step, register_together
from headstart.gradient.checks import whole
from headstart.gradient.engine import Broadcast, Group, Params, descend, finite
from headstart.gradient.losses import frequencies
from headstart.gradient.models import shaped
from headstart.gradient.recipe import Local, Pass, Recipe, plain
from headstart.gradient.steps import Job, decode_broadcast, groups, positions
from headstart.gradient.terms import towards_received
from headstart.heads.base import choice, flag, number
from headstart.statistics.tally import Tally
from headstart.statistics.wire import Limits

METHODS = ("sgd", "ditto")
_BLOCK, _NUMBERS = 1024, 2**19  # samples tested at a time, and the numbers in them


@dataclass(frozen=True)
class FineTuning:
    """What a client does with the model alone."""

    epochs: int = 0
    method: str = "sgd"
    oll: bool = False
    strength: float = 0.1  # of Ditto's pull
    every_epoch: bool = False  # test after every epoch, not only before and after
    prior: bool = False  # begin with the local prior on the scores
    smoothing: float = 0.5  # of that prior

    def __post_init__(self) -> None:
        whole("epochs", self.epochs, 0)
        choice("method", self.method, METHODS)
        flag("oll", self.oll)
        number("strength", self.strength)
        flag("every_epoch", self.every_epoch)
        flag("prior", self.prior)
        number("smoothing", self.smoothing)

    @property
    def tests(self) -> int:
        """How often the model is tested: before, then after every epoch or after the last."""
        return 1 + (self.epochs if self.every_epoch else min(self.epochs, 1))


def fine_tune_locally(job: Job, tuning: FineTuning, begin: Job | None = None) -> Step:
    """Ask for [tested, outside local, outside absent] and, for each test, the hits of the three.

    `job`: what trains locally; `begin`: the training that left clients a model of their own.
    """
    params = {"job": job.plain, "begin": (begin or job).plain, "home": asdict(tuning)}
    return Step("home", params)


def results(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(samples tested, hits: a row a test); columns: own part, outside local, outside absent."""
    table = values.reshape(-1, 3)
    return table[0], table[1:]


def _tested(params: Mapping[str, Any], arrays: Arrays) -> Check:
    """Hits of every test on three parts; of those from outside the server knows the size."""
    tests, outside = FineTuning(**params["home"]).tests, len(arrays.get("outside/labels", ()))

    def check(tally: Tally, limits: Limits, clients: int) -> None:
        wide = replace(limits, samples=max(limits.samples, outside))
        promises.hits(tally, 3, tests, wide, clients)
        if tally.values[1] + tally.values[2] > outside * clients:
            raise broken(f"expected at most the {outside} samples from outside")

    return check


@register_together(
    "home",
    Tally,
    discloses="whether one sample is hit says on which side it lies of any plane",
    tests=True,
    promise=_tested,
    budget="personal",
)
def _home(
    clients: Mapping[str, ClientData], params: Mapping[str, Any], arrays: Arrays
) -> Iterator[tuple[tuple[str, ...], Tally]]:
    with torch.no_grad():
        job, begin, tuning = (
            Job.of(params["job"]),
            Job.of(params["begin"]),
            FineTuning(**params["home"]),
        )
        message = decode_broadcast(job, arrays, -1)
        silent = np.zeros(3 * (1 + tuning.tests))
        for name, client in clients.items():
            if not len(client.samples):
                yield (name,), Tally(silent)
        for ids, group in groups(job, clients, arrays["classes"], oll=tuning.oll):
            members = [clients[name] for name in ids]
            tested = [TestParts.of(client, arrays) for client in members]
            rows = [[test.sizes] for test in tested]
            owned = own_model(begin, message, members, (*job.names.moving, "head.bias"))
            if tuning.prior:
                owned["head.bias"] += _prior(job, tuning, group, arrays.get("carried"))
            for model in _stages(job, begin, tuning, group, message, owned):
                model = _framed(model, group.counts) if job.recipe.own_frame else model
                for place, test in enumerate(tested):
                    client_params = {
                        n: a[place : place + 1] if len(a) > 1 else a for n, a in model.items()
                    }
                    mask = group.mask[place] if isinstance(group.mask, Tensor) else 0.0
                    rows[place].append(test.hits(job, client_params, mask))
            for name, row in zip(ids, rows, strict=True):
                yield (name,), Tally(np.concatenate(row).astype(np.float64))


def _stages(
    job: Job, begin: Job, tuning: FineTuning, group: Group, message: Broadcast, owned: Params
) -> Iterator[Params]:
    """The models to test, one after the other; arrays have the axis of the group's clients."""
    names, moving = job.names, job.names.moving
    params = {**message.params, **owned}
    alone, first = Recipe(objective=job.recipe.objective), begin.recipe.adapt
    if first:
        received = {name: params[name].clone() for name in begin.names.moving}
        local = Local(received, {}, {}, begin.training.rate)
        how = (begin.model, alone, begin.training, begin.names)
        descend(*how, group, params, local, first, (-1,))
        finite("at home", begin.training.rate, [params])
    yield params
    received = {name: params[name].clone() for name in moving}
    local = Local(received, {}, {}, job.training.rate)
    strength = job.recipe.proximal_weight + (tuning.strength if tuning.method == "ditto" else 0.0)
    pull = towards_received(strength) if strength else plain
    one_epoch, velocity = Pass(epochs=1, correct=pull), dict[str, Tensor]()
    for epoch in range(tuning.epochs):
        descend(
            job.model,
            alone,
            job.training,
            names,
            group,
            params,
            local,
            one_epoch,
            (-2, epoch),
            velocity,
        )
        finite(f"at home, epoch {epoch + 1}", job.training.rate, [params])
        if tuning.every_epoch or epoch == tuning.epochs - 1:
            yield params


def own_model(
    job: Job, message: Broadcast, members: Sequence[ClientData], more: Iterable[str] = ()
) -> Params:
    """What moved, a copy a client: its private copy, or the shared with its personal part.

    `more`: other parameters, of which each client also gets a copy.
    """
    names, shapes = job.names, job.model.shapes
    whole = tuple(dict.fromkeys((*names.moving, *more)))
    trees = []
    for client in members:
        tree = {name: message.params[name][0].numpy() for name in whole}
        if "personal" in client.memory and names.personal:
            tree |= shaped(client.memory["personal"], names.personal, shapes)
        if "copy" in client.memory and "copy" in job.recipe.memory:
            tree |= shaped(client.memory["copy"], names.moving, shapes)
        trees.append(tree)
    return {
        name: torch.from_numpy(np.stack([tree[name] for tree in trees]).astype(np.float32))
        for name in whole
    }


def _framed(params: Params, counts: Tensor | None) -> Params:
    """FedGELA's client predicts as it trains: each row of the head by C·n_kc/n_k."""
    if counts is None:
        raise ValueError("a frame of one's own needs the clients' class counts")
    scale = frequencies(counts)
    weight = params["head.weight"] * scale[..., None]
    return {**params, "head.weight": weight, "head.bias": params["head.bias"] * scale}


def _prior(job: Job, tuning: FineTuning, group: Group, carried: NDArray[Any] | None) -> Tensor:
    """T·log p_k(c) of each client, less what the scores already carry; k×C."""
    shape = (len(group.clients), job.spec.classes)
    counts = torch.zeros(shape)
    for row, client in zip(counts, group.clients, strict=True):
        row += torch.from_numpy(np.bincount(client.y, minlength=shape[1]))
    mass = torch.where(counts > 0, counts + tuning.smoothing, 1.0)  # absent: whatever is finite
    logs = torch.log(mass / (mass * (counts > 0)).sum(dim=1, keepdim=True))
    if carried is not None:
        logs -= torch.from_numpy(np.asarray(carried, np.float32))
    return logs * job.spec.temperature


@dataclass(frozen=True)
class TestParts:
    """One client's tests: its own part, and the outside test set if it was broadcast."""

    own: Samples  # whose labels say where they stand among the classes, −1: nowhere
    outside: Samples
    present: NDArray[np.bool_]

    @classmethod
    def of(cls, client: ClientData, arrays: Arrays) -> TestParts:
        classes = arrays["classes"]
        none = client.samples.first(0)
        outside: Samples = none
        if "outside/labels" in arrays:
            outside = ArraySamples(arrays["outside/features"], arrays["outside/labels"])
        test = none if client.test is None else client.test
        present = np.isin(classes, client.samples.labels)
        return cls(_placed(test, classes), _placed(outside, classes), present)

    @property
    def sizes(self) -> NDArray[np.float64]:
        local = self._local.sum()
        return np.array([len(self.own), local, len(self.outside) - local], np.float64)

    @property
    def _local(self) -> NDArray[np.bool_]:
        """Which samples from outside are of a class that the client has."""
        at = self.outside.labels
        return np.asarray(self.present[at] & (at >= 0))

    def hits(self, job: Job, params: Params, mask: Tensor | float) -> NDArray[np.float64]:
        right = predicted(job, params, self.own, mask) == self.own.labels
        far, local = predicted(job, params, self.outside, mask) == self.outside.labels, self._local
        return np.array([right.sum(), (far & local).sum(), (far & ~local).sum()], np.float64)


def _placed(samples: Samples, classes: NDArray[Any]) -> Samples:
    """With the places of their labels; a class that nobody trained on is a mistake, at −1."""
    labels = samples.labels
    present = np.isin(labels, classes)
    at = np.full(len(labels), -1)
    at[present] = positions(labels[present], classes)
    return samples.relabelled(at)


def predicted(
    job: Job, params: Params, samples: Samples, mask: Tensor | float = 0.0
) -> NDArray[np.int64]:
    """The position of the highest logit, for each sample; parameters with an axis of 1."""
    if job.model.stride is not None:
        raise HeadstartError(
            f"network: expected one that gives a class per image, got {job.spec.network} for masks"
        )
    labels = []
    with torch.no_grad():
        for part in blocks(samples, _BLOCK, _NUMBERS):
            x = job.model.inputs(samples.read(part)[0])[None]
            logits = job.model.logits(params, job.model.features(params, x)) + mask
            labels.append(logits[0].argmax(dim=1).numpy())
    return np.concatenate([np.zeros(0, np.int64), *labels])

"""What the tests of training share: a network with batch norm, and methods by hand.

`shuffle` and `Hand` know nothing of the engine: they are the equations once more, in NumPy.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from headstart import gradient
from headstart.data.backbones.catalogue import register_network
from headstart.federation.protocol import ClientData, tallies
from headstart.federation.simulator import Simulator
from headstart.gradient import steps
from headstart.gradient.engine import Training
from headstart.gradient.local import fine_tune_locally, results
from headstart.gradient.models import Batch, Spec
from headstart.gradient.steps import Job
from headstart.testing.federations import (
    testing_scale,
    testing_turn,
)

NORMED = Spec(3, 4, network="normed")
CLASSES = np.array([2, 5, 7, 9])
JOB = Job("fedavg", Spec(4, 3), Training(rate=0.3, batch=4, decay=0.01, momentum=0.9))

# of samples with a label each; those of pixels have tests of their own
METHODS = tuple(name for name in gradient.METHODS if not gradient.make(name).dense)


@register_network(dimension=4)
class normed(nn.Module):
    """A network with batch norm."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.mix(x))).mean(dim=(2, 3))


OWN = {"normed": normed, "testing-scale": testing_scale, "testing-turn": testing_turn}


# -- by hand ---------------------------------------------------------------------------------------


def shuffle(secret, count, epochs, batch, *key):
    """The batches of a client: its secret and the key say the order of every epoch."""
    bits = hashlib.shake_256(secret + repr(key).encode()).digest(8 * epochs * count)
    drawn = struct.unpack(f"<{epochs * count}Q", bits)
    found = []
    for epoch in range(epochs):
        own = drawn[epoch * count : (epoch + 1) * count]
        order = np.array(sorted(range(count), key=own.__getitem__))
        found += [order[at : at + batch] for at in range(0, count, batch)]
    return found


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def directions(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def turning(f, v, by):
    """∂/∂f of Σ_c by_c·cos(f, v_c): by_c·(v̂_c − cos·f̂)/‖f‖; f n×d, v n×c×d or c×d, by n×c."""
    f_, v_ = directions(f)[:, None], directions(v)
    cosines = (f_ * v_).sum(axis=-1, keepdims=True)
    return (by[..., None] * (v_ - cosines * f_)).sum(axis=1) / np.linalg.norm(f, axis=1)[:, None]


def cosines_of(f, v):
    return (directions(f)[:, None] * directions(v)).sum(axis=-1)


class Slopes:
    """Every loss and term of one sample each, from its equation: (value, ∂/∂f, ∂/∂z), n rows.

    f features, z logits, v head rows, y labels, n the client's class counts; g and l are (f, z) of
    the received model and of the client's last.
    """

    def __init__(self, f, z, v, y, counts, given, last):
        self.f, self.z, self.v, self.y, self.n = f, z, v, y, counts
        self.given, self.last = given, last
        self.true = np.eye(len(v))[y]

    def _ce(self, logits):
        p = softmax(logits)
        return -np.log((p * self.true).sum(axis=1)), p - self.true

    def cross_entropy(self, term):
        value, dz = self._ce(self.z)
        return value, 0 * self.f, dz

    def dot_regression(self, term):
        c = (cosines_of(self.f, self.v) * self.true).sum(axis=1)
        return (c - 1) ** 2 / 2, turning(self.f, self.v, self.true * (c - 1)[:, None]), 0 * self.z

    def sphere(self, term):
        gap = term.scale * cosines_of(self.f, self.v) - self.true
        df = turning(self.f, self.v, 2 * term.scale * gap / len(self.v))
        return (gap**2).mean(axis=1), df, 0 * self.z

    def balanced(self, term):
        with np.errstate(divide="ignore"):
            prior = term.gamma * np.log(self.n)
        value, by = self._ce(term.scale * cosines_of(self.f, self.v) + prior)
        return value, turning(self.f, self.v, term.scale * by), 0 * self.z

    def scaled(self, term):
        by = len(self.v) * self.n / self.n.sum()
        value, dz = self._ce(by * self.z)
        return value, 0 * self.f, by * dz

    def _divergence(self, z, given, tau):
        ours, theirs = softmax(z / tau), softmax(given / tau)
        value = tau**2 * (theirs * np.log(theirs / ours)).sum(axis=1)
        return value, tau * (ours - theirs)

    def kd(self, term):
        value, dz = self._divergence(self.z, self.given[1], term.tau)
        return value, 0 * self.f, dz

    def ntd(self, term):
        value, dz = np.zeros(len(self.y)), np.zeros_like(self.z)
        for i, y in enumerate(self.y):
            others = [c for c in range(len(self.v)) if c != y]
            parts = (self.z[i : i + 1, others], self.given[1][i : i + 1, others])
            (value[i],), (dz[i, others],) = self._divergence(*parts, term.tau)
        return value, 0 * self.f, dz

    def ld(self, term):
        gap = self.z - self.given[1]
        return (gap**2).sum(axis=1), 0 * self.f, 2 * gap

    def fd(self, term):
        gap = self.f - self.given[0]
        return (gap**2).mean(axis=1), 2 * gap / self.f.shape[1], 0 * self.z

    def moon(self, term):
        others = np.stack([self.given[0], self.last[0]], axis=1)
        e = np.exp(cosines_of(self.f, others) / term.tau)
        p = e / e.sum(axis=1, keepdims=True)
        df = turning(self.f, others, (p - np.array([1, 0])) / term.tau)
        return -np.log(p[:, 0]), df, 0 * self.z

    def of(self, term):
        """At its weight."""
        found = getattr(self, term.name.replace("-", "_"))(term)
        return tuple(term.weight * part for part in found)


EXTRACTOR, HEAD = np.arange(5) < 1, np.arange(5) >= 1  # of [a, W₁, W₂, b₁, b₂]


@dataclass
class Hand:
    """A federation of the five-parameter model: float64 vectors, one algorithm a method."""

    data: Mapping[str, ClientData]
    secrets: Mapping[str, bytes]
    model: np.ndarray
    training: Training
    temperature: float
    moving: np.ndarray
    server: dict[str, np.ndarray] = field(default_factory=dict)
    memory: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)  # of a server that chooses them

    def size(self, who):
        return len(self.data[who].samples.labels)

    def gradient(self, who, at, rows=slice(None)):
        """∇ of the mean cross-entropy of softmax((W·a·x + b)/T)."""
        x, y = (
            self.data[who].samples.features[rows, 0].astype(np.float64),
            self.data[who].samples.labels[rows],
        )
        a, w, b = at[0], at[1:3], at[3:]
        slope = softmax((a * x[:, None] * w + b) / self.temperature)
        slope[np.arange(len(y)), y] -= 1
        slope /= len(y) * self.temperature
        return np.concatenate([[(slope @ w) @ x], slope.T @ (a * x), slope.sum(axis=0)])

    def batches(self, who, round_, turn=0, epochs=None):
        t = self.training
        return shuffle(self.secrets[who], self.size(who), epochs or t.epochs, t.batch, round_, turn)

    def train(self, who, round_, at, step=None, *, turn=0, epochs=None, moving=None):
        """v ← m·v + step(θ, batch) + decay·θ, θ ← θ − η·v from v = 0, and how often."""
        t, moving = self.training, self.moving if moving is None else moving
        batches, velocity = self.batches(who, round_, turn, epochs), 0.0
        for rows in batches:
            found = step(at, rows) if step else self.gradient(who, at, rows)
            velocity = t.momentum * velocity + found + t.decay * at
            at = at - t.rate * moving * velocity
        return at, len(batches)

    def mean(self, differences, weights=None):
        of = [weights[who] if weights else self.size(who) for who in differences]
        return sum(w * d for w, d in zip(of, differences.values(), strict=True)) / sum(of)

    def kept(self, who, kind, start):
        return self.memory.setdefault(who, {}).setdefault(kind, start)


@dataclass
class Turned(Hand):
    """The same on the 15 parameters [A, W, b], or its head on features of two dimensions."""

    objective: tuple = ()
    network: bool = True
    start: np.ndarray | None = None  # the received model of this round

    def through(self, at, x):
        f = x @ at[:6].reshape(2, 3).T if self.network else x
        return f, (f @ at[6:12].reshape(3, 2).T + at[12:]) / self.temperature

    def gradient(self, who, at, rows=slice(None), of=None):
        """∇ of the mean of an objective."""
        x, y = (
            self.data[who].samples.features[rows].astype(np.float64),
            self.data[who].samples.labels[rows],
        )
        v = at[6:12].reshape(3, 2)
        (f, z), counts = (
            self.through(at, x),
            np.bincount(self.data[who].samples.labels, minlength=3),
        )
        last = self.memory.get(who, {}).get("last", self.start)
        others = [self.through(model, x) for model in (self.start, last)]
        slopes = Slopes(f, z, v, y, counts, *others)
        found = [slopes.of(term) for term in of or self.objective]
        df, dz = sum(d for _, d, _ in found) / len(y), sum(d for *_, d in found) / len(y)
        dz = dz / self.temperature
        da = (df + dz @ v).T @ x if self.network else np.zeros(6)
        return np.concatenate([da.ravel(), (dz.T @ f).ravel(), dz.sum(axis=0)])


def batch_of(k=3, b=5, d=4, classes=3, mask=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(k, b, d)).astype(np.float32))
    weights = torch.from_numpy(rng.random((k, b)).astype(np.float32))
    return Batch(x, torch.from_numpy(rng.integers(classes, size=(k, b))), weights, mask)


def params_of(k=3, d=4, classes=3, seed=1):
    rng = np.random.default_rng(seed)
    made = {
        "head.weight": rng.normal(size=(k, classes, d)),
        "head.bias": rng.normal(size=(k, classes)),
    }
    return {name: torch.from_numpy(array.astype(np.float32)) for name, array in made.items()}


def asked(job, home, data, params, *, outside=None, together=True, begin_with=None):
    broadcast = steps.broadcast(job, params, {}, CLASSES)
    if outside is not None:
        broadcast |= {"outside/features": outside[0], "outside/labels": outside[1]}
    sim = Simulator(data, seed=6, together=together)
    step = fine_tune_locally(job, home, *([begin_with] if begin_with else []))
    return {who: results(values) for who, values in tallies(sim, step, broadcast).items()}


def head_scores(params, x):
    return x @ params["head.weight"].T + params["head.bias"]


def alike(cohort):
    return dict.fromkeys(cohort, 1.0)

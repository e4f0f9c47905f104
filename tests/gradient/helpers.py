"""What the tests of training share: small federations, runs, and networks small enough to follow.

`shuffle` and `Hand` know nothing of the engine: they are the equations once more, in NumPy.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import nn

from headstart import gradient
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.gradient.engine import Training
from headstart.gradient.loop import begin, rounds
from headstart.gradient.models import Spec, initial
from headstart.gradient.steps import Job

AWKWARD = (0, 1, 30, 2, 7, 13, 1, 0, 5, 14, 21, 3, 8, 6, 4, 9, 11, 2, 16, 10)  # more than a group


class Scale(nn.Module):
    """φ(x) = a·x₁: with a head of two classes on one dimension, five parameters in all."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.5]))

    def forward(self, x):
        return x[:, :1, 0, 0] * self.scale


class Normed(nn.Module):
    """A network with batch norm."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.mix(x))).mean(dim=(2, 3))


OWN = {"scale": Scale, "normed": Normed}


def own_modules(real):
    """`module_of` that also knows the networks above."""

    def module_of(name):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return OWN[name]() if name in OWN else real(name)

    return module_of


def vectors(sizes, dimension=3, classes=3, seed=0, tests=0):
    """Clients with features drawn around a centre a class."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, dimension))
    data = {}
    for k, n in enumerate(sizes):
        y = rng.integers(classes, size=n + tests)
        x = (centres[y] + rng.normal(size=(n + tests, dimension))).astype(np.float32)
        own = {"test_features": x[n:], "test_labels": y[n:]} if tests else {}
        data[f"c{k:02d}"] = ClientData(x[:n], y[:n], **own)
    return data


def images(sizes, side=8, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    return {
        f"c{k:02d}": ClientData(
            rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8), rng.integers(classes, size=n)
        )
        for k, n in enumerate(sizes)
    }


def fresh(data):
    """The same clients, who remember nothing."""
    return {name: replace(client, memory={}) for name, client in data.items()}


def copied(data):
    """The same clients and a copy of what they remember."""
    return {
        name: replace(client, memory={k: v.copy() for k, v in client.memory.items()})
        for name, client in data.items()
    }


SHORT = Training(rate=0.2, epochs=2, batch=7, decay=0.01, momentum=0.5)


def problem(name, settings=None, sizes=None, training=SHORT):
    """A job for any method, and clients for it: features, or a network where a part is personal."""
    personal = gradient.make(name, settings).personal
    networked = personal in ("head", "extractor")
    sizes = sizes or (AWKWARD[:9] if networked else AWKWARD)  # a network trains one at a time
    settings = {"head_epochs": 2} if name == "fedrep" and not settings else settings
    if networked:
        job = Job(name, Spec(2, 1, network="scale"), training, "model", settings)
        return job, vectors(sizes, 3, 2)
    return Job(name, Spec(3, 3), training, "head", settings), vectors(sizes)


def run(job, data, plan, *, state=None, federation=None, **how):
    """(the last state, what clients remember)."""
    sim = federation or Simulator(fresh(data), **how)
    classes = np.arange(job.spec.classes)
    state = state or begin(job, initial(job.model, None, 5))
    for last in rounds(job, plan, sim, classes, state):
        state = last
    return state, {name: client.memory for name, client in sim.data.items()}


def everything(state, memories):
    """All numbers of a training, by name."""
    return {
        **{f"params/{n}": a for n, a in state.params.items()},
        **{f"server/{k}/{n}": a for k, tree in state.server.items() for n, a in tree.items()},
        **{f"{who}/{k}": a for who, own in memories.items() for k, a in own.items()},
    }


def assert_same(one, two):
    """Bit for bit."""
    assert one.keys() == two.keys()
    for name, array in one.items():
        assert np.array_equal(array, two[name]), name


def assert_close(one, two, tolerance=1e-6):
    """Relative to the largest number of each array (at least 1)."""
    assert one.keys() == two.keys()
    for name, array in one.items():
        scale = max(1.0, float(np.abs(two[name]).max(initial=0.0)))
        gap = float(np.abs(np.asarray(array) - two[name]).max(initial=0.0))
        assert gap <= tolerance * scale, (name, gap, scale)


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
        return len(self.data[who].labels)

    def gradient(self, who, at, rows=slice(None)):
        """∇ of the mean cross-entropy of softmax((W·a·x + b)/T)."""
        x, y = self.data[who].features[rows, 0].astype(np.float64), self.data[who].labels[rows]
        a, w, b = at[0], at[1:3], at[3:]
        slope = softmax((a * x[:, None] * w + b) / self.temperature)
        slope[np.arange(len(y)), y] -= 1
        slope /= len(y) * self.temperature
        return np.concatenate([[(slope @ w) @ x], slope.T @ (a * x), slope.sum(axis=0)])

    def batches(self, who, round_, turn=0, epochs=None):
        t = self.training
        return shuffle(self.secrets[who], self.size(who), epochs or t.epochs, t.batch, round_, turn)

    def train(self, who, round_, at, step=None, *, turn=0, epochs=None, moving=None):
        """θ ← θ − η(step(θ, batch) + decay·θ), and how often."""
        t, moving = self.training, self.moving if moving is None else moving
        batches = self.batches(who, round_, turn, epochs)
        for rows in batches:
            found = step(at, rows) if step else self.gradient(who, at, rows)
            at = at - t.rate * moving * (found + t.decay * at)
        return at, len(batches)

    def mean(self, differences, weights=None):
        of = [weights[who] if weights else self.size(who) for who in differences]
        return sum(w * d for w, d in zip(of, differences.values(), strict=True)) / sum(of)

    def kept(self, who, kind, start):
        return self.memory.setdefault(who, {}).setdefault(kind, start)

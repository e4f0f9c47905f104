"""Small federations and networks on which any training method can be followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headstart.data.backbones.catalogue import register_network
from headstart.data.samples import ArraySamples
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan, State, begin, rounds
from headstart.gradient.models import initial
from headstart.gradient.steps import Job
from headstart.testing.require import require

Arrays = dict[str, NDArray[Any]]
Clients = Mapping[str, ClientData]
Memories = dict[str, Arrays]
AWKWARD = (0, 1, 30, 2, 7, 13, 1, 0, 5, 14, 21, 3, 8, 6, 4, 9, 11, 2, 16, 10)  # more than a group
SHORT = Training(rate=0.2, epochs=2, batch=7, decay=0.01, momentum=0.5)


@register_network(dimension=1)
class testing_scale(nn.Module):
    """φ(x) = a·x₁: with a head of two classes on one dimension, five parameters in all."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.5]))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :1] * self.scale


@register_network(dimension=2)
class testing_turn(nn.Module):
    """φ(x) = A·x, A 2×3: features have a direction; with a head of three classes, 15 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.tensor([[0.9, -0.4, 0.3], [0.2, 0.7, -0.5]]))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.turn.T


def vectors(
    sizes: Sequence[int], dimension: int = 3, classes: int = 3, seed: int = 0, tests: int = 0
) -> dict[str, ClientData]:
    """Clients with features drawn around a centre per class; `tests` more samples to test each."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, dimension))
    data = {}
    for k, n in enumerate(sizes):
        y = rng.integers(classes, size=n + tests)
        x = (centres[y] + rng.normal(size=(n + tests, dimension))).astype(np.float32)
        test = ArraySamples(x[n:], y[n:]) if tests else None
        data[f"c{k:02d}"] = ClientData(ArraySamples(x[:n], y[:n]), test)
    return data


def images(
    sizes: Sequence[int], side: int = 8, classes: int = 3, seed: int = 0
) -> dict[str, ClientData]:
    """Clients with images of noise, n×3×h×w bytes."""
    rng = np.random.default_rng(seed)
    data = {}
    for k, n in enumerate(sizes):
        x = rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8).transpose(0, 3, 1, 2)
        data[f"c{k:02d}"] = ClientData(ArraySamples(x, rng.integers(classes, size=n)))
    return data


def fresh(data: Clients) -> dict[str, ClientData]:
    """The same clients, who remember nothing."""
    return {name: replace(client, memory={}) for name, client in data.items()}


def run(
    job: Job,
    data: Clients,
    plan: Plan,
    *,
    state: State | None = None,
    federation: Any = None,
    **how: Any,
) -> tuple[State, Memories]:
    """The last state, and what clients remember."""
    federation = federation or Simulator(fresh(data), **how)
    state = state or begin(job, initial(job.model, None, 5))
    for last in rounds(job, plan, federation, np.arange(job.spec.classes), state):
        state = last
    return state, {name: client.memory for name, client in federation.data.items()}


def everything(state: State, memories: Memories) -> Arrays:
    """All numbers of a training, by name."""
    return {
        **{f"params/{n}": a for n, a in state.params.items()},
        **{f"server/{k}/{n}": a for k, tree in state.server.items() for n, a in tree.items()},
        **{f"{who}/{k}": a for who, memory in memories.items() for k, a in memory.items()},
    }


def identical(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two mappings hold the same arrays, bit for bit."""
    return left.keys() == right.keys() and all(
        np.array_equal(left[name], right[name]) for name in left
    )


def assert_same(
    left: Mapping[str, Any], right: Mapping[str, Any], what: str = "two trainings"
) -> None:
    """Bit for bit."""
    _assert_named(left, right, what)
    for name, array in left.items():
        require(np.array_equal(array, right[name]), f"{what}: {name}: expected the same bits")


def assert_close(
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    tolerance: float = 1e-6,
    what: str = "two trainings",
) -> None:
    """Relative to the largest number of each array (at least 1)."""
    _assert_named(left, right, what)
    for name, array in left.items():
        scale = max(1.0, float(np.abs(right[name]).max(initial=0.0)))
        gap = float(np.abs(np.asarray(array) - right[name]).max(initial=0.0))
        require(gap <= tolerance * scale, f"{what}: {name}: they differ by {gap:.3g}")


def _assert_named(left: Mapping[str, Any], right: Mapping[str, Any], what: str) -> None:
    strange = set(left) ^ set(right)
    require(not strange, f"{what}: expected the same arrays, got only once: {sorted(strange)}")

"""One gradient algorithm is what it changes. `Recipe` names the places; FedAvg changes nothing.

A client of round t receives the model θᵗ, trains it for a few passes over its samples,
θ ← θ − η·step, and sends its weighted difference w·(θ − θᵗ). The server steps along the mean.

    objective     what is descended on a batch: losses and terms, weighted
    trains        the only part that it trains, where the other stays as it is
    personal      the part of the model that stays with each client
    batch_norm    "local": so do the running statistics of batch norm, whatever the model says
    passes        which parts move, in which order
    correct       from the gradient to the step
    memory        what a client keeps between rounds, and how it begins
    remember      what it keeps after training
    extra         what it sends besides its difference (sums, like everything)
    send_norms    whether it sends ‖δ‖² as well
    needs_full_gradient  whether the mean gradient at θᵗ is asked for first
    server        the server's step, which sees sums only
    broadcast_state  what of the server's state (and "gradient", the full one) clients receive
    dense         whether its losses are of pixels, so that it needs a dense network
    window        the model that is evaluated is the mean of so many last ones

Trees on a client carry a leading axis, the clients trained together; a recipe need not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from headstart.gradient.tree import Tree, add, spread
from headstart.heads.base import number

Part = Literal["model", "extractor", "head"]
PARTS: tuple[Part, ...] = ("model", "extractor", "head")


@dataclass(frozen=True)
class Term:
    """A loss or a term by name (`objectives`), at a weight; it names which settings it has."""

    name: str
    weight: float = 1.0
    tau: float = 1.0
    scale: float = 1.0
    gamma: float = 1.0
    settings: tuple[tuple[str, Any], ...] = ()  # others that the loss has, by name


Objective = tuple[Term, ...]
CROSS_ENTROPY: Objective = (Term("cross-entropy"),)


class Gradient(Protocol):
    """∇ of the mean objective of this batch, anywhere, or of another (`of`).

    `half` 0 or 1 is every other sample of the batch.
    """

    def __call__(
        self, at: Tree, half: int | None = None, of: Objective | None = None
    ) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Local:
    """What a client knows while it trains: the received model, its memory, the server's state."""

    received: Tree
    memory: Mapping[str, Tree]
    server: Mapping[str, Tree]
    rate: float

    def first(self, count: int) -> Local:
        """Of the first `count` clients trained together (an axis of 1 is all clients' own)."""

        def cut(tree: Tree) -> Tree:
            return {name: array[:count] for name, array in tree.items()}

        memory = {name: cut(tree) for name, tree in self.memory.items()}
        server = {name: cut(tree) for name, tree in self.server.items()}
        return Local(cut(self.received), memory, server, self.rate)


@dataclass(frozen=True)
class LocalResult:
    """What a client knows when it has trained: also its model, and how many steps that took.

    `steps`: as many as would lead as far without momentum, an axis of clients.
    """

    params: Tree
    local: Local
    steps: Any

    def by_step(self, tree: Tree) -> dict[str, Any]:
        """tree/(T′η), for a client's own number of steps T′."""
        return {
            name: array / (spread(self.steps, array) * self.local.rate)
            for name, array in tree.items()
        }


Correction = Callable[[Gradient, Tree, Local], dict[str, Any]]
Leaving = Callable[[LocalResult], dict[str, Tree]]


@dataclass(frozen=True)
class Pass:
    """Passes over the samples in which some parts move.

    `moves`: "all" that trains, only the "personal" or the "shared" of it, or a private "copy" of
    the whole, which leaves the rest as it is.
    """

    moves: Literal["all", "personal", "shared", "copy"] = "all"
    epochs: int | None = None  # None: as many as the training says
    correct: Correction | None = None  # None: the recipe's


@dataclass(frozen=True)
class RoundAggregate:
    """All that a server step sees of a round."""

    mean: Tree  # Σwδ/Σw
    squares: float  # Σ‖δ‖², where the recipe sends norms
    extra: Mapping[str, Tree]
    count: int  # clients of this round
    clients: int  # of the federation


class Server(Protocol):
    """The server's step: from the shared parameters and its state to the next ones."""

    def start(self, params: Tree) -> dict[str, Tree]: ...
    def step(
        self, params: Tree, state: Mapping[str, Tree], sums: RoundAggregate
    ) -> tuple[dict[str, Any], dict[str, Tree]]: ...


@dataclass(frozen=True)
class Average:
    """θ ← θ + η_g·mean δ."""

    rate: float = 1.0

    def __post_init__(self) -> None:
        number("server_rate", self.rate, strict=True)

    def start(self, params: Tree) -> dict[str, Tree]:
        return {}

    def step(
        self, params: Tree, state: Mapping[str, Tree], sums: RoundAggregate
    ) -> tuple[dict[str, Any], dict[str, Tree]]:
        return add(params, sums.mean, self.rate), dict(state)


def plain(gradient: Gradient, params: Tree, local: Local) -> dict[str, Any]:
    """Return the gradient as it is: the correction of plain SGD."""
    return gradient(params)


def nothing(end: LocalResult) -> dict[str, Tree]:
    """Return no arrays: a method that remembers or sends nothing more."""
    return {}


@dataclass(frozen=True)
class Recipe:
    """What a method changes of FedAvg; every field has FedAvg's value as its default."""

    objective: Objective = CROSS_ENTROPY
    trains: Part | None = None
    directions: bool = False  # a head counts by the directions of its rows alone
    own_frame: bool = False  # a client's rows are scaled by its class frequencies, in its test too
    rate: float = 0.1  # the learning rate from nothing, for who does not give one
    inner_rates: Mapping[str, float] = field(default_factory=dict)  # settings that are rates too
    personal: Part | None = None
    batch_norm: Literal["local"] | None = None
    passes: tuple[Pass, ...] = (Pass(),)
    correct: Correction = plain
    proximal_weight: float = 0.0  # of the Prox term in it, with which clients fine-tune locally
    memory: Mapping[str, Literal["zeros", "received"]] = field(default_factory=dict)
    remember: Leaving = nothing
    extra: Leaving = nothing
    extra_names: tuple[str, ...] = ()
    send_norms: bool = False
    needs_full_gradient: bool = False
    server: Server = Average()
    broadcast_state: tuple[str, ...] = ()
    weigh: Literal["samples", "clients"] = "samples"
    window: int = 1
    dense: bool = False
    adapt: Pass | None = None  # what a client does to its model before it uses it

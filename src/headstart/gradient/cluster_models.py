"""LADD's server: a model per cluster, some of it shared by all, and a teacher for each.

The model of cluster s is θ_s = u ∪ v_s. A round asks for one total per cluster, Σwδ and Σw of its
sampled clients, which train from θ_s:

    u   ← u + Σ_s Σwδ/Σ_s Σw        of all sampled clients
    v_s ← v_s + Σwδ/Σw              of those of cluster s; without any, it stays as it is

The authors' program overwrites a cluster that had no client in a round with the mean of the others.
With one cluster, or with nothing of its own, this is FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headstart.errors import HeadstartError
from headstart.gradient.checks import whole
from headstart.gradient.models import Model
from headstart.gradient.tree import Tree, add, only, scaled
from headstart.heads.base import choice

Own = Literal["all", "head", "extractor", "batch-norm", "none"]
OWN: tuple[Own, ...] = ("all", "head", "extractor", "batch-norm", "none")


def own_names(model: Model, own: Own) -> tuple[str, ...]:
    """The parameters that each cluster has for itself, by what is said of them."""
    choice("own", own, OWN)
    if own == "none":
        return ()
    if own == "batch-norm":
        layers = {name.rpartition(".")[0] for name in model.statistics}
        return tuple(name for name in model.shapes if name.rpartition(".")[0] in layers)
    return model.part("model" if own == "all" else own)


@dataclass(frozen=True)
class ClusterTotal:
    """Of the sampled clients of one cluster: Σwδ and Σw."""

    moved: Tree
    weight: float


@dataclass(frozen=True)
class ClusterModels:
    """The shared part of all models, and what each cluster has for itself."""

    shared: Tree
    own: Mapping[int, Tree]

    @classmethod
    def begin(cls, params: Tree, clusters: int, names: tuple[str, ...]) -> ClusterModels:
        """All clusters begin with the same model; `names` are each cluster's own."""
        whole("clusters", clusters)
        shared = only(params, (name for name in params if name not in names))
        return cls(shared, {s: only(params, names) for s in range(clusters)})

    def of(self, cluster: int) -> dict[str, Any]:
        """θ_s, from which the clients of a cluster train."""
        return {**self.shared, **self.own[cluster]}

    def after(self, totals: Mapping[int, ClusterTotal]) -> ClusterModels:
        """The models after a round."""
        weight = sum(total.weight for total in totals.values())
        if not weight > 0 or any(not total.weight > 0 for total in totals.values()):
            raise HeadstartError("round: expected clients with samples, got none")
        moved = [total.moved for total in totals.values()]
        every = {name: sum(tree[name] for tree in moved) for name in self.shared}
        own = dict(self.own)
        for cluster, total in totals.items():
            own[cluster] = _stepped(own[cluster], total.moved, total.weight)
        return ClusterModels(_stepped(self.shared, every, weight), own)

    def mean(self) -> dict[str, Any]:
        """One model for who belongs to no cluster: the mean of all."""
        count = len(self.own)
        models = [self.of(cluster) for cluster in self.own]
        return {
            name: _single(sum(np.asarray(model[name], np.float64) for model in models) / count)
            for name in models[0]
        }


@dataclass(frozen=True)
class AveragedTeacher:
    """The model whose pseudo-labels clients learn from, renewed every `every` rounds.

    Before round `start` it is the model itself; from then on the mean of the models so far,
    θ̂ ← (θ̂·τ + θ)/(τ + 1) with τ = (t − start)/every, running statistics with it.
    """

    start: int
    every: int = 1

    def __post_init__(self) -> None:
        whole("start", self.start, 0)
        whole("every", self.every)

    def after(self, teacher: Tree, params: Tree, round_: int) -> Tree:
        """The teacher after so many rounds."""
        if round_ % self.every:
            return teacher
        if round_ < self.start:
            return dict(params)
        past = (round_ - self.start) // self.every
        mixed = scaled(add(scaled(teacher, float(past)), params), 1 / (past + 1))
        return {name: _single(array) for name, array in mixed.items()}


def _stepped(params: Tree, moved: Tree, weight: float) -> dict[str, Any]:
    """θ + Σwδ/Σw."""
    return {name: _single(array + moved[name] / weight) for name, array in params.items()}


def _single(array: Any) -> Any:
    return np.asarray(array, np.float32)

"""LADD's rounds: a model and a teacher per cluster, one total per cluster and round.

The sampled clients of cluster s receive θ_s, its teacher θ̂_s (nothing before the averaging begins,
when it is θ_s itself) and, once, the source model f⁰. The server sees one sum per cluster, so with
secure sums a cluster is a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import HeadstartError
from headstart.federation.protocol import Federation
from headstart.gradient import steps
from headstart.gradient.cluster_models import (
    AveragedTeacher,
    ClusterModels,
    ClusterTotal,
    Own,
    own_names,
)
from headstart.gradient.clusters import Clusters
from headstart.gradient.loop import Plan, finite_params
from headstart.gradient.models import shaped
from headstart.gradient.objectives import beside_of
from headstart.gradient.steps import Job
from headstart.gradient.tree import Tree, only

NEVER = 10**9  # a round that does not come


@dataclass(frozen=True)
class Clustering:
    """Who is in which cluster, what of the model each has for itself, and when teachers average."""

    of: Mapping[str, int]
    own: Own = "all"
    teacher: AveragedTeacher = field(default_factory=lambda: AveragedTeacher(NEVER))

    @classmethod
    def by_style(cls, clusters: Clusters, **how: Any) -> Clustering:
        return cls(clusters.of, **how)

    @property
    def count(self) -> int:
        return max(self.of.values()) + 1

    def parts(self, cohort: list[str]) -> dict[int, list[str]]:
        """The sampled clients of each cluster that has some."""
        missing = [name for name in cohort if name not in self.of]
        if missing:
            raise HeadstartError(f"clusters: expected one for each client, none for {missing[0]}")
        found: dict[int, list[str]] = {}
        for name in cohort:
            found.setdefault(self.of[name], []).append(name)
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class ClusteredState:
    """Where such a training stands."""

    models: ClusterModels
    teachers: Mapping[int, Tree]
    source: Tree  # f⁰: all parameters of the model that the rounds began with
    round: int = 0
    up: int = 0
    down: int = 0

    def params(self, cluster: int) -> dict[str, NDArray[Any]]:
        """The whole model of a cluster, what does not move with it."""
        return {**self.source, **self.models.of(cluster)}

    def mean(self) -> dict[str, NDArray[Any]]:
        """One model for who belongs to no cluster."""
        return {**self.source, **self.models.mean()}


def begin_clustered(job: Job, clustering: Clustering, params: Tree) -> ClusteredState:
    """Every cluster begins with the model of the source, and so does its teacher."""
    shared = job.names.shared
    if job.names.personal:
        raise HeadstartError("clusters: expected a model that is shared, got a personal part")
    own = tuple(name for name in own_names(job.model, clustering.own) if name in shared)
    models = ClusterModels.begin(only(params, shared), clustering.count, own)
    teachers = {cluster: models.of(cluster) for cluster in models.own}
    return ClusteredState(models, teachers, dict(params))


def clustered_rounds(
    job: Job,
    plan: Plan,
    federation: Federation,
    classes: NDArray[Any],
    clustering: Clustering,
    state: ClusteredState,
) -> Iterator[ClusteredState]:
    """The state after every round, from where it stands to the end of the plan."""
    while state.round < plan.rounds:
        state = _one_round(job, plan, federation, classes, clustering, state)
        yield state


def _one_round(
    job: Job,
    plan: Plan,
    federation: Federation,
    classes: NDArray[Any],
    clustering: Clustering,
    state: ClusteredState,
) -> ClusteredState:
    totals: dict[int, ClusterTotal] = {}
    up, down = state.up, state.down
    asked = steps.update(job, state.round)
    for cluster, cohort in clustering.parts(plan.cohort(federation.clients, state.round)).items():
        arrays = steps.broadcast(
            job, state.params(cluster), {}, classes, _beside(job, clustering, state, cluster)
        )
        answer = federation.total(asked, arrays, cohort)
        moved = shaped(answer.statistic.vector("update"), job.names.shared, job.model.shapes)
        totals[cluster] = ClusterTotal(moved, answer.statistic.number("weight"))
        up, down = up + answer.up, down + answer.down
    models = state.models.after(totals)
    for cluster in totals:
        finite_params(models.of(cluster), state.round, job.training.rate)
    teachers = {
        cluster: clustering.teacher.after(
            state.teachers[cluster], models.of(cluster), state.round + 1
        )
        for cluster in models.own
    }
    return ClusteredState(models, teachers, state.source, state.round + 1, up, down)


def _beside(
    job: Job, clustering: Clustering, state: ClusteredState, cluster: int
) -> dict[str, Tree]:
    """The models that a cluster's clients look through: its teacher, and the source.

    A teacher that is the received model itself is not sent again.
    """
    wanted = beside_of(job.recipe.objective)
    found: dict[str, Tree] = {}
    teacher, own = state.teachers[cluster], state.models.of(cluster)
    if "teacher" in wanted and any(not np.array_equal(teacher[n], own[n]) for n in own):
        found["teacher"] = teacher
    if "source" in wanted:
        found["source"] = state.source
    return found

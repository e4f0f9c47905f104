"""Runs with differential privacy: their plan, what cannot be run so, and what a result may say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headstart.data.samples import Samples
from headstart.errors import HeadstartError
from headstart.federation.protocol import ClientData, Federation
from headstart.pipeline.config import PrivateConfig, RunConfig
from headstart.pipeline.pipeline import Pipeline
from headstart.privacy.budget import Budget
from headstart.privacy.differential import HEADS, SIGNAL, PrivacyPlan, Private
from headstart.results import DataSummary, SeedResult

if TYPE_CHECKING:
    from headstart.pipeline.context import PipelineContext

_GROUP = 256  # members that a masked group can have at most


def private_federation(
    inner: Federation, private: PrivateConfig, clients: Mapping[str, ClientData], test: Samples
) -> Private:
    """The federation behind noise.

    What is not said is what a simulation was planned with: as many samples as there are, and the
    classes of the server's own test set.
    """
    stated = private.model_dump(exclude_none=True)
    planned = {
        "classes": np.unique(test.labels),
        "samples": sum(len(client.samples) for client in clients.values()),
        "dimension": test.shape[0] if len(test.shape) == 1 else None,
    }
    return Private(inner, PrivacyPlan(**{**planned, **stated}))


def masked_size(config: RunConfig, clients: int) -> int | None:
    """Clients in a masked group: as said, or, where members add the noise, as many as can be."""
    size = config.federation.group_size
    if size is None and config.private is not None and config.private.trust == "secure-sum":
        return min(clients, _GROUP)  # noise is that of a group: one large group has the least
    return size


def check_private(config: RunConfig, pipeline: Pipeline) -> None:
    """Refuse what would leave the guarantee or be ruined by noise, before anything runs."""
    if config.private is None:
        return
    if len(pipeline.phases) > 1:
        second = pipeline.phases[1]
        raise HeadstartError(
            f"private: expected a head alone, got {second} after it, whose messages no noise hides"
        )
    if pipeline.init.name not in HEADS:
        raise HeadstartError(
            f"private: expected a head that is solved from noisy sums ({', '.join(HEADS)}), "
            f"got {pipeline.init.name}"
        )
    if config.network:
        raise HeadstartError("private: expected features that stay as they are, got network")


def with_budget(federation: Federation, path: Path) -> Federation:
    """The same with a budget that outlives this process; each folder is a release of its own."""
    assert isinstance(federation, Private)
    return replace(federation, budget=Budget(federation.plan.mu, path / "budget"))


def note_head(context: PipelineContext, name: str) -> None:
    """Say so where the rule of thumb would have chosen the other head."""
    federation = context.federation
    assert isinstance(federation, Private)
    dimension, clients = context.dimension, len(federation.clients)
    better = federation.plan.better_head(dimension, clients)
    if (better == "fedncm") != (name == "fedncm"):
        signal = federation.plan.signal(dimension, clients)
        context.note(
            f"By a rule of thumb {better} is the better head here: a class's sum stands "
            f"{signal:.2g} times above its noise, and ridge regression needs {SIGNAL:g}."
        )


def public(result: SeedResult, plan: PrivacyPlan) -> SeedResult:
    """Without exact counts and digests of data, which no noise covers."""
    data = DataSummary(
        result.data.name,
        plan.samples,
        result.data.test,
        result.data.dimension,
        tuple(str(label) for label in plan.labels.tolist()),
    )
    split = replace(result.split, summary={}, counts=None)
    head = result.head and replace(result.head, arrivals=())  # a release comes once
    return replace(result, data=data, split=split, head=head, clients=(), reveals={}, pooled=None)

"""Runs with differential privacy: their plan, what cannot be run so, and what a result may say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.data.cells import CellSamples
from headstart.data.samples import Samples, rows_per_image, units
from headstart.errors import HeadstartError
from headstart.federation.protocol import ClientData, Federation
from headstart.labels import Labels
from headstart.pipeline.config import PrivateConfig, RunConfig, read_config
from headstart.pipeline.pipeline import Pipeline
from headstart.privacy.accountant import epsilon_of, mu_of
from headstart.privacy.budget import Budget
from headstart.privacy.differential import Private
from headstart.privacy.plan import HEADS, SIGNAL, PrivacyPlan
from headstart.privacy.sensitivity import BOUND
from headstart.results import DataSummary, SeedResult

if TYPE_CHECKING:
    from headstart.pipeline.context import PipelineContext

LEAST = 1e-4  # of μ: what is left by rounding is nothing
_GROUP = 256  # members that a masked group can have at most


def private_federation(
    inner: Federation, private: PrivateConfig, clients: Mapping[str, ClientData], test: Samples
) -> Private:
    """The federation behind noise.

    What is not said is what a simulation was planned with: as many samples as there are, and the
    classes of the server's own test set (of scenes, those that masks can show).
    """
    if isinstance(test, CellSamples) and private.unit == "sample":
        raise HeadstartError(
            "unit: expected image or client, for a sample of scenes is a cell, got sample; give "
            "--unit image"
        )
    by_image = private.unit == "image"
    count = units if by_image else len
    stated = private.model_dump(exclude_none=True)
    planned = {
        "classes": np.array(test.data.names) if isinstance(test, CellSamples) else test.labels,
        "samples": sum(count(client.samples) for client in clients.values()),
        "dimension": test.shape[0] if len(test.shape) == 1 else None,
        "rows": rows_per_image(test) if by_image else 1,
    }
    if private.classes is not None:
        stated["classes"] = _classes(private.classes, test)
    for name in ("mean", "projection"):
        if isinstance(stated.get(name), str):
            stated[name] = _array(name, stated[name])
    return Private(inner, PrivacyPlan(**{**planned, **stated}))


def _classes(agreed: list[int] | list[str], test: Samples) -> Labels:
    """The list, of the labels' own kind."""
    try:
        return np.array(agreed, str if test.labels.dtype.kind == "U" else np.int64)
    except (ValueError, OverflowError):
        raise HeadstartError(
            "classes: expected whole numbers, which the labels are, got others"
        ) from None


def _array(name: str, path: str) -> Any:
    """A public array of a .npy file."""
    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        why = error.strerror or "it is no array"
        raise HeadstartError(f"{name}: cannot read {path}: {why}") from None
    except (ValueError, EOFError):
        raise HeadstartError(f"{name}: expected an array in a .npy file, got {path}") from None


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
    if config.private.residual and pipeline.init.name != "fedncm":
        raise HeadstartError(
            f"residual: expected class means (fedncm), which it corrects, got {pipeline.init.name}"
        )
    if "temperature" in config.model_fields_set and config.temperature != "training":
        raise HeadstartError(
            f"temperature: expected none with private, got {config.temperature!r}: a private head "
            "takes features of any length, and its scores have no scale"
        )


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
    """Without exact counts and digests of data, which no noise covers.

    A bound that was taken from the features is none of this release's, whose lattice has its own.
    """
    data = DataSummary(
        result.data.name,
        plan.samples,
        result.data.test,
        result.data.dimension,
        tuple(str(label) for label in plan.labels.tolist()),
    )
    split = replace(result.split, summary={}, counts=None)
    head = result.head and replace(result.head, arrivals=())  # a release comes once
    return replace(
        result,
        data=data,
        split=split,
        settings={**result.settings, "bound": BOUND},
        head=head,
        clients=(),
        reveals={},
        pooled=None,
    )


@dataclass(frozen=True)
class Spending:
    """What a budget's folder tells: releases as (request, μ, ε alone, state); all at one δ."""

    releases: tuple[tuple[str, float, float, str], ...]
    mu: float
    epsilon: float
    delta: float
    promised: tuple[float, float] | None  # ε and δ; None: the folder is not that of a run
    left: float = 0.0  # μ


def spending(path: Path, delta: float | None = None) -> Spending:
    """What was charged in a private run's folder, or in the `budget` folder of its charges."""
    folder = path / "budget" if (path / "budget").is_dir() else path
    config = path / "config.yaml" if folder != path else path.parent / "config.yaml"
    private = read_config(config).private if config.is_file() else None
    if private is None and not any(folder.glob("*.json")):
        raise HeadstartError(f"budget: expected the folder of a private run, got {path}")
    delta = delta or (private.delta if private else 1e-5)
    most = mu_of(private.epsilon, private.delta) if private else 0.0
    budget = Budget(most, folder)
    spent = budget.spent
    releases = tuple(
        (name, square**0.5, epsilon_of(square**0.5, delta), _state(folder, name))
        for name, square in sorted(budget.charges.items())
    )
    left = max(0.0, most**2 - spent**2) ** 0.5
    return Spending(
        releases,
        spent,
        budget.epsilon(delta),
        delta,
        (private.epsilon, private.delta) if private else None,
        left if left > LEAST * most else 0.0,
    )


def _state(folder: Path, name: str) -> str:
    return "released" if (folder / f"{name}.safetensors").exists() else "cut short"

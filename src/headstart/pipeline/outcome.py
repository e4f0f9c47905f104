"""From a pipeline that was carried out to its result."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import __version__
from headstart.costs import formula_bytes
from headstart.data.cells import CellSamples, CellSet
from headstart.data.samples import Samples, units
from headstart.data.scene_samples import SceneSamples
from headstart.data.scenes import SceneSet
from headstart.evaluate import Scores, scores, tested
from headstart.federation.disclosure import FEWEST, would_refuse
from headstart.federation.judging import measured
from headstart.heads.base import Head
from headstart.pipeline.config import NamedSettings, RunConfig
from headstart.pipeline.context import ModelState, PipelineContext
from headstart.pipeline.experiment import Experiment
from headstart.pipeline.personalize import linear_head
from headstart.pipeline.pipeline import Pipeline
from headstart.privacy.statement import Statement
from headstart.results import (
    ClientSummary,
    Confusion,
    DataSummary,
    HeadSummary,
    Pooled,
    RidgePath,
    SeedResult,
    SplitSummary,
)


def seed_result(
    pipeline: Pipeline,
    context: PipelineContext,
    state: ModelState,
    data: DataSummary,
    split: SplitSummary,
    **more: Any,
) -> SeedResult:
    """What one pipeline found. `more`: what only its runner knows (pooled data, failures, time)."""
    shared = [
        point.accuracy for point in context.curve if pipeline.phases[point.phase].kind != "full"
    ]
    tested = _scores(context, state) if shared[-1] is not None else None
    return SeedResult(
        pipeline=str(pipeline),
        phases=tuple(map(str, pipeline.phases)),
        seed=context.config.seed,
        data=data,
        split=split,
        settings={**settings_of(context.config), **_of_trainings(pipeline, context)},
        curve=tuple(context.curve),
        accuracy=shared[-1],  # what clients do alone leaves the shared model as it is
        balanced_accuracy=None if tested is None else tested.balanced_accuracy,
        mean_iou=tested.mean_iou
        if tested and isinstance(context.test, CellSamples | SceneSamples)
        else None,
        pixels=context.pixels,
        head=None if state.method is None else head_summary(context, state),
        personal=context.personal,
        epochs=tuple(context.epochs or ()),
        domains=context.domains,
        confusion=None if tested is None else _confusion(tested),
        notes=tuple(context.notes),
        privacy=_promised(state),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        version=__version__,
        **more,
    )


def _promised(state: ModelState) -> Statement | None:
    about = state.head.provenance.get("private") if state.head else None
    return None if about is None else Statement.of_plain(about)


def settings_of(config: RunConfig) -> dict[str, Any]:
    """All settings of a run but the data, the split and the seed, which stand elsewhere."""
    plain = config.model_dump(mode="json")
    for key in ("data", "pipeline", "partition", "seed", "held_out", "test_fraction"):
        plain.pop(key, None)
    return plain


def _of_trainings(pipeline: Pipeline, context: PipelineContext) -> dict[str, Any]:
    """ "phase 1": its learning rate and so on, the defaults too."""
    numbers = [number for number, phase in enumerate(pipeline.phases) if phase.trains]
    return {
        f"phase {at}": training for at, training in zip(numbers, context.trainings, strict=True)
    }


def _scores(context: PipelineContext, state: ModelState) -> Scores:
    """Of the shared model on the server's own test set."""
    if context.config.dense:
        found = context.matrices["unseen"]
        return Scores(found.classes, found.matrix)
    if state.clusters is not None:
        found = state.clusters.confusion(context.test)
        return Scores(found.classes, found.matrix)
    head = linear_head(context, state)
    if isinstance(context.test, CellSamples):
        return context.scores(head)
    return scores(head, context.test_features(state.params), context.test.labels)


def _confusion(tested: Scores) -> Confusion:
    rows = tuple(tuple(row) for row in tested.confusion.tolist())
    return Confusion(tuple(str(label) for label in tested.classes), rows)


def head_summary(context: PipelineContext, state: ModelState) -> HeadSummary:
    """The closed-form head a pipeline began with."""
    method, head = state.method, state.head
    assert method is not None
    assert head is not None
    holdings = context.holdings
    every = len(holdings.classes)
    sent = list(context.sent.values()) if context.arriving else []
    formulas = [
        formula_bytes(method, context.dimension, held, every) for held in holdings.own.values()
    ]
    about = head.provenance
    return HeadSummary(
        method.name,
        method.title,
        about.get("settings", {}),
        about.get("solved", {}),
        temperature=head.temperature,
        bytes_per_client=float(np.mean(sent)) if sent else None,
        formula_bytes_per_client=float(np.mean(formulas)) if formulas else None,
        arrivals=tuple(context.arrivals),
        digest=about.get("total", ""),
    )


def ridge_path(method: Head, total: Any) -> RidgePath | None:
    """GCV over λ, of a head that has it."""
    if not hasattr(method, "path"):
        return None
    path = method.path(total)
    return RidgePath(
        tuple(path.ridges.tolist()),
        tuple(path.scores.tolist()),
        tuple(path.freedom.tolist()),
        float(path.best),
    )


# -- what only a simulation knows ------------------------------------------------------------------


def data_summary(experiment: Experiment, digest: str) -> DataSummary:
    """Return the name, sizes and classes of the data of an experiment."""
    train, config = experiment.train, experiment.config
    classes, _ = class_counts(experiment)
    return DataSummary(
        train.name,
        int(experiment.partition.sizes().sum()),
        units(experiment.test),
        math.prod(experiment.test.shape),
        tuple(str(label) for label in classes),
        digest,
        config.shift,
        ", ".join(experiment.images.augment) or None,
    )


def class_counts(experiment: Experiment) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the classes, and how many samples of each a client has.

    Of scenes cells; of those that a network trains on, images by the class of most of their pixels.
    """
    train, partition = experiment.train, experiment.partition
    if isinstance(train, SceneSet):
        names = np.array(train.names)
        rows = [(train.labels[own, None] == names).sum(axis=0) for own in partition.indices]
        return names, np.stack(rows).astype(np.int64)
    if not isinstance(train, CellSet):
        return partition.counts(train.labels)
    dealt, places = train.dealt(partition)
    shown, counts = dealt.counts(places)
    return np.array(train.names)[shown], counts


def split_summary(experiment: Experiment) -> SplitSummary:
    """Return how samples were split among clients, with the counts per client and class."""
    made = experiment.config.partition or NamedSettings(name="natural")
    _, counts = class_counts(experiment)
    return SplitSummary(
        made.name,
        made.settings,
        tuple(experiment.partition.names),
        experiment.config.held_out,
        None if experiment.own_test else experiment.config.test_fraction,
        experiment.heterogeneity.summary(),
        tuple(tuple(row) for row in counts.tolist()),
    )


def client_rows(
    experiment: Experiment, context: PipelineContext, method: Head | None
) -> tuple[ClientSummary, ...]:
    """Return a summary per client: samples, classes and bytes."""
    every, d = len(context.classes), context.dimension
    rows = []
    for name, client in experiment.clients.items():
        held = len(np.unique(client.samples.labels))
        sent = context.sent.get(name) if context.arriving else None
        rows.append(
            ClientSummary(
                name,
                experiment.images.clients.get(name),
                units(client.samples),
                held,
                None if sent is None else round(sent),
                None if method is None else formula_bytes(method, d, held, every),
            )
        )
    return tuple(rows)


def pooled(
    experiment: Experiment, state: ModelState, accuracy: float | None = None
) -> Pooled | None:
    """The same head from all data in one place. Rows have no pooled form.

    `accuracy`: of the federated head, which is the pooled one's where their totals are the same.
    """
    method = state.method
    if method is None or not method.statistic.is_sum or experiment.config.network:
        return None
    config = experiment.config
    total: Any = measured(
        method, experiment.pooled_samples(), exact=config.exact, bound=float(config.bound)
    )
    digest = total.digest() if config.exact else ""
    if isinstance(experiment.test, CellSamples) and digest and state.head is not None:
        same = digest == state.head.provenance.get("total")  # then so are its head and its scores
        return Pooled(None if not same else accuracy, digest)
    model = method.solve(total)
    return Pooled(tested(model, experiment.test).accuracy, digest)


def message_sizes(experiment: Experiment, head: Head, most: int = 200) -> dict[str, float]:
    """Mean bytes of a client's message at the default and the smallest precision.

    Of at most `most` clients, evenly picked.
    """
    clients = list(experiment.clients.values())
    if isinstance(experiment.test, CellSamples):  # of moments the number of cells says nothing
        most = 4
    picked = clients[:: max(1, len(clients) // most)]
    statistics: list[Any] = [measured(head, client.samples, secret=b"size") for client in picked]
    return {
        precision: float(np.mean([len(statistic.to_bytes(precision)) for statistic in statistics]))
        for precision in ("float32", "int8")
    }


def reveals(samples: Sequence[Samples], dimension: int) -> dict[str, int]:
    """How many clients' messages say more than a client may wish; of scenes, images count."""
    refused = "would not send this if deployed"
    if any(isinstance(own, CellSamples | SceneSamples) for own in samples):
        few = sum(units(own) < FEWEST for own in samples)
        return {"clients": len(samples), refused: few, f"under {FEWEST} images": few}
    labels = [own.labels for own in samples]
    counts = [np.unique(y, return_counts=True)[1].tolist() for y in labels]
    return {
        "clients": len(labels),
        refused: would_refuse(counts),
        "under 10 samples": sum(len(y) < 10 for y in labels),
        "with a class of one sample": sum(1 in client_counts for client_counts in counts),
        "fewer samples than dimensions": sum(len(y) < dimension for y in labels),
    }

"""Results from their pieces: what a fitted head, or a pipeline at its end, has to show."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart import __version__
from headstart.costs import formula_bytes, mean_cost
from headstart.evaluate import Scores
from headstart.federation.leaks import would_refuse
from headstart.federation.protocol import ClientData
from headstart.heads.linear import LinearHead
from headstart.results import (
    Arrival,
    ClientSummary,
    Confusion,
    DataSummary,
    Epoch,
    HeadSummary,
    PersonalScores,
    Point,
    Pooled,
    RidgePath,
    SeedResult,
    SplitSummary,
)
from headstart.runs.config import Named, RunConfig
from headstart.runs.federate import Prepared
from headstart.sentences import Sentence

_ELSEWHERE = {"phases", "heads", "seed"}  # said by the pipeline, its head and the seed


@dataclass(frozen=True, eq=False)
class HeadOutcome:
    """One head's federation: its total, its model, and how it did on the way."""

    head: Any
    total: Any
    model: LinearHead
    scores: Scores
    personal: PersonalScores | None
    sent: Mapping[str, int]
    down: float  # bytes that all clients received
    seconds: float
    pooled: Pooled | None
    sizes: Mapping[str, float]
    arrivals: tuple[Arrival, ...]
    messages: Mapping[str, str]  # SHA-256 by client


# -- a fitted head ---------------------------------------------------------------------------------


def head_results(
    prepared: Prepared, named: Sequence[Named], outcomes: Sequence[HeadOutcome]
) -> list[SeedResult]:
    """One result per head, in their order."""
    titles = [outcome.head.title for outcome in outcomes]
    found = []
    for at, (one, outcome) in enumerate(zip(named, outcomes, strict=True)):
        alone = titles.count(titles[at]) == 1
        said = ", ".join(f"{key}={value}" for key, value in one.settings.items())
        title = titles[at] if alone or not said else f"{titles[at]}({said})"
        found.append(_head_result(prepared, title, outcome))
    return found


def _head_result(prepared: Prepared, pipeline: str, outcome: HeadOutcome) -> SeedResult:
    clients = prepared.simulator.data
    d, every = prepared.train.dimension, len(np.unique(prepared.train.labels))
    own = [len(np.unique(client.labels)) for client in clients.values()]
    formulas = [formula_bytes(outcome.head, d, classes, every) for classes in own]
    cost = mean_cost(outcome.head, d, own, every, [outcome.sent[name] for name in clients])
    up, scores = float(sum(outcome.sent.values())), outcome.scores
    head = head_summary(
        outcome.head,
        outcome.model,
        total=outcome.total,
        bytes_per_client=cost.measured,
        formula_bytes_per_client=cost.formula,
        sizes=outcome.sizes,
        arrivals=outcome.arrivals,
    )
    point = Point(0, 0, scores.accuracy, up, outcome.down, formula_up=float(sum(formulas)))
    return SeedResult(
        pipeline=pipeline,
        phases=(pipeline,),
        curve=(point,),
        accuracy=scores.accuracy,
        balanced_accuracy=scores.balanced_accuracy,
        head=head,
        pooled=outcome.pooled,
        personal=outcome.personal,
        confusion=confusion_of(scores),
        clients=client_summaries(prepared, outcome.sent, formulas),
        reveals=reveals(list(clients.values()), d),
        seconds=outcome.seconds,
        **about(prepared),
    )


def head_summary(method: Any, model: LinearHead, total: Any = None, **more: Any) -> HeadSummary:
    """Of a head and the model solved with it; the path of λ only where its `total` is there."""
    known = model.provenance
    path = method.path(total) if total is not None and hasattr(method, "path") else None
    return HeadSummary(
        name=method.name,
        title=method.title,
        settings=known["settings"],
        solved=known["solved"],
        temperature=model.temperature,
        digest=known["total"] if known["exact"] else "",
        path=None
        if path is None
        else RidgePath(
            tuple(path.ridges.tolist()),
            tuple(path.scores.tolist()),
            tuple(path.freedom.tolist()),
            path.best,
        ),
        **more,
    )


# -- a pipeline ------------------------------------------------------------------------------------


def pipeline_result(
    prepared: Prepared,
    sentence: Sentence,
    curve: Sequence[Point],
    *,
    head: HeadSummary | None,
    scores: Scores | None,
    personal: PersonalScores | None,
    epochs: tuple[Epoch, ...],
    domains: Mapping[str, float] | None,
    seconds: float,
) -> SeedResult:
    """What all phases together have to show.

    `scores`: of the model that clients share at the end; None where they share a part of one, or
    there is nothing to test with.
    """
    return SeedResult(
        pipeline=str(sentence),
        phases=tuple(map(str, sentence.phases)),
        curve=tuple(curve),
        accuracy=shared_accuracy(sentence, curve),
        balanced_accuracy=scores.balanced_accuracy if scores else None,
        head=head,
        personal=personal,
        epochs=epochs,
        domains=domains,
        confusion=confusion_of(scores) if scores else None,
        clients=client_summaries(prepared, prepared.simulator.sent),
        seconds=seconds,
        **about(prepared),
    )


def shared_accuracy(sentence: Sentence, curve: Sequence[Point]) -> float | None:
    """At the end; what happens at home leaves the shared model as it is."""
    kinds = [phase.kind for phase in sentence.phases]
    return [point.accuracy for point in curve if kinds[point.phase] != "full"][-1]


# -- what both have --------------------------------------------------------------------------------


def about(prepared: Prepared) -> dict[str, Any]:
    """The fields that say on what, how and when."""
    config = prepared.config
    return {
        "seed": config.seed,
        "data": data_summary(prepared),
        "split": split_summary(prepared),
        "settings": settings_of(config),
        **stamp(),
    }


def stamp() -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"created": now, "version": __version__}


def settings_of(config: RunConfig) -> dict[str, Any]:
    """Everything a run was told that its pipeline and seed do not say."""
    return config.model_dump(mode="json", exclude=_ELSEWHERE)


def data_summary(prepared: Prepared) -> DataSummary:
    config = prepared.config
    return DataSummary(
        name=prepared.train.name,
        samples=int(prepared.partition.sizes().sum()),
        test=len(prepared.test),
        dimension=prepared.train.dimension,
        classes=tuple(map(str, np.unique(prepared.train.labels).tolist())),
        digest=prepared.digest(),
        shift=config.shift,
        augment=config.augment,
    )


def split_summary(prepared: Prepared) -> SplitSummary:
    """Who takes part, and how many samples of each class they have."""
    config = prepared.config
    made = config.partition or Named(name="natural")
    clients = {name: prepared.simulator.data[name] for name in prepared.simulator.clients}
    classes = np.unique(prepared.train.labels)
    counts = []
    for client in clients.values():
        held = np.bincount(np.searchsorted(classes, client.labels), minlength=len(classes))
        counts.append(tuple(held.tolist()))
    return SplitSummary(
        name=made.name,
        settings=made.settings,
        clients=tuple(clients),
        held_out=config.held_out,
        test_fraction=prepared.test_fraction,
        summary=prepared.heterogeneity.summary(),
        counts=tuple(counts),
    )


def client_summaries(
    prepared: Prepared, sent: Mapping[str, int], formulas: Sequence[float] | None = None
) -> tuple[ClientSummary, ...]:
    """All that are in the federation; `sent`: bytes by client, `formulas`: of their upload."""
    return tuple(
        ClientSummary(
            client=name,
            samples=len(client.labels),
            classes=len(np.unique(client.labels)),
            up=sent.get(name, 0),
            formula_up=None if formulas is None else formulas[at],
            domain=prepared.colours.clients.get(name),
        )
        for at, (name, client) in enumerate(prepared.simulator.data.items())
    )


def confusion_of(scores: Scores) -> Confusion:
    matrix = tuple(map(tuple, scores.confusion.tolist()))
    return Confusion(tuple(map(str, scores.classes.tolist())), matrix)


def reveals(clients: Sequence[ClientData], dimension: int) -> dict[str, int]:
    """How many clients' messages say more than a client may wish."""
    labels = [client.labels for client in clients]
    counts = [np.unique(y, return_counts=True)[1].tolist() for y in labels]
    return {
        "clients": len(labels),
        "would not send this if deployed": would_refuse(counts),
        "under 10 samples": sum(len(y) < 10 for y in labels),
        "with a class of one sample": sum(1 in own for own in counts),
        "fewer samples than dimensions": sum(len(y) < dimension for y in labels),
    }

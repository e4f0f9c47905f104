"""What a run has to show: one head's outcome, and all of them as the plain values of a report."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from headstart import __version__
from headstart.costs import formula_bytes, mean_cost
from headstart.evaluate import PERSONAL, Personal, Scores
from headstart.federation.leaks import would_refuse
from headstart.heads.linear import LinearHead
from headstart.runs.config import Named
from headstart.runs.federate import Prepared


@dataclass(frozen=True, eq=False)
class Outcome:
    """One head's federation: its total, its model, and how it did on the way."""

    head: Any
    total: Any
    model: LinearHead
    scores: Scores
    personal: Personal | None
    sent: dict[str, int]
    seconds: float
    pooled: float | None
    same_bits: tuple[str, str] | None
    sizes: dict[str, float]
    curve: list[dict[str, float]] = field(default_factory=list)
    messages: dict[str, str] = field(default_factory=dict)


def summarize(prepared: Prepared, outcomes: list[Outcome]) -> dict[str, Any]:
    """Everything the report shows, as plain values."""
    config, main = prepared.config, outcomes[0]
    classes, counts = prepared.partition.counts(prepared.train.labels)
    made = config.partition or Named(name="natural")
    said = ", ".join(f"{key} {value}" for key, value in made.settings.items() if key != "clients")
    said = f" ({said})" if said else ""
    colours = prepared.colours.plain()
    said += f", colours shifted by {colours['shift']:g}" if colours else ""
    clients = len(prepared.partition)
    return {
        "headstart": __version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "title": f"{prepared.train.name}, {clients} clients, {made.name}{said}",
        "data": {
            "name": prepared.train.name,
            "samples": int(prepared.partition.sizes().sum()),
            "test": len(prepared.test),
            "dimension": prepared.train.dimension,
            "classes": [str(label) for label in classes],
            "images": colours,
        },
        "partition": {
            "name": made.name,
            "settings": made.settings,
            "summary": prepared.heterogeneity.summary(),
        },
        "heatmap": {
            "clients": list(prepared.partition.names),
            "classes": [str(label) for label in classes],
            "counts": counts.tolist(),
        },
        "clients": client_rows(prepared, main),
        "heads": [head_row(prepared, outcome, outcome is main) for outcome in outcomes],
        "confusion": {
            "classes": [str(label) for label in main.scores.classes],
            "matrix": main.scores.confusion.tolist(),
        },
        "worst_pairs": main.scores.worst_pairs(),
        "exact": exactness(outcomes),
        "reveals": reveals(prepared),
    }


def exactness(outcomes: list[Outcome]) -> dict[str, Any] | None:
    """The digests of the first head whose total pooled data can be compared with."""
    found = next((outcome.same_bits for outcome in outcomes if outcome.same_bits), None)
    if found is None:
        return None
    federated, pooled = found
    return {
        "federated_digest": federated,
        "pooled_digest": pooled,
        "same": federated == pooled,
    }


def client_rows(prepared: Prepared, main: Outcome) -> list[dict[str, Any]]:
    every = len(np.unique(prepared.train.labels))
    rows = []
    for name, client in prepared.simulator.data.items():
        own = len(np.unique(client.labels))
        d = prepared.train.dimension
        rows.append(
            {
                "client": name,
                "samples": len(client.labels),
                "classes": own,
                "bytes": main.sent[name],
                "formula_bytes": formula_bytes(main.head, d, own, every),
                "tested": 0 if client.test_labels is None else len(client.test_labels),
                "personal": main.personal.of(name) if main.personal else None,
            }
        )
    return rows


def head_row(prepared: Prepared, outcome: Outcome, main: bool) -> dict[str, Any]:
    own = [len(np.unique(client.labels)) for client in prepared.simulator.data.values()]
    every = len(np.unique(prepared.train.labels))
    sent = [outcome.sent[name] for name in prepared.simulator.clients]
    cost = mean_cost(outcome.head, prepared.train.dimension, own, every, sent)
    return {
        "name": outcome.head.name,
        "title": outcome.head.title,
        "settings": outcome.model.provenance["settings"],
        "solved": outcome.model.provenance["solved"],
        "main": main,
        "accuracy": outcome.scores.accuracy,
        "balanced_accuracy": outcome.scores.balanced_accuracy,
        "personal": outcome.personal.weighted() if outcome.personal else None,
        "personal_mean": outcome.personal.mean() if outcome.personal else None,
        "personal_change": changes(outcome.personal) if outcome.personal else None,
        "temperature": outcome.model.temperature,
        "bytes_per_client": cost.measured,
        "formula_bytes_per_client": cost.formula,
        "sizes": outcome.sizes,
        "seconds": outcome.seconds,
        "pooled_accuracy": outcome.pooled,
        "curve": outcome.curve,
        "path": path_row(outcome.head, outcome.total) if main else None,
    }


def changes(personal: Personal) -> dict[str, Any]:
    """Who gains and who loses by each personalization, against the global head."""
    return {name: asdict(personal.change(name)) for name in PERSONAL if name != "global"}


def path_row(head: Any, total: Any) -> dict[str, Any] | None:
    if not hasattr(head, "path"):
        return None
    path = head.path(total)
    return {
        "ridges": path.ridges.tolist(),
        "scores": path.scores.tolist(),
        "freedom": path.freedom.tolist(),
        "best": path.best,
    }


def reveals(prepared: Prepared) -> dict[str, int]:
    """How many clients' messages say more than a client may wish."""
    labels = [client.labels for client in prepared.simulator.data.values()]
    counts = [np.unique(y, return_counts=True)[1].tolist() for y in labels]
    lone = [1 in own for own in counts]
    return {
        "clients": len(labels),
        "would not send this if deployed": would_refuse(counts),
        "under 10 samples": sum(len(y) < 10 for y in labels),
        "with a class of one sample": sum(lone),
        "fewer samples than dimensions": sum(len(y) < prepared.train.dimension for y in labels),
    }


def metric_rows(outcomes: list[Outcome]) -> Iterator[tuple[str, str, str, float]]:
    for outcome in outcomes:
        name = outcome.head.name
        yield name, "", "accuracy", outcome.scores.accuracy
        yield name, "", "balanced_accuracy", outcome.scores.balanced_accuracy
        yield name, "", "seconds", outcome.seconds
        for metric, value in (outcome.personal.weighted() if outcome.personal else {}).items():
            yield name, "", f"personal_{metric}", value
        for client, size in outcome.sent.items():
            yield name, client, "bytes", size
            own = outcome.personal.of(client) if outcome.personal else None
            for metric, value in (own or {}).items():
                yield name, client, f"personal_{metric}", value

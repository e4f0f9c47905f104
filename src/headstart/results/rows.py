"""Results as rows of a table: per seed, per point of a curve, per client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from headstart.results.seed import SeedResult

Row = dict[str, Any]  # column → value


def seed_rows(runs: Iterable[SeedResult]) -> list[Row]:
    """A row per run: its accuracies and its costs at the end."""
    return [
        {
            "pipeline": run.pipeline,
            "seed": run.seed,
            "accuracy": run.accuracy,
            "balanced_accuracy": run.balanced_accuracy,
            "mean_iou": run.mean_iou,
            "personal_before": run.personal.weighted("global") if run.personal else None,
            "personal_after": run.personal_accuracy,
            "bytes_up": run.curve[-1].up,
            "bytes_down": run.curve[-1].down,
            "flops_per_client": run.curve[-1].flops,
            "seconds": run.seconds,
        }
        for run in runs
    ]


def curve_rows(runs: Iterable[SeedResult]) -> list[Row]:
    """A row per run and point of its curve."""
    return [
        {"pipeline": run.pipeline, "seed": run.seed, **point.values()}
        for run in runs
        for point in run.curve
    ]


def client_rows(runs: Iterable[SeedResult]) -> list[Row]:
    """A row per run and client, with its accuracy on its own test part by each model."""
    rows = []
    for run in runs:
        scores = run.personal.by_client() if run.personal else {}
        for client in run.clients:
            row = {"pipeline": run.pipeline, "seed": run.seed, **asdict(client)}
            rows.append(row | scores.get(client.client, {}))
    return rows

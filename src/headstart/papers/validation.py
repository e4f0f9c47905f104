"""Federated validation: clients hold out a part, and count the hits of candidate heads on it.

Choosing so costs one broadcast and one number per head and client; no test label is seen. When the
choice is made the held-out parts join the sum: the final head has seen every sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.data.datasets import Dataset
from headstart.data.partition import Partition, personal_split
from headstart.federation.protocol import Arrays, ClientData, Step, register_step
from headstart.federation.simulator import Simulator
from headstart.heads.features import RandomFeatures
from headstart.heads.linear import LinearHead
from headstart.papers.common import collect, federation
from headstart.statistics.base import Summable
from headstart.statistics.tally import Tally


@dataclass(frozen=True, eq=False)
class Trial:
    """A federation whose clients hold out a part; `rest` asks for those parts afterwards."""

    kept: Simulator
    rest: Simulator

    def total(self, head: Any) -> Any:
        """What the head needs, of the parts that are not held out."""
        return collect(self.kept, head).statistic

    def whole(self, head: Any, part: Any) -> Any:
        """The sum of everything: `part`, and what was held out."""
        return part + collect(self.rest, head).statistic

    def accuracies(self, models: Sequence[LinearHead]) -> list[float]:
        """Percent of the held-out samples each model gets right; one feature map for all."""
        first = models[0]
        step = Step("validate", {"map": first.feature_map and first.feature_map.settings()})
        broadcast = {
            "weights": np.stack([model.weights for model in models]),
            "bias": np.stack([model.bias for model in models]),
            "classes": first.classes,
        }
        tested, *hits = self.kept.total(step, broadcast).statistic.values.tolist()
        return [100 * hit / max(tested, 1.0) for hit in hits]


def trial(train: Dataset, split: Partition, fraction: float, seed: int) -> Trial:
    """Each client holds out a stratified `fraction` of its samples."""
    kept, held = personal_split(split, train.labels, fraction, 1, seed)
    clients = {
        name: ClientData(train.subset(rows).samples, train.subset(rest).samples)
        for (name, rows), (_, rest) in zip(kept.items(), held.items(), strict=True)
        if len(rows)
    }
    return Trial(Simulator(clients, seed), federation(train, held, seed))


@register_step("validate", Tally, tests=True)
def _validate(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    """[held-out samples, hits of each head]."""
    heads = broadcast["weights"]
    if client.test is None or not len(client.test):
        return Tally(np.zeros(1 + len(heads)))
    z, y = client.test.read()
    mapped = RandomFeatures(**params["map"])(z) if params["map"] else z
    hits = [
        float((broadcast["classes"][np.argmax(mapped @ w.T + b, axis=1)] == y).sum())
        for w, b in zip(heads, broadcast["bias"], strict=True)
    ]
    return Tally(np.array([float(len(y)), *hits]))

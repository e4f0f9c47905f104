"""What a sentence costs as it goes: bytes and computation, counted next to the papers' formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.costs import (
    formula_bytes,
    formula_flops,
    home_flops,
    measure_flops,
    round_bytes,
    sample_flops,
)
from headstart.data.backbones.catalogue import NETWORKS
from headstart.gradient.flops import extractor_flops, head_flops
from headstart.gradient.steps import Job
from headstart.runs.federate import Prepared


@dataclass
class Meter:
    """Sums over the federation: bytes down, FLOPs as done and by formula, bytes up by formula.

    As done, features are extracted once and kept; the formulas of the papers extract them in every
    epoch. `forward` is F_φ, where the extractor is known.
    """

    down: float = 0.0
    flops: float = 0.0
    formula_up: float = 0.0
    formula_flops: float = 0.0
    forward: float = 0.0

    @classmethod
    def of(cls, prepared: Prepared) -> Meter:
        """Which has already counted the extraction of features that stay as they are."""
        config, made = prepared.config, prepared.extractor or {}
        if config.network:
            side = config.pixels
            return cls(forward=extractor_flops(config.network, (3, side, side)))
        if made.get("name") not in NETWORKS:
            return cls()
        side = int(made["preprocess"]["size"])
        forward = extractor_flops(str(made["name"]), (3, side, side))
        samples = sum(len(client.labels) for client in prepared.simulator.data.values())
        return cls(flops=forward * samples, forward=forward)

    def costs(self, up: float, clients: int) -> dict[str, float]:
        """Of a point of the curve: bytes of the federation, FLOPs a client."""
        return {
            "up": float(up),
            "down": float(self.down),
            "flops": self.flops / clients,
            "formula_up": self.formula_up,
            "formula_flops": self.formula_flops / clients,
        }

    def measured(self, view: Prepared, head: Any, *, through: bool) -> None:
        """A closed-form head: its statistic of every sample, once `through` the extractor."""
        clients = list(view.simulator.data.values())
        every, d = len(np.unique(view.train.labels)), clients[0].features.shape[1]
        for client in clients:
            own, samples = len(np.unique(client.labels)), len(client.labels)
            self.formula_up += formula_bytes(head, d, own, every)
            self.flops += samples * measure_flops(head, d, own, self.forward * through)
            self.formula_flops += samples * measure_flops(head, d, own, self.forward)

    def trained(self, prepared: Prepared, job: Job, cohort: Sequence[str]) -> None:
        """One round."""
        samples = sum(len(prepared.simulator.data[name].labels) for name in cohort)
        shapes = job.model.shapes
        sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
        own = sum(size for name, size in sizes.items() if name.startswith("extractor."))
        what = (job.recipe, job.train, self.forward, head_flops(job.spec), job.training.epochs)
        self.flops += samples * sample_flops(*what, cached=job.spec.network is None)
        self.formula_flops += samples * formula_flops(*what)
        traffic = round_bytes(job.recipe, job.train, own, sizes["head.weight"])
        self.formula_up += len(cohort) * traffic.up

    def alone(self, job: Job, samples: int, epochs: int) -> None:
        """Clients by themselves: no bytes."""
        what = (job.train, self.forward, head_flops(job.spec), epochs)
        self.flops += samples * home_flops(*what, cached=job.spec.network is None)
        self.formula_flops += samples * home_flops(*what)

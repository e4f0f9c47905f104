"""What a sentence costs as it goes: bytes and computation, counted next to the papers' formulas.

Computation three times: as done, pass by pass (`flops`); as torch counts those very passes
(`counted`); as the papers write it down (`formula_flops`). What is done without torch, the
statistics of closed forms and random features of kept features, is in `counted` as done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.costs import (
    BYTES_A_NUMBER,
    formula_bytes,
    formula_flops,
    home_flops,
    measure_flops,
    round_bytes,
    sample_flops,
)
from headstart.data.backbones.catalogue import NETWORKS
from headstart.federation.protocol import ClientData
from headstart.gradient.flops import extractor_flops, head_flops, visit_flops
from headstart.gradient.steps import Job
from headstart.runs.federate import Prepared


@dataclass
class Meter:
    """Sums over the federation: bytes down, FLOPs as done and by formula, bytes up by formula.

    As done, features are extracted once and kept; the formulas of the papers extract them in every
    epoch. `forward` is F_φ, where the extractor is known. `before`: bytes up ahead of all phases.
    """

    down: float = 0.0
    flops: float = 0.0
    formula_up: float = 0.0
    formula_flops: float = 0.0
    forward: float = 0.0
    counted: float = 0.0
    before: float = 0.0

    @classmethod
    def of(cls, prepared: Prepared) -> Meter:
        """Which has already counted the extraction of features that stay as they are."""
        config, made = prepared.config, prepared.extractor or {}
        if config.network:
            side, colours = config.pixels, prepared.colours
            rows = 6 * BYTES_A_NUMBER * len(prepared.simulator.clients) * bool(colours.table)
            return cls(
                down=colours.down,
                formula_up=rows,
                forward=extractor_flops(config.network, (3, side, side)),
                before=colours.up,
            )
        if made.get("name") not in NETWORKS:
            return cls()
        side = int(made["preprocess"]["size"])
        forward = extractor_flops(str(made["name"]), (3, side, side))
        samples = sum(len(client.labels) for client in prepared.simulator.data.values())
        return cls(flops=forward * samples, forward=forward, counted=forward * samples)

    def costs(self, up: float, clients: int) -> dict[str, float]:
        """Of a point of the curve: bytes of the federation, FLOPs a client."""
        return {
            "up": float(up + self.before),
            "down": float(self.down),
            "flops": self.flops / clients,
            "counted": self.counted / clients,
            "formula_up": self.formula_up,
            "formula_flops": self.formula_flops / clients,
        }

    def told(self, words: Mapping[str, NDArray[Any]], clients: Sequence[str]) -> None:
        """A broadcast, the same to every client."""
        self.down += len(clients) * sum(array.nbytes for array in words.values())

    def measured(self, view: Prepared, head: Any, *, through: bool) -> None:
        """A closed-form head: its statistic of every sample, once `through` the extractor."""
        clients = list(view.simulator.data.values())
        self._statistics(clients, head, clients[0].features.shape[1], view, self.forward * through)

    def followed(self, prepared: Prepared, head: Any, cohort: Sequence[str]) -> None:
        """The statistics of one round's clients, anew through the extractor (Fed3R-FT)."""
        clients = [prepared.simulator.data[name] for name in cohort]
        self._statistics(clients, head, _dimension(prepared), prepared, self.forward)

    def _statistics(
        self, clients: Sequence[ClientData], head: Any, d: int, of: Prepared, forward: float
    ) -> None:
        every = len(np.unique(of.train.labels))
        for client in clients:
            own, samples = len(np.unique(client.labels)), len(client.labels)
            self.formula_up += formula_bytes(head, d, own, every)
            done = samples * measure_flops(head, d, own, forward)
            self.flops += done
            self.counted += done
            self.formula_flops += samples * measure_flops(head, d, own, self.forward)

    def trained(self, prepared: Prepared, job: Job, cohort: Sequence[str]) -> None:
        """One round."""
        held = [len(prepared.simulator.data[name].labels) for name in cohort]
        samples = sum(held)
        each, visit = visit_flops(job, _shape(prepared))
        self.counted += each * samples + visit * sum(n > 0 for n in held)
        forward = self._mapped(prepared, job, samples)
        shapes = job.model.shapes
        sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
        own = sum(size for name, size in sizes.items() if name.startswith("extractor."))
        what = (job.recipe, job.train, forward, head_flops(job.spec), job.training.epochs)
        self.flops += samples * sample_flops(*what, cached=job.spec.network is None)
        self.formula_flops += samples * formula_flops(*what)
        traffic = round_bytes(job.recipe, job.train, own, sizes["head.weight"])
        self.formula_up += len(cohort) * traffic.up

    def alone(self, prepared: Prepared, job: Job, epochs: int) -> None:
        """Clients by themselves: no bytes."""
        samples = sum(len(client.labels) for client in prepared.simulator.data.values())
        once = replace(job, training=replace(job.training, epochs=1))
        self.counted += visit_flops(once, _shape(prepared))[0] * epochs * samples
        what = (job.train, self._mapped(prepared, job, samples), head_flops(job.spec), epochs)
        self.flops += samples * home_flops(*what, cached=job.spec.network is None)
        self.formula_flops += samples * home_flops(*what)

    def _mapped(self, prepared: Prepared, job: Job, samples: int) -> float:
        """F_φ with dD for random features; of kept features these are made once a visit."""
        extra = _dimension(prepared) * job.spec.dimension if job.spec.feature_map else 0
        if job.spec.network is None:
            self.flops += samples * extra
            self.counted += samples * extra
        return self.forward + extra


def _dimension(prepared: Prepared) -> int:
    """Of features, as they are or as the network makes them."""
    network = prepared.config.network
    return NETWORKS[network].dimension if network else prepared.train.dimension


def _shape(prepared: Prepared) -> tuple[int, ...]:
    """Of one sample."""
    return tuple(next(iter(prepared.simulator.data.values())).features.shape[1:])

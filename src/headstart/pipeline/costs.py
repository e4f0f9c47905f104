"""What a pipeline costs as it goes: bytes and computation, counted next to the papers' formulas.

Computation three times: as done, pass by pass (`flops`); as torch counts those very passes
(`counted`); as the papers write it down (`formula_flops`). What is done without torch, the
statistics of closed forms and random features of kept features, is in `counted` as done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart import optional
from headstart.costs import (
    BYTES_PER_NUMBER,
    formula_bytes,
    formula_flops,
    local_flops,
    measure_flops,
    round_bytes,
    sample_flops,
)
from headstart.data.backbones.catalogue import NETWORKS
from headstart.heads.base import Head

if TYPE_CHECKING:
    from headstart.gradient.steps import Job
    from headstart.pipeline.context import PipelineContext


@dataclass
class Meter:
    """Sums over the federation: bytes both ways, FLOPs as done and by formula, bytes by formula.

    As done, features are extracted once and kept; the formulas of the papers extract them in every
    epoch. `forward` is F_φ, where the extractor is known.
    """

    up: float = 0.0
    down: float = 0.0
    flops: float = 0.0
    formula_up: float = 0.0
    formula_flops: float = 0.0
    forward: float = 0.0
    counted: float = 0.0

    @classmethod
    def of(cls, context: PipelineContext) -> Meter:
        """Which has already counted the extraction of features that stay as they are."""
        config, made = context.config, context.extractor or {}
        if config.network:
            from headstart.gradient.flops import extractor_flops

            images = context.images
            pairs = 6 * len(context.federation.clients) * bool(images.table)
            rows = BYTES_PER_NUMBER * (pairs + images.style_numbers)
            return cls(
                up=images.up,
                down=images.down,
                formula_up=rows,
                forward=extractor_flops(config.network, context.shape),
            )
        forward = _extraction(made)
        flops = forward * context.holdings.total if forward else 0.0
        return cls(flops=flops, forward=forward, counted=flops)

    def costs(self, clients: int) -> dict[str, float]:
        """Of a point of the curve: bytes of the federation, FLOPs per client."""
        return {
            "up": float(self.up),
            "down": float(self.down),
            "flops": self.flops / clients,
            "counted": self.counted / clients,
            "formula_up": self.formula_up,
            "formula_flops": self.formula_flops / clients,
        }

    def broadcast(self, arrays: Mapping[str, NDArray[Any]], clients: Sequence[str]) -> None:
        """Arrays that went to every client."""
        self.down += len(clients) * sum(array.nbytes for array in arrays.values())

    def measured(self, context: PipelineContext, head: Head) -> None:
        """A closed-form head: its statistic of every sample, once through a network that trains."""
        forward = self.forward if context.config.network else 0.0
        self._statistics(context, list(context.holdings.samples), head, forward)

    def refitted(self, context: PipelineContext, head: Head, cohort: Sequence[str]) -> None:
        """The statistics of one round's clients, anew through the extractor (Fed3R-FT)."""
        self._statistics(context, cohort, head, self.forward)

    def _statistics(
        self, context: PipelineContext, cohort: Sequence[str], head: Head, forward: float
    ) -> None:
        holdings, d = context.holdings, context.dimension
        every = len(holdings.classes)
        for name in cohort:
            held, samples = holdings.own.get(name, 0.0), holdings.samples.get(name, 0.0)
            self.formula_up += formula_bytes(head, d, held, every)
            done = samples * measure_flops(head, d, held, forward)
            self.flops += done
            self.counted += done
            self.formula_flops += samples * measure_flops(head, d, held, self.forward)

    def trained(self, context: PipelineContext, job: Job, cohort: Sequence[str]) -> None:
        """One round."""
        from headstart.gradient.flops import head_flops, visit_flops

        held = context.holdings.sizes(cohort)
        samples = sum(held)
        each, visit = visit_flops(job, context.shape)
        self.counted += each * samples + visit * sum(n > 0 for n in held)
        forward = self._mapped(context, job, samples)
        shapes = job.model.shapes
        sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
        extractor_size = sum(size for name, size in sizes.items() if name.startswith("extractor."))
        head = head_flops(job.spec, context.shape)
        what = (job.recipe, job.train, forward, head, job.training.epochs)
        self.flops += samples * sample_flops(*what, cached=job.spec.network is None)
        self.formula_flops += samples * formula_flops(*what)
        traffic = round_bytes(job.recipe, job.train, extractor_size, sizes["head.weight"])
        self.formula_up += len(cohort) * traffic.up

    def alone(self, context: PipelineContext, job: Job, epochs: int) -> None:
        """Clients by themselves: no bytes."""
        from headstart.gradient.flops import head_flops, visit_flops

        samples = context.holdings.total
        once = replace(job, training=replace(job.training, epochs=1))
        self.counted += visit_flops(once, context.shape)[0] * epochs * samples
        head = head_flops(job.spec, context.shape)
        what = (job.train, self._mapped(context, job, samples), head, epochs)
        self.flops += samples * local_flops(*what, cached=job.spec.network is None)
        self.formula_flops += samples * local_flops(*what)

    def _mapped(self, context: PipelineContext, job: Job, samples: float) -> float:
        """F_φ with dD for random features; of kept features these are made once a visit."""
        extra = context.dimension * job.spec.dimension if job.spec.feature_map else 0
        if job.spec.network is None:
            self.flops += samples * extra
            self.counted += samples * extra
        return self.forward + extra


def _extraction(made: Mapping[str, Any]) -> float:
    """F_φ of the extractor that made the features; 0 where it cannot be known here."""
    if made.get("name") not in NETWORKS or optional.missing(("torch",)):
        return 0.0  # counting needs torch, features in a file do not
    from headstart.gradient.flops import extractor_flops

    prepared = made["preprocess"]
    if "cells" in made:  # one pass over an image is shared by its cells
        height, width = int(prepared["height"]), int(prepared["width"])
        return extractor_flops(str(made["name"]), (3, height, width)) / (height * width // 64)
    side = int(prepared["size"])
    views = 1 if made.get("views") is None else 2
    return views * extractor_flops(str(made["name"]), (3, side, side))

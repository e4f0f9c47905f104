"""How long a round of each method takes, next to FedAvg's in the same run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart import gradient
from headstart.costs import sample_flops
from headstart.errors import HeadstartError
from headstart.gradient.flops import extractor_flops, head_flops
from headstart.gradient.job import Job, Spec, Training, dimension_of
from headstart.gradient.loop import Plan, begin, one_round
from headstart.gradient.models import initial
from headstart.runs import feddr_tables as paper
from headstart.runs.at_home import algorithm_named
from headstart.runs.federate import Prepared


@dataclass(frozen=True)
class Timed:
    """Seconds of a round, next to FedAvg's of the same run, the papers', and counted operations."""

    method: str
    seconds: float
    ratio: float
    flops: float
    paper: float | None


def time_rounds(
    prepared: Prepared, training: Training, repeats: int = 3, methods: Sequence[str] = ()
) -> list[Timed]:
    """The shortest of a few rounds of every method, taken in turn on the same clients."""
    config = prepared.config
    if not config.network:
        raise HeadstartError("network: expected one to train on images, got none")
    classes = np.unique(np.concatenate([c.labels for c in prepared.simulator.data.values()]))
    spec = Spec(
        len(classes), dimension_of(config.network), config.network, batch_norm=config.batch_norm
    )
    jobs = {
        name: Job(name, spec, training, gradient.make(name).trains or "model")
        for name in (algorithm_named("method", one) for one in methods or paper.TABLE_4)
    }
    best = dict.fromkeys(jobs, np.inf)
    for name, seconds in _rounds(prepared, jobs, classes, repeats):
        best[name] = min(best[name], seconds)
    forward = extractor_flops(config.network, (3, config.pixels, config.pixels)), head_flops(spec)
    flops = {
        name: sample_flops(job.recipe, job.train, *forward, training.epochs)
        for name, job in jobs.items()
    }
    first = next(iter(jobs))
    known = {name: paper.TABLE_4.get(name) for name in jobs}
    base = known[first]
    return [
        Timed(
            name,
            best[name],
            best[name] / best[first],
            flops[name] / flops[first],
            told_ / base if (told_ := known[name]) and base else None,
        )
        for name in jobs
    ]


def _rounds(
    prepared: Prepared, jobs: Mapping[str, Job], classes: Any, repeats: int
) -> Iterator[tuple[str, float]]:
    cohort = min(prepared.config.cohort, len(prepared.simulator.clients))
    plan = Plan(rounds=repeats + 1, clients=cohort, seed=prepared.config.seed)
    states = {name: begin(job, initial(job.model, None, 0)) for name, job in jobs.items()}
    for turn in range(repeats + 1):
        for name, job in jobs.items():
            began = time.perf_counter()
            states[name] = one_round(job, plan, prepared.simulator, classes, states[name])
            if turn:  # the first makes buffers
                yield name, time.perf_counter() - began
    prepared.simulator.forget()

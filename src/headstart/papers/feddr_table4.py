"""FedDr+, table 4: how long a round takes, next to FedAvg's in the same run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart import gradient
from headstart.costs import sample_flops
from headstart.data.backbones.catalogue import NETWORKS
from headstart.errors import HeadstartError
from headstart.gradient.checks import whole
from headstart.papers import feddr_paper as paper
from headstart.papers.feddr_grid import paper_split
from headstart.papers.feddr_study import Study, names, study_of
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row
from headstart.pipeline.experiment import Experiment, prepare
from headstart.progress import Progress, silent

if TYPE_CHECKING:  # torch is loaded when a round is timed
    from headstart.gradient.engine import Training
    from headstart.gradient.steps import Job

SECONDS, FLOPS = "seconds per round", "FLOPs"


@dataclass(frozen=True)
class Settings(Study):
    """`repeats`: rounds of a method, of which the shortest counts; `methods`: the first is the
    unit."""

    repeats: int = 3
    methods: Sequence[str] = tuple(paper.TABLE_4)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("repeats", self.repeats)
        canonical = [gradient.METHODS.entry(name).name for name in names("methods", self.methods)]
        object.__setattr__(self, "methods", tuple(canonical))


def run(task: Task) -> list[Row]:
    study, _, config = study_of(Settings(), "shards", task)
    from headstart.gradient.engine import Training

    schedule = study.schedule
    training = Training(0.01, study.epochs, schedule.batch, schedule.decay, schedule.momentum)
    times = time_rounds(
        prepare(config, task.progress), training, study.repeats, study.methods, task.progress
    )
    unit = f"to {times[0].method}"
    return [
        row
        for timing in times
        for row in (
            Row(timing.method, SECONDS, None, (timing.seconds,), "s"),
            Row(timing.method, unit, timing.paper, (timing.ratio,), "×"),
            Row(timing.method, f"{FLOPS} {unit}", None, (timing.flops,), "×"),
        )
    ]


@dataclass(frozen=True)
class RoundTime:
    """Seconds of a round, next to the first method's of the same run, the paper's, and FLOPs."""

    method: str
    seconds: float
    ratio: float
    flops: float
    paper: float | None


def time_rounds(
    experiment: Experiment,
    training: Training,
    repeats: int,
    methods: Sequence[str],
    progress: Progress = silent,
) -> list[RoundTime]:
    """Return the shortest of a few rounds of every method, taken in turn on the same clients."""
    from headstart.gradient.flops import extractor_flops, head_flops
    from headstart.gradient.models import Spec
    from headstart.gradient.steps import Job

    config = experiment.config
    if not config.network:
        raise HeadstartError("network: expected one to train on images, got none")
    classes = experiment.context().classes
    dimension = NETWORKS[config.network].dimension
    spec = Spec(len(classes), dimension, config.network, batch_norm=config.batch_norm)
    jobs = {
        name: Job(name, spec, training, gradient.make(name).trains or "model") for name in methods
    }
    best = dict.fromkeys(jobs, np.inf)
    for done, (name, seconds) in enumerate(_rounds(experiment, jobs, classes, repeats), 1):
        best[name] = min(best[name], seconds)
        progress("rounds", done, repeats * len(jobs))
    forward = extractor_flops(config.network, (3, *config.sides)), head_flops(spec)
    flops = {
        name: sample_flops(job.recipe, job.train, *forward, training.epochs)
        for name, job in jobs.items()
    }
    first, numbers = next(iter(jobs)), _paper_seconds(experiment)
    base = numbers.get(first)
    return [
        RoundTime(
            name,
            best[name],
            best[name] / best[first],
            flops[name] / flops[first],
            number / base if (number := numbers.get(name)) and base else None,
        )
        for name in jobs
    ]


def _paper_seconds(experiment: Experiment) -> Mapping[str, float | None]:
    return paper.TABLE_4 if paper_split(experiment) == "shards" else {}


def _rounds(
    experiment: Experiment, jobs: Mapping[str, Job], classes: Any, repeats: int
) -> Iterator[tuple[str, float]]:
    from headstart.gradient.loop import Plan, begin, one_round
    from headstart.gradient.models import initial

    federation = experiment.federation
    cohort = min(experiment.config.cohort, len(federation.clients))
    plan = Plan(rounds=repeats + 1, clients=cohort, seed=experiment.config.seed)
    states = {name: begin(job, initial(job.model, None, 0)) for name, job in jobs.items()}
    for turn in range(repeats + 1):
        for name, job in jobs.items():
            began = time.perf_counter()
            states[name] = one_round(job, plan, federation, classes, states[name])
            if turn:  # the first makes buffers
                yield name, time.perf_counter() - began
    federation.begin_training("")


def conclusion(rows: Sequence[Row]) -> str:
    """Return what takes longest."""
    ratios = [row for row in rows if row.setting.startswith("to ")]
    slow = max(ratios, key=lambda row: row.mean)
    return (
        f"Longest: {slow.what}, {slow.mean:.2f} times {ratios[0].what}. A method without a second "
        "model costs what FedAvg does; a model beside costs its forward pass."
    )


REPRODUCTION = Reproduction(
    "feddr-table4",
    "How long a round takes",
    "FedDr+, table 4 (ratios; MobileNet on CIFAR-100, 10 shards per client)",
    ("cifar100",),
    1,
    run,
    conclusion,
    trains=True,
)

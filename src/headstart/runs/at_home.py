"""Phases 3 and 4 at home: closed-form personalization, and training by each client alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import HeadstartError
from headstart.evaluate import PERSONAL
from headstart.federation import steps
from headstart.gradient.engine import Training
from headstart.gradient.home import Home, at_home, results
from headstart.gradient.steps import Job, broadcast
from headstart.heads.linear import LinearHead
from headstart.runs.federate import Prepared
from headstart.runs.rates import rate_of
from headstart.runs.world import Stage, World
from headstart.sentences import Phase

BATCH, EPOCHS = 64, 25


def closed(world: World, stage: Stage, phase: Phase) -> Stage:
    """OLL; or the local prior or the residual ridge, which hold OLL, from the shared head."""
    _held_out(world, phase)
    if phase.name == "oll":
        stage = replace(stage, oll=True)
        judge(world, stage)
        return stage
    if stage.job is not None:
        raise HeadstartError(f"{phase.name}: expected a head that clients share, got personal ones")
    view = world.features(stage.params)
    step = steps.personal(view.config.smoothing, stage.leverage)
    words = steps.with_head(linear_head(world.prepared, stage))
    tallies = view.simulator.evaluate(step, words)
    before, after = PERSONAL.index("global"), PERSONAL.index(phase.name)
    rows = {name: (t[0], t[1 + before], t[1 + after]) for name, t in tallies.items()}
    world.personal = _told(rows)
    return replace(stage, oll=True, prior=phase.name == "prior")


def full(world: World, stage: Stage, phase: Phase, number: int) -> Stage:
    """Every client trains alone, from the model it has."""
    _held_out(world, phase)
    told: dict[str, Any] = dict(phase.settings)
    told = {"rate" if key == "lr" else key: value for key, value in told.items()}
    part: Any = phase.part or ("model" if stage.spec.network else "head")
    own: dict[str, Any] = {key: told.pop(key) for key in ("strength", "every_epoch") if key in told}
    home = Home(
        epochs=phase.rounds or EPOCHS, method=phase.name, oll=stage.oll, prior=stage.prior, **own
    )
    known = [one.name for one in fields(Training) if one.name != "epochs"]
    strange = [key for key in told if key not in known]
    if strange:
        expected = ", ".join(["strength", "every_epoch", *known])
        raise HeadstartError(f"FP: expected settings among {expected}, got {', '.join(strange)}")
    training = Training(**{"rate": rate_of(stage, part), "batch": BATCH, **told})
    job = Job("fedavg", stage.spec, training, part)
    judge(world, stage, job, home)
    samples = sum(len(client.labels) for client in world.prepared.simulator.data.values())
    world.meter.alone(job, samples, home.epochs)
    world.point(number, home.epochs, None)
    return stage


def judge(world: World, stage: Stage, job: Job | None = None, home: Home | None = None) -> None:
    """Each client's hits on its own part: the shared model's, and its own at the end."""
    simulator, classes = world.prepared.simulator, world.classes
    words = broadcast(stage.plain, stage.params, {}, classes)
    shared = simulator.evaluate(at_home(stage.plain, Home()), words)
    home = home or Home(oll=stage.oll, prior=stage.prior)
    job = job or stage.job or stage.plain
    words = broadcast(job, stage.params, {}, classes)
    if stage.head is not None and stage.head.prior is not None:
        words["carried"] = np.log(stage.head.prior)
    if home.every_epoch:
        test = world.prepared.test
        words |= {"outside/features": test.features, "outside/labels": test.labels}
    asked = at_home(job, home, begin=stage.job)
    own = simulator.evaluate(asked, words)
    rows = {}
    for name in simulator.clients:
        sizes, hits = results(own[name])
        rows[name] = (sizes[0], results(shared[name])[1][0, 0], hits[-1, 0])
    world.personal = _told(rows)
    if home.every_epoch:
        world.epochs = by_epoch(own)


def by_epoch(tallies: Mapping[str, NDArray[np.float64]]) -> list[dict[str, float]]:
    """Figure 12 of the papers: accuracy at home, on local and on absent classes, by epoch."""
    sizes = sum(results(values)[0] for values in tallies.values())
    hits = sum(results(values)[1] for values in tallies.values())
    shares = np.asarray(hits) / np.maximum(np.asarray(sizes), 1)
    return [
        {"epoch": epoch, "own": own, "local": local, "absent": absent}
        for epoch, (own, local, absent) in enumerate(shares.tolist())
    ]


def linear_head(prepared: Prepared, stage: Stage) -> LinearHead:
    """The shared head as one that closed forms and files know."""
    classes, counts = np.unique(prepared.train.labels, return_counts=True)
    weights, bias = (stage.params[f"head.{name}"].astype(np.float64) for name in ("weight", "bias"))
    if stage.head is not None:
        return replace(stage.head, weights=weights, bias=bias)
    # Cross-entropy alone leaves the global class frequencies in the scores.
    return LinearHead(
        weights, bias, classes, prior=counts / counts.sum(), temperature=stage.spec.temperature
    )


def _held_out(world: World, phase: Phase) -> None:
    if not world.prepared.config.held_out:
        raise HeadstartError(f"{phase}: expected held-out parts to test on; give held_out=0.45")


def _told(rows: Mapping[str, tuple[float, float, float]]) -> dict[str, Any]:
    tested_, before, after = (
        list(map(float, column)) for column in zip(*rows.values(), strict=True)
    )
    return {"clients": list(rows), "tested": tested_, "before": before, "after": after}

"""Phases 3 and 4 at home: closed-form personalization, and training by each client alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import gradient
from headstart.errors import HeadstartError
from headstart.evaluate import PERSONAL
from headstart.federation import steps
from headstart.gradient.engine import Training
from headstart.gradient.home import Home, at_home, results
from headstart.gradient.recipe import Recipe
from headstart.gradient.steps import Job, broadcast
from headstart.heads.linear import LinearHead
from headstart.results import Epoch, PersonalScores
from headstart.runs.federate import Prepared
from headstart.runs.rates import rate_of
from headstart.runs.world import Stage, World
from headstart.sentences import Phase, folded

BATCH, EPOCHS = 64, 25
ALIASES = {"lr": "rate", "local_momentum": "momentum"}  # a server has a momentum too


def closed(world: World, stage: Stage, phase: Phase) -> Stage:
    """OLL; or the local prior or the residual ridge, which hold OLL, from the shared head."""
    check(world, stage, phase)
    if phase.name == "oll":
        stage = replace(stage, oll=True)
        judge(world, stage)
        return stage
    view = world.features(stage.params)
    step = steps.personal(view.config.smoothing, stage.leverage)
    words = steps.with_head(linear_head(world, stage))
    with uncounted(view):
        tallies = view.simulator.evaluate(step, words)
    scores = PersonalScores.of(tallies, PERSONAL)
    kept = {name: scores.models[name] for name in ("global", phase.name)}
    world.personal = replace(scores, models=kept, final=phase.name)
    return replace(stage, oll=True, closed=phase.name)


def full(world: World, stage: Stage, phase: Phase, number: int) -> Stage:
    """Every client trains alone, from the model it has."""
    job, home = check(world, stage, phase)
    judge(world, stage, job, home)
    world.meter.alone(world.prepared, job, home.epochs)
    world.point(number, home.epochs, None)
    return stage


def check(world: World, stage: Stage, phase: Phase) -> tuple[Job, Home]:
    """What a phase at home is told, or why it cannot be; a closed form trains nothing."""
    config = world.prepared.config
    if not config.personal:
        raise HeadstartError(f"{phase}: expected held-out parts to test on; give held_out=0.45")
    if phase.kind == "closed":
        if phase.settings:
            strange = ", ".join(phase.settings)
            raise HeadstartError(f"{phase.name}: expected no settings, got {strange}")
        if phase.name != "oll" and stage.job is not None:
            raise HeadstartError(f"{phase.name}: expected a head that clients share, got their own")
        if phase.name != "oll" and stage.closed:
            raise HeadstartError(f"{phase.name}: expected one of prior and ridge, got both")
        return stage.plain, Home()
    if stage.closed == "ridge":
        raise HeadstartError("FP: expected to begin with a head, OLL or prior, got ridge")
    told = one_name(phase, phase.settings)
    algorithm, settings = _like(stage, told.pop("like", None))
    recipe = gradient.make(algorithm, settings)
    part = trained_part(world, phase)
    if phase.part is None:  # a part that is named trains whatever the algorithm does
        part = only_part(world, phase, recipe, part)
    own: dict[str, Any] = {key: told.pop(key) for key in ("strength", "every_epoch") if key in told}
    known = [one.name for one in fields(Training) if one.name != "epochs"]
    strange = ", ".join(key for key in told if key not in known)
    if strange:
        expected = ", ".join(["like", "strength", "every_epoch", *known])
        raise HeadstartError(f"FP: expected settings among {expected}, got {strange}")
    training = Training(**{"rate": rate_of(stage, part, recipe), "batch": BATCH, **told})
    home = Home(epochs=phase.rounds or EPOCHS, method=phase.name, **_begun(world, stage), **own)
    job = Job(algorithm, stage.spec, training, part, settings)
    _ = job.names  # which refuses a part that this model has not
    return job, home


def one_name(phase: Phase, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the names of their fields, each said once."""
    told: dict[str, Any] = {}
    for key, value in settings.items():
        name = ALIASES.get(key, key)
        if name in told:
            both = " and ".join(one for one in settings if ALIASES.get(one, one) == name)
            raise HeadstartError(f"{phase.name}: expected one of {both}, got both")
        told[name] = value
    return told


def _like(stage: Stage, said: Any) -> tuple[str, dict[str, Any]]:
    """Whose objective a client descends at home: the last training's, or that of an algorithm."""
    if said is None:
        last = stage.last
        return (last.algorithm, dict(last.settings or {})) if last else ("fedavg", {})
    return algorithm_named("like", str(said)), {}


def algorithm_named(what: str, said: str) -> str:
    """Its name in the catalogue, however a sentence may write it (FedDr+)."""
    names = {folded(name): name for name in gradient.catalogue()}
    if folded(said) not in names:
        raise HeadstartError(f"{what}: expected one of {', '.join(names.values())}, got {said!r}")
    return names[folded(said)]


def only_part(world: World, phase: Phase, recipe: Recipe, part: Any) -> Any:
    """What a method trains that leaves the other part as it is; of any other, `part`."""
    if recipe.trains is None:
        return part
    if phase.part not in (None, recipe.trains):
        raise HeadstartError(f"{phase}: expected to train the {recipe.trains} alone")
    if not world.prepared.config.network:
        raise HeadstartError(f"{phase}: expected an extractor that trains (network=…), got none")
    return recipe.trains


def trained_part(world: World, phase: Phase) -> Any:
    """What a phase trains; where samples are features, the model is its head."""
    if phase.part == "extractor" or world.prepared.config.network:
        return phase.part or "model"
    return "head"


def _begun(world: World, stage: Stage) -> dict[str, Any]:
    smoothing = world.prepared.config.smoothing
    return {"oll": stage.oll, "prior": stage.closed == "prior", "smoothing": smoothing}


@contextmanager
def uncounted(prepared: Prepared) -> Iterator[None]:
    """Tests of a simulation: what they send is no part of a method's bytes."""
    sent = dict(prepared.simulator.sent)
    yield
    prepared.simulator.sent.clear()
    prepared.simulator.sent.update(sent)


def judge(world: World, stage: Stage, job: Job | None = None, home: Home | None = None) -> None:
    """Each client's hits on its own part: the shared model's, and its own at the end."""
    simulator, classes = world.prepared.simulator, world.classes
    home = home or Home(**_begun(world, stage))
    job = job or stage.job or stage.plain
    words = broadcast(job, stage.params, {}, classes)
    carried = linear_head(world, stage).prior
    if carried is not None:
        words["carried"] = np.log(carried)
    if home.every_epoch:
        test = world.prepared.test
        words |= {"outside/features": test.features, "outside/labels": test.labels}
    plain = broadcast(stage.plain, stage.params, {}, classes)
    with uncounted(world.prepared):
        shared = simulator.evaluate(at_home(stage.plain, Home()), plain)
        own = simulator.evaluate(at_home(job, home, begin=stage.job), words)
    answered = [name for name in simulator.clients if name in own and name in shared]
    if not answered:  # over a network some may be silent
        raise HeadstartError("at home: expected an answer of some client, got none")
    tested, after = zip(*(_last(own[name]) for name in answered), strict=True)
    models = {"global": tuple(_last(shared[name])[1] for name in answered)}
    final = _own_name(stage, home)
    if final != "global":
        models[final] = after
    world.personal = PersonalScores(tuple(answered), tested, models, final)
    if home.every_epoch:
        world.epochs = by_epoch(own)


def _last(values: NDArray[np.float64]) -> tuple[float, float]:
    """A client's own test samples, and its hits on them in the last test."""
    sizes, hits = results(values)
    return float(sizes[0]), float(hits[-1, 0])


def _own_name(stage: Stage, home: Home) -> str:
    """What the model of a client is called: by what last made it the client's own."""
    if home.epochs:
        return "FP"
    if stage.job is not None:
        return stage.job.algorithm
    return "prior" if home.prior else "oll" if home.oll else "global"


def by_epoch(tallies: Mapping[str, NDArray[np.float64]]) -> tuple[Epoch, ...]:
    """Figure 12 of the papers: accuracy at home, on local and on absent classes, by epoch."""
    sizes = sum(results(values)[0] for values in tallies.values())
    hits = sum(results(values)[1] for values in tallies.values())
    shares = np.asarray(hits) / np.maximum(np.asarray(sizes), 1)
    return tuple(Epoch(epoch, *row) for epoch, row in enumerate(shares.tolist()))


def linear_head(world: World, stage: Stage) -> LinearHead:
    """The shared head as one that closed forms and files know."""
    classes, counts = world.counts
    weights, bias = (stage.params[f"head.{name}"].astype(np.float64) for name in ("weight", "bias"))
    if stage.head is not None and not stage.blind:
        return replace(stage.head, weights=weights, bias=bias)
    # Cross-entropy alone leaves the global class frequencies in the scores.
    about = dict(stage.head.provenance) if stage.head else {}
    prior, temperature = counts / counts.sum(), stage.spec.temperature
    return LinearHead(weights, bias, classes, None, prior, temperature, about)

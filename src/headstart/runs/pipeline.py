"""A sentence, carried out: initial head, training, partial and full personalization.

Each phase takes the model where the last one left it. What a run has to show is a curve (accuracy
by round, bytes and computation) and, with held-out parts, each client's hits before and after.

Closed forms need no torch: `phases` and `at_home`, which train, are imported where a phase does.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headstart import heads, optional
from headstart.errors import HeadstartError
from headstart.federation import steps
from headstart.gradient.job import head_params
from headstart.runs import closed_forms
from headstart.runs.checkpoint import Checkpoint
from headstart.runs.config import Named, RunConfig
from headstart.runs.execute import build_head, calibrated, head_leverage, measure_step
from headstart.runs.federate import Prepared
from headstart.runs.inputs import Progress, silent
from headstart.runs.meter import Meter
from headstart.runs.world import Params, Point, Stage, World, unwatched
from headstart.sentences import Phase, Sentence

if TYPE_CHECKING:
    from headstart.gradient.loop import State


def check_extras(config: RunConfig, *sentences: Sentence) -> None:
    """Refuse what the installation cannot do, before any data is read."""
    if config.network:
        optional.check("vision", "network", ("PIL", "torch"))
    for sentence in sentences:
        for phase in sentence.phases:
            if phase.name == "none" or phase.kind in ("train", "personal", "full"):
                optional.check("torch", str(phase))
    for name in config.writers:
        optional.check(name, "writers")


def tell(
    prepared: Prepared,
    sentence: Sentence,
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
    watch: Callable[[Point], None] = unwatched,
) -> tuple[dict[str, Any], Stage]:
    """Carry out a sentence; its results as plain values, and the model at the end."""
    began = time.perf_counter()
    simulator = prepared.simulator
    simulator.sent.clear()
    simulator.forget()
    world = World(prepared, progress, checkpoint, watch, meter=Meter.of(prepared))
    check_sentence(prepared, sentence)
    first, *rest = sentence.phases
    stage = start(world, first)
    saved = checkpoint.load(simulator) if checkpoint else None
    if saved:
        world.retold(saved[2])
    for number, phase in enumerate(rest, 1):
        if saved and number < saved[0]:  # its outcome is in the checkpoint, but for this
            stage = replace(stage, oll=stage.oll or phase.name == "oll")
            continue
        state = saved[1] if saved and number == saved[0] else None
        stage = _work(world, stage, phase, number, state)
    if prepared.config.personal and world.personal is None:
        closed_forms.evaluate_personal(world, stage)
    shared = [p["accuracy"] for p in world.curve if sentence.phases[p["phase"]].kind != "full"]
    colours = prepared.colours.plain()
    return {
        "sentence": str(sentence),
        "clients": len(simulator.clients),
        "phases": [str(phase) for phase in sentence.phases],
        "curve": world.curve,
        "accuracy": shared[-1],  # what happens at home leaves the shared model as it is
        "personal": world.personal,
        "epochs": world.epochs,
        "images": None if colours is None else {**colours, "accuracy": world.domains},
        "seconds": time.perf_counter() - began,
    }, stage


def check_sentence(prepared: Prepared, sentence: Sentence) -> None:
    """Every phase's settings, before any of them is carried out."""
    world = World(prepared)
    first, *rest = sentence.phases
    check_extras(prepared.config, sentence)
    if first.name != "none":
        _known(first)
    elif first.settings:
        raise HeadstartError(f"none: expected no settings, got {', '.join(first.settings)}")
    stage = Stage(world.spec(None), {})
    if prepared.config.network:
        from headstart.runs.network import check_statistics

        check_statistics(stage.spec, prepared.config)
    for phase in rest:
        stage = _checked(world, stage, phase, first)


def _checked(world: World, stage: Stage, phase: Phase, first: Phase) -> Stage:
    """What is known of the model after a phase that can be carried out."""
    if phase.kind == "closed":
        closed_forms.check(world, stage, phase)
        return replace(stage, closed=stage.closed if phase.name == "oll" else phase.name)
    from headstart.runs import at_home, phases

    if phase.kind == "full":
        at_home.check(world, stage, phase)
        return stage
    return phases.check(world, stage, phase, first)


def _known(phase: Phase) -> None:
    """The settings of an initial head are its own."""
    expected = inspect.signature(heads.federated()[phase.name]).parameters
    strange = ", ".join(key for key in phase.settings if key not in expected)
    if strange:
        raise HeadstartError(
            f"{phase.name}: expected settings among {', '.join(expected)}, got {strange}"
        )


def _work(world: World, stage: Stage, phase: Phase, number: int, state: State | None) -> Stage:
    if phase.kind == "closed":
        return closed_forms.personalized(world, stage, phase)
    from headstart.runs import at_home, phases

    if phase.kind == "full":
        return at_home.full(world, stage, phase, number)
    return phases.train(world, stage, phase, number, state)


# -- phase 1: an initial head ----------------------------------------------------------------------


def start(world: World, phase: Phase) -> Stage:
    """A head solved from one message a client, and calibrated; or a random one."""
    params: Params = {}
    if world.prepared.config.network or phase.name == "none":
        from headstart.runs.network import first_params

        params = first_params(world.spec(None), world.prepared.config)
    if phase.name == "none":
        stage = Stage(world.spec(None), params)
    else:
        stage = closed_form(world, phase, params)
    world.point(0, 0, world.accuracy(stage))
    return stage


def closed_form(world: World, phase: Phase, params: Params) -> Stage:
    """Every client speaks once."""
    view = world.features(params)
    method = build_head(view, Named(name=phase.name, **phase.settings))
    total = view.simulator.total(measure_step(view, method))
    world.meter.measured(view, method, through=bool(view.config.network))
    leverage = head_leverage(view, method, total)
    head = method.solve(total)
    if not getattr(method, "blind", False):
        world.meter.told(steps.with_head(head), view.simulator.clients)
        head = calibrated(view, head, leverage)
    spec = world.spec(head)
    return Stage(spec, {**params, **head_params(spec, head)}, method, head, leverage)

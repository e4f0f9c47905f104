"""Closed forms at home: OLL, or the local prior or the residual ridge, which hold OLL."""

from __future__ import annotations

from dataclasses import replace

from headstart.errors import HeadstartError
from headstart.evaluate import PERSONAL
from headstart.federation import steps
from headstart.runs.world import Stage, World, uncounted
from headstart.sentences import Phase


def check(world: World, stage: Stage, phase: Phase) -> None:
    """Refuse a closed form that cannot be had from this model."""
    check_tested(world, phase)
    if phase.settings:
        strange = ", ".join(phase.settings)
        raise HeadstartError(f"{phase.name}: expected no settings, got {strange}")
    if phase.name != "oll" and stage.job is not None:
        raise HeadstartError(f"{phase.name}: expected a head that clients share, got their own")
    if phase.name != "oll" and stage.closed:
        raise HeadstartError(f"{phase.name}: expected one of prior and ridge, got both")


def check_tested(world: World, phase: Phase) -> None:
    """Refuse a phase at home where clients have nothing to test it on."""
    if not world.prepared.config.personal:
        raise HeadstartError(f"{phase}: expected held-out parts to test on; give held_out=0.45")


def personalized(world: World, stage: Stage, phase: Phase) -> Stage:
    """The model with what each client now does to it."""
    check(world, stage, phase)
    if phase.name == "oll":
        stage = replace(stage, oll=True)
        evaluate_personal(world, stage)
        return stage
    _evaluate(world, stage, phase.name)
    return replace(stage, oll=True, closed=phase.name)


def evaluate_personal(world: World, stage: Stage) -> None:
    """Each client's hits on its own part: the shared model's, and its own."""
    if stage.trained or stage.spec.network:
        from headstart.runs.at_home import judge

        judge(world, stage)
    else:
        _evaluate(world, stage, stage.closed or ("oll" if stage.oll else "global"))


def _evaluate(world: World, stage: Stage, variant: str) -> None:
    """Of the shared head, and of what this variant of it is to each client."""
    view = world.features(stage.params)
    asked = tuple(name for name in PERSONAL if name in ("global", variant))
    step = steps.personal(view.config.smoothing, stage.leverage, asked)
    words = steps.with_head(world.linear_head(stage))
    with uncounted(view):
        tallies = view.simulator.evaluate(step, words)
    world.tested({name: (t[0], t[1], t[-1]) for name, t in tallies.items()})

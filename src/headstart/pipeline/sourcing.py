"""The Source phase: what a server learns from labelled scenes of its own, with clients' styles.

With a network: training in one place, from published weights; in the styles of clients each image
takes that of a client at random, anew in every epoch. Without one: a head in closed form, of the
cells of all images, each in a style drawn once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart import threads
from headstart.data import drawn
from headstart.data.backbones.catalogue import NETWORKS
from headstart.data.backbones.preprocess import Whole
from headstart.data.cells import CellSet
from headstart.data.labelled import Labelled
from headstart.data.scene_layouts import is_scenes, load_scenes
from headstart.data.scene_samples import SceneReader, SceneSamples
from headstart.data.scenes import SceneSet
from headstart.errors import DataError, HeadstartError
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.federation.styles import banked
from headstart.heads.base import choice
from headstart.heads.lda import LDA
from headstart.pipeline.adapting import STYLES, CellSource, ClientStyles
from headstart.pipeline.config import RunConfig
from headstart.pipeline.context import ModelState, PipelineContext

if TYPE_CHECKING:
    from headstart.pipeline.phases import Phase

DRAWN = "drawn"
EPOCHS, BATCH, RATE, MOMENTUM, HARDEST = 8, 8, 0.05, 0.9, 0.25
SHRINKAGE = 1e-3  # of the closed form: many cells need little


# -- which scenes are the source -------------------------------------------------------------------


def separated(config: RunConfig, data: Labelled) -> tuple[Labelled, SceneSet]:
    """The clients' data, and the source: one of the data's own drives, other scenes, or drawn."""
    name = str(config.source)
    scenes = data.scenes if isinstance(data, CellSet) else data
    if not isinstance(scenes, SceneSet):
        raise DataError(f"source: expected images with masks, got {type(data).__name__}")
    own = scenes.drives == name
    if own.any():
        if own.all():
            raise DataError(f"source: expected other drives than {name} for clients, got none")
        return data.subset(~own), replace(scenes.subset(own), test=None)
    held = _loaded(name, scenes)
    if held.names != scenes.names:
        raise DataError(
            f"source: expected the classes {', '.join(scenes.names)}, got {', '.join(held.names)}"
        )
    return data, replace(held, test=None)


def _loaded(name: str, scenes: SceneSet) -> SceneSet:
    if name == DRAWN:
        return drawn.streets(drives=25, frames=20)
    if is_scenes(name) or Path(name).exists():
        return load_scenes(name)
    drives = ", ".join(np.unique(scenes.drives).tolist()[:8])
    raise DataError(f"source: expected a drive ({drives}), scenes or {DRAWN}, got {name!r}")


def scene_samples(config: RunConfig, scenes: SceneSet) -> SceneSamples:
    """As a network sees them."""
    usual = NETWORKS[str(config.network)].preprocess
    whole = Whole(*config.sides, usual.interpolation, usual.mean, usual.std)
    rows = np.arange(len(scenes))
    return SceneSamples(SceneReader(scenes, whole), rows, np.full(len(rows), ""))


# -- the phase -------------------------------------------------------------------------------------


def check(phase: Phase, context: PipelineContext, state: ModelState) -> ModelState:
    """A source must be there; settings are those of a training, or none of a closed form."""
    if context.source is None:
        raise HeadstartError(f"{phase}: expected labelled scenes of the server, as source=…")
    if phase.name != "plain":
        choice("Source", phase.name, tuple(STYLES))
    if isinstance(context.source, CellSource):
        if phase.settings or phase.part or phase.rounds:
            raise HeadstartError(
                f"{phase}: expected the name of a style alone where no network trains, got settings"
            )
        context.trainings.append({})
        return replace(state, head=None)
    from headstart.pipeline import training

    job, _ = training.planned(context, replace(state, spec=context.spec(None)), _training(phase))
    context.trainings.append(training.settings_of(job))
    return replace(state, spec=context.spec(None), last=job)


def run(
    phase: Phase, context: PipelineContext, state: ModelState, number: int, resume: Any
) -> ModelState:
    """The model of the source, tested on the clients' domains."""
    if isinstance(context.source, CellSource):
        state = _solved(phase, context)
    else:
        state = _trained(phase, context, state)
    context.point(number, phase.rounds or 1, context.accuracy(state))
    return state


def _solved(phase: Phase, context: PipelineContext) -> ModelState:
    source, head = context.source, LDA(shrinkage=SHRINKAGE)
    assert isinstance(source, CellSource)
    rows = None
    if phase.name != "plain":
        styles = ClientStyles.of(context.federation, phase.name)
        context.meter.up += styles.up
        rows = styles.rows(phase.name)
    style = None if rows is None else phase.name
    measured: Any = source.measured(head, style, rows, context.config.seed, context.progress)
    with threads.for_size(measured.dimension):
        return ModelState(head=head.solve(measured), source_style=phase.name)


def _trained(phase: Phase, context: PipelineContext, state: ModelState) -> ModelState:
    from headstart.gradient.loop import Plan, begin, rounds
    from headstart.pipeline import training

    samples, seed = context.source, context.config.seed
    if phase.name != "plain":
        how = STYLES[phase.name]
        bank, answers = banked(context.federation, how)
        context.meter.up += sum(answer.up for answer in answers)
        every = replace(how, probability=1.0).with_styles(bank.without())  # type: ignore[type-var]
        samples = samples.augmented((every,))
    job, _ = training.planned(context, state, _training(phase))
    epochs = phase.rounds or EPOCHS
    alone = Simulator({"server": ClientData(samples)}, seed=seed)
    where = begin(job, state.params)
    for where in rounds(job, Plan(epochs, 1), alone, context.classes, where):  # noqa: B020
        context.progress(str(phase), where.round, epochs)
    return replace(state, params=where.params, last=job, source_style=phase.name)


def _training(phase: Phase) -> Phase:
    """The same settings as a training of the whole model; a round is an epoch over the source."""
    from headstart.pipeline.phases import FineTune

    usual = {"lr": RATE, "batch": BATCH, "momentum": MOMENTUM, "hardest": HARDEST}
    given = {("lr" if key == "rate" else key): value for key, value in phase.settings.items()}
    return FineTune.of("fedavg", {"part": "model", **usual, **given})

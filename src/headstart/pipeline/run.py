"""Pipelines as runs: one in its own folder, or several on the same splits beside each other.

A run of one pipeline and one seed is a folder. Several pipelines are folders 01, 02, … in a root,
several seeds folders seed-0, seed-1, … within; the run of a single seed moves into such a folder
when more are wanted. What is finished there is read and not run again, so that a comparison is
resumed and extended by saying it again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headstart import optional
from headstart.data.cells import CellSamples
from headstart.errors import HeadstartError
from headstart.federation.protocol import Federation
from headstart.federation.recorded import Recorded
from headstart.pipeline import outcome
from headstart.pipeline.config import RunConfig, parsed
from headstart.pipeline.context import ModelState, PipelineContext
from headstart.pipeline.events import RunEvents
from headstart.pipeline.experiment import Experiment, prepare
from headstart.pipeline.folder import FolderStore, RunFolder
from headstart.pipeline.inputs import Input
from headstart.pipeline.personalize import evaluate_cells, evaluate_personal, linear_head
from headstart.pipeline.pipeline import Pipeline
from headstart.pipeline.private import check_private, public, with_budget
from headstart.privacy.differential import Private
from headstart.progress import Progress, silent
from headstart.report import write_report
from headstart.report.pictures import PICTURES
from headstart.results import Arrival, Point, RunResult, SeedResult
from headstart.writers import writer

REPORTED = 30.0  # seconds after which the report of what is finished so far is made anew

# -- one pipeline over a federation ----------------------------------------------------------------


def check_pipeline(context: PipelineContext, pipeline: Pipeline) -> None:
    """Every phase's settings, before any of them is carried out."""
    need_extras(pipeline, context.config)
    if pipeline.trains or context.config.network:
        from headstart.pipeline.networks import check_network

        check_network(context)
        if context.config.dense:
            from headstart.pipeline import pixels

            pixels.check(context, pipeline)
    elif pipeline.init.name == "none":
        raise HeadstartError("pipeline: expected a head or a training, got none")
    check_private(context.config, pipeline)
    state = ModelState()
    context.trainings.clear()
    for phase in pipeline.phases:
        state = phase.check(context, state)


def need_extras(pipeline: Pipeline, config: RunConfig) -> None:
    """Refuse what needs a package that is not installed, before any data are read."""
    if config.network:
        optional.check("vision", "network", ("torch", "PIL"))
    for name in config.writers:
        optional.check(name, "writers")
    for phase in pipeline.phases:
        if phase.trains or phase.name == "none":
            optional.check("torch", str(phase))


def run_pipeline(context: PipelineContext, pipeline: Pipeline) -> ModelState:
    """Carry a pipeline out, from its last checkpoint where there is one; the model at the end."""
    check_pipeline(context, pipeline)
    federation, first, rest = context.federation, pipeline.init, pipeline.phases[1:]
    federation.begin_training("")
    context.arriving &= not rest and not context.config.network
    state = first.run(context, ModelState(), 0)
    saved = context.checkpoint.load() if context.checkpoint and pipeline.trains else None
    if saved:
        context.restore(saved.made)
        federation.restore(saved.federation)
    for number, phase in enumerate(rest, 1):
        if saved and number < saved.phase:  # its outcome is in the checkpoint, but for this
            state = replace(state, oll=state.oll or phase.name == "oll")
            continue
        state = phase.run(
            context, state, number, saved if saved and number == saved.phase else None
        )
    if context.config.dense:
        from headstart.pipeline import pixels

        context.pixels = pixels.every(context, state)
    elif context.config.personal and context.personal is None:
        evaluate_personal(context, state)
        evaluate_cells(context, state)
    return state


# -- simulated -------------------------------------------------------------------------------------


def simulate(
    experiment: Experiment,
    pipeline: Pipeline,
    *,
    progress: Progress = silent,
    checkpoint: Any = None,
    watch: Callable[[Point], None] | None = None,
    arrived: Callable[[Arrival], None] | None = None,
    federation: Federation | None = None,
    digest: str = "",
) -> tuple[SeedResult, ModelState, PipelineContext]:
    """Carry a pipeline out on an experiment, next to what pooled data would give."""
    began = time.perf_counter()
    how: dict[str, Any] = {"progress": progress, "checkpoint": checkpoint}
    if watch is not None:
        how["watch"] = watch
    if arrived is not None:
        how["arrived"] = arrived
    context = experiment.context(**how)
    if federation is not None:
        context.federation = federation
    state = run_pipeline(context, pipeline)
    seconds = time.perf_counter() - began
    result = outcome.seed_result(
        pipeline,
        context,
        state,
        outcome.data_summary(experiment, digest),
        outcome.split_summary(experiment),
        seconds=seconds,
        clients=outcome.client_rows(experiment, context, state.method),
        reveals=outcome.reveals(
            [client.samples for client in experiment.clients.values()], context.dimension
        ),
    )
    if isinstance(context.federation, Private):
        return public(result, context.federation.plan), state, context
    return _beside_pooled(experiment, context, state, result), state, context


def _beside_pooled(
    experiment: Experiment, context: PipelineContext, state: ModelState, result: SeedResult
) -> SeedResult:
    """Of a head that nothing followed: pooled data, message sizes, the path of λ."""
    method = state.method
    if not context.arriving or result.head is None or method is None:
        return result
    pooled = outcome.pooled(experiment, state, result.accuracy)
    if pooled and pooled.digest and result.head.digest != pooled.digest:
        raise HeadstartError(
            f"{result.head.name}: the federated total is not that of the pooled data; the kept "
            "uploads are of other samples"
        )
    head = replace(
        result.head,
        sizes=outcome.message_sizes(experiment, method),
        path=outcome.ridge_path(method, context.total),
    )
    return replace(result, head=head, pooled=pooled)


# -- in folders ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One pipeline with one seed, and the folder of its run."""

    pipeline: Pipeline
    seed: int
    path: Path


def run_config(
    config: RunConfig, path: str | Path, seeds: int = 1, progress: Progress = silent
) -> RunResult:
    """The configuration's own pipeline."""
    (result,) = compare([parsed(config.pipeline)], config, path, seeds, progress)
    return result


def compare(
    pipelines: Sequence[str | Pipeline],
    config: RunConfig,
    path: str | Path,
    seeds: int = 1,
    progress: Progress = silent,
    data: Input | None = None,
) -> tuple[RunResult, ...]:
    """Every pipeline with every seed, a folder each; one report of all in `path`.

    Seeds are `config.seed` and those that follow it. Nothing is written before all of it is
    known to be possible. `data`: samples in memory, instead of the configuration's.
    """
    root = Path(path)
    for place in (root, *root.glob("[0-9][0-9]*"), *root.glob("**/seed-*")):
        RunFolder(place).check_plugins()  # before their names are looked for
    parsed_pipelines = _different(pipelines)
    for pipeline in parsed_pipelines:
        need_extras(pipeline, _fitting(config, pipeline))
    numbers = range(config.seed, config.seed + _at_least_one(seeds))
    cells = list(_cells(parsed_pipelines, numbers, root))
    if len(parsed_pipelines) > 1 and (root / "config.yaml").exists():
        raise HeadstartError(f"output: {root} holds one run; name a new folder")
    held = _held_seeds(cells) if len(numbers) > 1 else {}
    experiments = Experiments(config, progress, data)
    for cell in cells:
        experiment = experiments[cell]
        check_pipeline(experiment.context(), cell.pipeline)
        place = cell.path.parent if held.get(cell.path.parent) == cell.seed else cell.path
        RunFolder(place).check(configured(experiment, cell.pipeline), experiments.digest(cell))
    for place, seed in held.items():
        _move_to_seed_folder(place, seed)
    results: dict[Pipeline, list[SeedResult]] = {pipeline: [] for pipeline in parsed_pipelines}
    reported = time.monotonic()
    for cell in cells:
        result = load_or_run(
            experiments[cell],
            cell.pipeline,
            cell.path,
            experiments.digest(cell),
            progress,
        )
        results[cell.pipeline].append(result)
        if time.monotonic() > reported + REPORTED or cell is cells[-1]:
            write_report(_gathered(results, root, parsed_pipelines), root)
            reported = time.monotonic()
    return tuple(_gathered(results, root, parsed_pipelines))


def _gathered(
    results: Mapping[Pipeline, Sequence[SeedResult]], root: Path, pipelines: Sequence[Pipeline]
) -> list[RunResult]:
    several = len(pipelines) > 1
    return [
        RunResult(tuple(runs), root / f"{number:02d}" if several else root)
        for number, runs in enumerate(results.values(), 1)
        if runs
    ]


def run_folders(root: Path) -> list[Path]:
    """The folders of single runs in a folder: itself, of its seeds, of several pipelines."""
    if (root / "config.yaml").exists() or not root.is_dir():
        return [root]
    parts = [root, *sorted(root.glob("[0-9][0-9]*"))]
    places = [place for part in parts for place in (part, *sorted(part.glob("seed-*"), key=_seed))]
    return [place for place in places if (place / "config.yaml").exists()] or [root]


def load_results(root: Path) -> tuple[RunResult, ...]:
    """The results in a folder: of one run, of its seeds, or of several pipelines."""
    if not root.is_dir():
        raise HeadstartError(f"run: expected a folder, got {root}")
    parts: dict[Path, list[SeedResult]] = {}
    for place in run_folders(root):
        if (place / "results.json").exists():
            part = place.parent if place.name.startswith("seed-") else place
            parts.setdefault(part, []).append(RunFolder(place).result())
    if not parts:
        raise HeadstartError(f"run: {root} holds no results")
    return tuple(RunResult(tuple(runs), part) for part, runs in parts.items())


def _seed(path: Path) -> int:
    number = path.name.removeprefix("seed-")
    return int(number) if number.isdigit() else 0


def _different(pipelines: Sequence[str | Pipeline]) -> list[Pipeline]:
    if not pipelines:
        raise HeadstartError("compare: expected at least one pipeline, got none")
    read = [parsed(pipeline) for pipeline in pipelines]
    twice = next((text for text, times in Counter(map(str, read)).items() if times > 1), None)
    if twice:
        raise HeadstartError(f"compare: expected different pipelines, got {twice!r} twice")
    return read


def _at_least_one(seeds: int) -> int:
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise HeadstartError(f"seeds: expected how many (1 or more), got {seeds!r}")
    return seeds


def _cells(pipelines: Sequence[Pipeline], seeds: Sequence[int], root: Path) -> Iterator[Cell]:
    """Seed by seed, for the pipelines of a seed share its split."""
    for seed in seeds:
        for number, pipeline in enumerate(pipelines, 1):
            folder = root / f"{number:02d}" if len(pipelines) > 1 else root
            yield Cell(pipeline, seed, folder / f"seed-{seed}" if len(seeds) > 1 else folder)


def _held_seeds(cells: Sequence[Cell]) -> dict[Path, int]:
    """Folders that hold a run of one seed themselves where several are wanted, and that seed."""
    seeds: dict[Path, int] = {}
    for place in dict.fromkeys(cell.path.parent for cell in cells):
        if (place / "config.yaml").exists():
            seeds[place] = RunFolder(place).config.seed
            if (place / f"seed-{seeds[place]}").is_dir():  # a move that was cut short
                _move_to_seed_folder(place, seeds.pop(place))
    for place, seed in seeds.items():
        if seed not in [cell.seed for cell in cells]:
            raise HeadstartError(
                f"output: {place} holds a run of seed {seed}; ask for seeds with that one among "
                "them, or name a new folder"
            )
    return seeds


def _move_to_seed_folder(place: Path, seed: int) -> None:
    """Make the run that a folder holds the first of several; what was moved stays moved."""
    inner = place / f"seed-{seed}"
    inner.mkdir(exist_ok=True)
    for item in sorted(place.iterdir(), key=lambda item: item.name == "config.yaml"):
        if not item.name.startswith("seed-"):
            item.rename(inner / item.name)  # config.yaml last: until then the move is unfinished


def _fitting(config: RunConfig, pipeline: Pipeline) -> RunConfig:
    """A head alone is of the cells of an extractor, beside pipelines that train a dense network."""
    if not config.dense or pipeline.trains:
        return config
    return config.model_copy(update={"network": None, "augment": None, "inference": None})


class Experiments:
    """The experiment of each cell, made when it is needed; those of one seed are kept."""

    def __init__(
        self, config: RunConfig, progress: Progress = silent, data: Input | None = None
    ) -> None:
        self.config, self.progress, self.data = config, progress, data
        self._made: dict[tuple[int, str | None], Experiment] = {}
        self._digests: dict[tuple[int, str | None], str] = {}

    def __getitem__(self, cell: Cell) -> Experiment:
        config = _fitting(self.config, cell.pipeline).model_copy(update={"seed": cell.seed})
        key = cell.seed, config.network
        if key not in self._made:
            self._made = {held: made for held, made in self._made.items() if held[0] == cell.seed}
            self._made[key] = prepare(config, self.progress, self.data)
        return self._made[key]

    def digest(self, cell: Cell) -> str:
        """SHA-256 of every client's samples."""
        key = cell.seed, _fitting(self.config, cell.pipeline).network
        if key not in self._digests:
            self._digests[key] = self[cell].digest()
        return self._digests[key]


def load_or_run(
    experiment: Experiment, pipeline: Pipeline, path: Path, digest: str, progress: Progress
) -> SeedResult:
    """A pipeline in its folder; one that is finished there is read."""
    config, folder = configured(experiment, pipeline), RunFolder(path)
    if folder.is_of(config, digest):
        if (path / "results.json").exists():
            return folder.result()
        (path / "model.safetensors").unlink(missing_ok=True)  # of a run cut short at its very end
    folder.create(config, digest)
    events = RunEvents(folder, private=config.private is not None)
    events.start(config, str(pipeline), len(experiment.federation.clients))
    checkpoint = None
    if pipeline.trains:
        from headstart.pipeline.checkpoint import Checkpoint

        checkpoint = Checkpoint(path / "checkpoint.safetensors", config.checkpoint_every)
    watch, close = _watching(config, path, events)
    with events.stop_noted():
        try:
            result, state, context = simulate(
                experiment,
                pipeline,
                progress=events.noting(progress),
                checkpoint=checkpoint,
                watch=watch,
                arrived=events.arrived,
                federation=recorded(experiment, pipeline, folder),
                digest=digest,
            )
        finally:
            close()
        picture(folder, state, context)
        save(folder, result, state, context)
    if checkpoint:
        checkpoint.remove()
    folder.event("finished", accuracy=result.accuracy)
    return result


def configured(experiment: Experiment, pipeline: Pipeline) -> RunConfig:
    """What the folder of a pipeline says it holds."""
    return experiment.config.model_copy(update={"pipeline": pipeline.to_plain()})


def recorded(experiment: Experiment, pipeline: Pipeline, folder: RunFolder) -> Federation | None:
    """Messages of a head that nothing follows are kept, for late clients and for forgetting.

    Of a private run its releases are, and what they cost.
    """
    config = experiment.config
    if config.private is not None:
        return with_budget(experiment.federation, folder.path)
    alone = len(pipeline.phases) == 1 and not config.network and pipeline.init.name != "none"
    if not alone or not config.keep_uploads or config.federation.grouped:
        return None
    store = FolderStore(folder, pipeline.init.name, experiment.federation.clients)
    return Recorded(experiment.federation, store)


def picture(folder: RunFolder, state: ModelState, context: PipelineContext) -> None:
    """What a report shows of scenes."""
    if isinstance(context.test, CellSamples) and state.head is not None:
        from headstart.pipeline.segmenting import write_pictures

        write_pictures(linear_head(context, state), context.test, folder.path / PICTURES)


def save(
    folder: RunFolder, result: SeedResult, state: ModelState, context: PipelineContext
) -> None:
    """The model, and the total that it can go on from; a folder with results is finished."""
    if state.spec is None or state.spec.network is None:
        head = linear_head(context, state)
        head.provenance["extractor"] = context.extractor
        context.images.note(head.provenance)
        if context.total is not None and not isinstance(context.federation, Private):
            folder.save_total(context.total, context.dimension, context.messages)
        head.save(folder.path / "model.safetensors")
    else:
        about = {}
        if context.config.dense:
            from headstart.pipeline import pixels

            about = pixels.described(context, state)
        state.save(folder.path / "model.safetensors", context.images.plain(), about)
    if state.clusters is not None:
        for cluster, own in state.clusters.states(state).items():
            own.save(folder.path / f"cluster-{cluster}.safetensors")
    folder.save_result(result)


def _watching(
    config: RunConfig, path: Path, events: RunEvents
) -> tuple[Callable[[Point], None], Callable[[], None]]:
    """The events of the run and the configuration's metric writers, as one."""
    writers = [writer(name, path) for name in config.writers]

    def watch(point: Point) -> None:
        events.point(point)
        for each in writers:
            for key, value in point.values().items():
                if key not in ("phase", "round") and value is not None:
                    each.scalar(f"phase {point.phase}/{key}", value, point.round)

    def close() -> None:
        for each in writers:
            each.close()

    return watch, close

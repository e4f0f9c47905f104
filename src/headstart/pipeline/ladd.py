"""The LADD phase: a labelled source, clients without labels, in clusters by their styles.

`LADD-100(ψ)` trains the whole network and gives each cluster a head of its own (`LADD-100`: all of
it, φ: the backbone, own=batch-norm or own=none). Without a network, `LADD` is the closed form of
`adapting`. A test image goes to the cluster whose centre is nearest to its style.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from headstart.data.augment.restyle import FDA
from headstart.data.backbones.preprocess import as_rgb
from headstart.data.restyled import restyled
from headstart.data.scene_samples import SceneReader, SceneSamples
from headstart.errors import HeadstartError
from headstart.gradient.clusters import Clusters, clustered
from headstart.heads.base import choice
from headstart.heads.lda import LDA
from headstart.pipeline.adapting import STYLES, CellSource, ClientStyles, adapted
from headstart.pipeline.context import ModelState, Params, PipelineContext
from headstart.pipeline.sourcing import SHRINKAGE

if TYPE_CHECKING:
    from headstart.gradient.cluster_models import Own
    from headstart.pipeline.phases import Phase

OWN = {None: "all", "model": "all", "head": "head", "extractor": "extractor"}
BATCH, MOMENTUM = 6, 0.9
CLOSED = ("style", "trust", "sure", "top", "clusters")  # settings of the closed form


@dataclass(frozen=True, eq=False)
class ClusterParams:
    """The parameters of each cluster; those of an image are of the nearest by its style."""

    clusters: Clusters
    params: Mapping[int, Params]
    restyle: bool = False  # an image also takes the mean style of its cluster before the test

    def parts(self, samples: SceneSamples) -> dict[int, SceneSamples]:
        """The test images of each cluster that has some."""
        scenes = samples.reader.scenes
        styles = [FDA().measured(as_rgb(scenes.open(row))) for row in samples.rows.tolist()]
        nearest = np.array([self.clusters.nearest(style) for style in styles], np.int64)
        return {
            cluster: self._seen(
                replace(
                    samples,
                    rows=samples.rows[nearest == cluster],
                    labels=samples.labels[nearest == cluster],
                ),
                cluster,
            )
            for cluster in np.unique(nearest).tolist()
        }

    def states(self, state: ModelState) -> dict[int, ModelState]:
        """The model of each cluster, to be saved."""
        return {cluster: replace(state, params=own) for cluster, own in self.params.items()}

    def _seen(self, samples: SceneSamples, cluster: int) -> SceneSamples:
        if not self.restyle:
            return samples
        reader = samples.reader
        scenes = restyled(reader.scenes, FDA(), self.clusters.centres[cluster])
        return replace(samples, reader=SceneReader(scenes, reader.preprocess))


def check(phase: Phase, context: PipelineContext, state: ModelState) -> ModelState:
    """After a Source; every setting, before anything begins."""
    if context.source is None or (state.last is None and not _closed(context)):
        raise HeadstartError(f"{phase}: expected a Source before it, and source=…")
    clusters, own, settings = _said(phase, context)
    if _closed(context):
        unknown = ", ".join(key for key in phase.settings if key not in CLOSED)
        if unknown or phase.part or phase.rounds:
            got = unknown or ("a part" if phase.part else "rounds")
            raise HeadstartError(
                f"{phase}: expected settings among {', '.join(CLOSED)} in closed form, got {got}"
            )
        choice("style", settings.get("style", "lab"), tuple(STYLES))
        context.trainings.append(dict(phase.settings))
        return state
    from headstart.gradient.cluster_models import own_names
    from headstart.pipeline import training

    job, _ = _planned(phase, context, state)
    own_names(job.model, cast("Own", own))
    context.trainings.append({**training.settings_of(job), "own": own, "clusters": clusters})
    return replace(state, last=job)


def run(
    phase: Phase, context: PipelineContext, state: ModelState, number: int, resume: Any
) -> ModelState:
    """Clusters, then one round of pseudo-labels in closed form, or the rounds of a training."""
    if _closed(context):
        return _adapted(phase, context, state, number)
    return _trained(phase, context, state, number)


def _closed(context: PipelineContext) -> bool:
    return isinstance(context.source, CellSource)


def _said(phase: Phase, context: PipelineContext) -> tuple[int, str, dict[str, Any]]:
    """How many clusters (0: by silhouette), what is each one's own, and all other settings."""
    rest: dict[str, Any] = dict(phase.settings)
    count = rest.pop("clusters", 0)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise HeadstartError(f"clusters: expected how many, 0 for by silhouette, got {count!r}")
    if count > len(context.federation.clients):
        raise HeadstartError(
            f"clusters: expected at most the {len(context.federation.clients)} clients, got {count}"
        )
    own = rest.pop("own", OWN[phase.part])
    if phase.part and "own" in phase.settings:
        raise HeadstartError(f"{phase}: expected a part or own=…, got both")
    return count, own, rest


def _clusters(context: PipelineContext, styles: ClientStyles, count: int) -> Clusters:
    """By silhouette, or as many as was said; what was found is noted."""
    rows = styles.by_kind["fda"]
    seed = context.config.seed
    if count == 1:
        centre = np.mean(list(rows.values()), axis=0)[None]
        return Clusters(dict.fromkeys(rows, 0), centre, {})
    found = clustered(rows, [count] if count else None, seed=seed)
    if count and len(found) != count:
        raise HeadstartError(f"clusters: expected {count} of clients with different styles")
    sizes = ", ".join(str(len(found.members(s))) for s in range(len(found)))
    context.note(f"{len(found)} clusters of clients by their styles, of {sizes}.")
    return found


# -- in closed form --------------------------------------------------------------------------------


def _adapted(phase: Phase, context: PipelineContext, state: ModelState, number: int) -> ModelState:
    count, _, settings = _said(phase, context)
    style = settings.pop("style", state.source_style or "lab")
    style = "lab" if style == "plain" else style
    styles = ClientStyles.of(context.federation, "fda", style)
    context.meter.up += styles.up
    source = context.source
    assert isinstance(source, CellSource)
    found = adapted(
        context.federation,
        source,
        LDA(shrinkage=SHRINKAGE),
        styles,
        style=style,
        clusters=_clusters(context, styles, count),
        seed=context.config.seed,
        progress=context.progress,
        **settings,
    )
    context.meter.up += found.up
    context.note(
        "model.safetensors is the head of the source, before any client was asked for labels; "
        "each cluster's own is in cluster-….safetensors."
    )
    state = replace(state, clusters=found)
    context.point(number, 1, context.accuracy(state))
    return state


# -- with gradients --------------------------------------------------------------------------------


def _planned(phase: Phase, context: PipelineContext, state: ModelState) -> Any:
    from headstart.pipeline import training
    from headstart.pipeline.phases import FineTune

    _, _, settings = _said(phase, context)
    rest = {key: value for key, value in settings.items() if key not in _OURS}
    usual: dict[str, Any] = {"batch": BATCH}
    if not {"momentum", "local_momentum"} & set(rest):
        usual["momentum"] = MOMENTUM
    rounds = {} if phase.rounds is None else {"rounds": phase.rounds}
    plain = FineTune.of(phase.name, {**rounds, "part": "model", **usual, **rest})
    return training.planned(context, replace(state, spec=context.spec(None)), plain)


_OURS = ("start", "every", "restyle")


def _trained(phase: Phase, context: PipelineContext, state: ModelState, number: int) -> ModelState:
    from headstart.gradient.cluster_models import AveragedTeacher
    from headstart.gradient.clustered import Clustering, begin_clustered, clustered_rounds

    job, plan = _planned(phase, context, state)
    count, own, settings = _said(phase, context)
    styles = ClientStyles.of(context.federation, "fda")
    context.meter.up += styles.up
    clusters = _clusters(context, styles, count)
    teacher = AveragedTeacher(settings.get("start", plan.rounds // 4), settings.get("every", 1))
    clustering = Clustering(clusters.of, cast("Own", own), teacher)
    context.federation.begin_training(f"{number} {phase.name}")
    where = begin_clustered(job, clustering, state.params)
    up, down, every = context.meter.up, context.meter.down, context.config.evaluate_every
    now = state
    for after in clustered_rounds(
        job, plan, context.federation, context.classes, clustering, where
    ):
        cohort = plan.cohort(context.federation.clients, after.round - 1)
        context.meter.trained(context, job, cohort)
        context.meter.up, context.meter.down = up + after.up, down + after.down
        if after.round == plan.rounds or after.round % every == 0:
            params = {cluster: after.params(cluster) for cluster in range(clustering.count)}
            found = ClusterParams(clusters, params, bool(settings.get("restyle", False)))
            now = replace(state, params=after.mean(), clusters=found, last=job)
            context.point(number, after.round, context.accuracy(now))
        context.progress(str(phase), after.round, plan.rounds)
    context.note(
        "model.safetensors is the mean of the clusters' models; each one's own is in "
        "cluster-….safetensors."
    )
    return now

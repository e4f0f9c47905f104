"""What the phases of a pipeline act on: a federation, the settings, the server's own test set.

Of clients they know what they ask for by steps, nothing else.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.backbones.catalogue import NETWORKS
from headstart.data.cells import CellSamples
from headstart.data.samples import Samples
from headstart.data.scene_samples import SceneSamples
from headstart.errors import StepRefusedError
from headstart.evaluate import Scores, tested
from headstart.federation import steps
from headstart.federation.protocol import Answer, Federation, Step
from headstart.files import write_bytes
from headstart.heads.base import Head
from headstart.heads.leverage import Leverage
from headstart.heads.linear import LinearHead
from headstart.pipeline.augmenting import ImageRecord
from headstart.pipeline.config import RunConfig
from headstart.pipeline.costs import Meter
from headstart.progress import Progress, silent
from headstart.results import Arrival, Epoch, PersonalScores, PixelScores, Point
from headstart.statistics import wire
from headstart.statistics.confusion import Confusion
from headstart.statistics.exact import bound_for

if TYPE_CHECKING:
    from headstart.gradient.models import Spec
    from headstart.gradient.steps import Job
    from headstart.pipeline.checkpoint import Checkpoint

Params = dict[str, NDArray[Any]]
_MARGIN = 4.0  # a client's features may be larger than those of the test set
DIAGNOSED = 500  # test samples that every client of a round evaluates


def _scores_of(found: Confusion) -> Scores:
    return Scores(found.classes, found.matrix)


def unwatched(point: Point | Arrival) -> None:
    """Nobody writes metrics elsewhere."""


@dataclass(frozen=True, eq=False)
class ModelState:
    """The model between two phases, and what is known of it.

    A head that nothing has trained yet is `head` alone; `trainable` gives it parameters, for which
    torch is needed.
    """

    method: Head | None = None  # that solved the initial head; None: a random one
    head: LinearHead | None = None
    leverage: Leverage = field(default_factory=Leverage)
    spec: Spec | None = None
    params: Params = field(default_factory=dict)
    job: Job | None = None  # of the last partial personalization, whose memories clients hold
    oll: bool = False
    closed_form: str | None = None  # the closed-form personalization, if one was said
    last: Job | None = None  # of the last training, whose objective clients go on with alone
    clusters: Any = None  # LADD: heads or parameters by cluster, that tests look up
    source_style: str = ""  # of the source that it began with

    def save(
        self,
        path: Path,
        images: Mapping[str, Any] | None = None,
        scenes: Mapping[str, Any] | None = None,
    ) -> None:
        """All parameters by name, and what they are (`about`, JSON), as safetensors.

        `images`: what was done to those that it was trained on. `scenes`: of a dense network, its
        classes, its input and how it is tested.
        """
        assert self.spec is not None
        more = {"images": images, "scenes": scenes}
        facts = {**self.spec.plain(), **{key: value for key, value in more.items() if value}}
        about = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        write_bytes(path, wire.encode("model", {**self.params, "about": about}))

    @property
    def data_free(self) -> bool:
        """Whether the head began without having seen a feature."""
        return getattr(self.method, "data_free", False)

    @property
    def plain(self) -> Job:
        """The model as it is, for work that trains nothing."""
        from headstart.gradient.steps import Job

        assert self.spec is not None
        return Job("fedavg", self.spec)


@dataclass(frozen=True, eq=False)
class Holdings:
    """How many samples of which classes there are; of a masked group's members, the means."""

    classes: NDArray[Any]
    counts: NDArray[np.int64]
    samples: Mapping[str, float]  # by client
    own: Mapping[str, float]  # classes, by client

    @classmethod
    def of(cls, federation: Federation) -> Holdings:
        """Asked of every client; sums say no more than their members' mean.

        Where clients are private nothing is known.
        """
        samples: dict[str, float] = {}
        held: dict[str, float] = {}
        shown: dict[Any, int] = {}
        for answer in _counted(federation):
            statistic, members = answer.statistic, len(answer.clients)
            present = statistic.counts > 0
            for name in answer.clients:
                samples[name] = statistic.samples / members
                held[name] = float(present.sum())
            counted = zip(statistic.classes.tolist(), statistic.counts.tolist(), strict=True)
            for label, count in counted:
                shown[label] = shown.get(label, 0) + count
        labels = sorted(label for label, count in shown.items() if count)
        return cls(np.array(labels), np.array([shown[label] for label in labels]), samples, held)

    @property
    def total(self) -> float:
        return sum(self.samples.values())

    def sizes(self, cohort: Sequence[str]) -> list[float]:
        """Samples of each of a cohort."""
        return [self.samples.get(name, 0.0) for name in cohort]


def _counted(federation: Federation) -> list[Answer]:
    try:
        return list(federation.answers(steps.counts()))
    except StepRefusedError:
        return []


@dataclass(eq=False)
class PipelineContext:
    """What the phases of one run share: the federation, the settings and what they measure."""

    federation: Federation
    config: RunConfig
    test: Samples  # the server's own
    shape: tuple[int, ...]  # of one sample
    source: Any = None  # labelled scenes of the server: SceneSamples, or a CellSource
    extractor: dict[str, Any] | None = None  # what made features that stay as they are
    images: ImageRecord = field(default_factory=ImageRecord)
    progress: Progress = silent
    checkpoint: Checkpoint | None = None
    watch: Callable[[Point], None] = unwatched
    arrived: Callable[[Arrival], None] = unwatched
    arriving: bool = True  # whether a head alone is solved and tested as messages come
    arrivals: list[Arrival] = field(default_factory=list)
    sent: dict[str, float] = field(default_factory=dict)  # bytes of each client's message for it
    messages: dict[str, str] = field(default_factory=dict)  # SHA-256 of each
    total: Any = None  # of all messages, where nothing follows the head
    curve: list[Point] = field(default_factory=list)
    personal: PersonalScores | None = None
    epochs: list[Epoch] | None = None
    domains: dict[str, float] | None = None  # the last accuracy, by the domain of test images
    pixels: tuple[PixelScores, ...] = ()  # of a dense network, at the end
    matrices: dict[str, Confusion] = field(default_factory=dict)  # the last of a dense network
    notes: list[str] = field(default_factory=list)  # what a reader of the results must know
    trainings: list[dict[str, Any]] = field(default_factory=list)  # settings of each, as resolved
    _extractor: tuple[Params | None, dict[str, NDArray[Any]]] = field(
        default_factory=lambda: (None, {}), init=False, repr=False
    )

    _scored: tuple[Any, Scores] | None = field(default=None, init=False, repr=False)

    @functools.cached_property
    def meter(self) -> Meter:
        """The costs so far."""
        return Meter.of(self)

    @functools.cached_property
    def holdings(self) -> Holdings:
        """Of the clients' training parts."""
        return Holdings.of(self.federation)

    @property
    def classes(self) -> NDArray[Any]:
        """Those that clients train on; of scenes those of their masks, which are agreed on."""
        if isinstance(self.test, SceneSamples):
            return np.array(self.test.names)
        if self.source is not None and isinstance(self.test, CellSamples):
            return np.unique(np.array(self.test.data.names))
        return self.holdings.classes

    @property
    def dimension(self) -> int:
        """Of features, as they are or as the network makes them."""
        if not self.config.network:
            return self.shape[0]
        return NETWORKS[self.config.network].dimension

    def spec(self, head: LinearHead | None) -> Spec:
        """The model: a head's own temperature and feature map, or a plain softmax."""
        from headstart.gradient.models import Spec

        config = self.config
        mapped = head.feature_map if head else None
        return Spec(
            len(self.classes),
            head.dimension if head else self.dimension,
            network=config.network,
            temperature=(head.temperature if head else None) or 1.0,
            batch_norm=config.batch_norm,
            feature_map=(mapped.dimension, mapped.bandwidth, mapped.seed) if mapped else None,
        )

    # -- features, as closed forms see them ----------------------------------------------------

    def through(self, step: Step, params: Params) -> tuple[Step, dict[str, NDArray[Any]]]:
        """A step on the features that a model's extractor makes, and that extractor's arrays."""
        if not self.config.network:
            return step, {}
        from headstart.gradient.refit import extractor_arrays

        spec = self.spec(None)
        last, arrays = self._extractor
        if last is not params:  # the same arrays for the same model: clients look through it once
            arrays = extractor_arrays(spec, params)
            self._extractor = params, arrays
        return steps.through(step, spec.plain()), arrays

    def test_features(self, params: Params) -> NDArray[Any]:
        """The server's own test samples, as closed forms see them."""
        if not self.config.network:
            return self.test.read()[0]
        from headstart.gradient.models import build
        from headstart.gradient.refit import features_of

        return features_of(build(self.spec(None)), params, self.test)

    def bound(self, params: Params) -> float:
        """Of the lattice: what was said, or what features of the test samples stay in."""
        if self.config.bound != "auto":
            return float(self.config.bound)
        return _MARGIN * bound_for(self.test_features(params))

    # -- what is known at a point ---------------------------------------------------------------

    def accuracy(self, state: ModelState) -> float | None:
        """Of the shared model, on the outside test set, if there is one."""
        if self.config.dense:
            from headstart.pipeline import pixels

            self.matrices = pixels.evaluated(self, state)
            found = self.matrices.get(pixels.UNSEEN)
            return None if found is None else found.accuracy
        if not len(self.test):
            return None
        if state.spec is None and isinstance(self.test, CellSamples):
            if state.clusters is not None:
                self._scored = state.clusters, _scores_of(state.clusters.confusion(self.test))
                return self._scored[1].accuracy
            assert state.head is not None
            return self.scores(state.head).accuracy
        if state.spec is None:
            assert state.head is not None
            right = state.head.predict(self.test.read()[0]) == self.test.labels
        else:
            from headstart.gradient.local import predicted
            from headstart.gradient.steps import tensors

            at = predicted(state.plain, tensors(state.params), self.test)
            right = self.classes[at] == self.test.labels
        self.domains = self.images.by_domain(right)
        return float(right.mean())

    def scores(self, head: LinearHead) -> Scores:
        """Of a head on the outside test set; of scenes, which take their time, the last is kept."""
        if self._scored is None or self._scored[0] is not head.weights:
            self._scored = head.weights, tested(head, self.test)
        return self._scored[1]

    @functools.cached_property
    def outside(self) -> dict[str, NDArray[Any]]:
        """Some test samples of known classes, for diagnostics."""
        usable = np.flatnonzero(np.isin(self.test.labels, self.classes))
        rng = np.random.default_rng([self.config.seed, 0xD1A6])
        some = np.sort(rng.permutation(usable)[:DIAGNOSED])
        features, labels = self.test.read(some)
        return {"outside/features": features, "outside/labels": labels}

    def point(
        self,
        phase: int,
        round_: int,
        accuracy: float | None,
        diagnosis: Mapping[str, float] | None = None,
    ) -> None:
        """Add a point to the curve; `diagnosis`: what else is known of its round."""
        measured: dict[str, Any] = {
            "diagnosis": diagnosis or None,
            "pixels": self._of_pixels() or None,
        }
        measured |= self.meter.costs(len(self.federation.clients))
        self.curve.append(Point(phase, round_, accuracy, **measured))
        self.watch(self.curve[-1])

    def _of_pixels(self) -> dict[str, float]:
        """What a point of a dense network tells besides its pixel accuracy on unseen images."""
        found: dict[str, float] = {}
        for test, matrix in self.matrices.items():
            before = "" if test == "unseen" else f"{test}_"
            found[f"{before}mean_iou"] = matrix.mean_iou
            if before:
                found[f"{before}accuracy"] = matrix.accuracy
        return found

    def received(self, answer: Answer) -> Answer:
        """Count what came for the initial head; the same answer."""
        self.meter.up += answer.up
        for name in answer.clients:
            self.sent[name] = self.sent.get(name, 0.0) + answer.up / len(answer.clients)
        return answer

    def note(self, text: str) -> None:
        """Something a reader of the results must know; once."""
        if text not in self.notes:
            self.notes.append(text)

    def progress_made(self) -> dict[str, Any]:
        """What a checkpoint keeps of a run besides its training."""
        return {
            "curve": [asdict(point) for point in self.curve],
            "meter": asdict(self.meter),
            "domains": self.domains,
            "notes": self.notes,
        }

    def restore(self, made: Mapping[str, Any]) -> None:
        """Be as when `progress_made` gave this."""
        self.curve[:] = [Point(**point) for point in made["curve"]]
        self.meter = Meter(**made["meter"])
        self.domains = made.get("domains")
        self.notes[:] = made.get("notes", [])

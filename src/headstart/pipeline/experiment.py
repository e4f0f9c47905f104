"""From a configuration to a federation: load, split, deal to clients."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.augment.domain_shift import shifted
from headstart.data.backbones.catalogue import NETWORKS
from headstart.data.backbones.preprocess import Whole
from headstart.data.cells import CellSet
from headstart.data.datasets import Dataset
from headstart.data.heterogeneity import Heterogeneity, describe
from headstart.data.image_samples import ImageReader, ImageSamples
from headstart.data.image_set import ImageSet
from headstart.data.labelled import Labelled
from headstart.data.partition import (
    PARTITIONERS,
    Partition,
    last_split,
    matched,
    natural,
    personal_split,
)
from headstart.data.samples import ArraySamples, Samples
from headstart.data.scene_samples import SceneReader, SceneSamples
from headstart.data.scenes import SceneSet
from headstart.errors import DataError
from headstart.federation.engines import open_federation
from headstart.federation.grouped import Grouped
from headstart.federation.protocol import ClientData, Federation
from headstart.pipeline.adapting import CellSource
from headstart.pipeline.augmenting import ImageRecord, augmented
from headstart.pipeline.config import RunConfig, dump_config, make_config, parse_yaml
from headstart.pipeline.context import PipelineContext
from headstart.pipeline.inputs import (
    Change,
    Extraction,
    Input,
    extractor_of,
    holds_images,
    pixels_of,
    read,
    read_images,
)
from headstart.pipeline.private import masked_size, private_federation
from headstart.pipeline.sourcing import scene_samples, separated
from headstart.progress import Progress, silent
from headstart.statistics.exact import bound_for


@dataclass(frozen=True, eq=False)
class Experiment:
    """A simulation ready to run: its clients, the outside test set, and what the split is like.

    In its `config` the bound of the lattice is a number, unless a network has to make the features
    first. `images`: what was done to images.
    """

    config: RunConfig
    train: Labelled
    test: Samples
    partition: Partition
    heterogeneity: Heterogeneity
    clients: Mapping[str, ClientData]
    federation: Federation
    extractor: dict[str, Any] | None = None
    images: ImageRecord = field(default_factory=ImageRecord)
    own_test: bool = False  # whether the data themselves say what is test
    source: SceneSet | None = None  # labelled, of the server

    def context(self, **how: Any) -> PipelineContext:
        """What the phases of a pipeline may see."""
        return PipelineContext(
            self.federation,
            self.config,
            self.test,
            self.test.shape,
            self._source(),
            self.extractor,
            self.images,
            **how,
        )

    def _source(self) -> Any:
        """The source as a network sees it, or with the extractor that measures it."""
        if self.source is None:
            return None
        if self.config.network:
            return scene_samples(self.config, self.source)
        assert self.extractor is not None
        how = Extraction(self.config.extractor, self.config.weights, self.config.download)
        network = extractor_of(self.extractor, replace(how, engine=self.config.engine))
        return CellSource(self.source, network, self.config.exact)

    def digest(self) -> str:
        """SHA-256 of every client's samples: what an interrupted run must find again."""
        state = hashlib.sha256()
        for name, client in self.clients.items():
            samples = client.samples
            about = name, (len(samples), *samples.shape), samples.labels.tolist()
            state.update(repr(about).encode())
            for part in samples.content():
                state.update(part)
        return state.hexdigest()

    def pooled_samples(self) -> Samples:
        """The same, read when it is needed, in the order of the data."""
        taken = np.sort(np.concatenate(self.partition.indices))
        return _picking(self.config, self.train)(taken)

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """All that the clients train on, in one place: the comparison a federation cannot make."""
        assert isinstance(self.train, Dataset)
        taken = np.concatenate(self.partition.indices)
        return self.train.features[taken], self.train.labels[taken]


def read_data(
    source: str,
    config: RunConfig,
    progress: Progress = silent,
    about: Mapping[str, Any] | None = None,
    change: Change | None = None,
) -> Input:
    """Features; images and sentences go through the configuration's extractor (or a head's)."""
    how = Extraction(
        config.extractor,
        config.weights,
        config.download,
        config.engine,
        config.skip_corrupt,
        config.text,
        config.views,
    )
    named = config.text or config.extractor or config.weights or config.views
    extraction = how if named or holds_images(source) else None
    return read(source, config.columns, extraction, progress, about=about, change=change)


@dataclass(frozen=True, eq=False)
class ClientSplit:
    """Who holds what: the outside test set, and each client's training and held-out part.

    It depends on labels, clients and domains alone, never on features.
    """

    data: Labelled  # whose `test` says what is outside
    train: Labelled
    test: Labelled
    kept: Partition
    held: Partition


def prepare(
    config: RunConfig, progress: Progress = silent, data: Input | None = None
) -> Experiment:
    """Read, split, deal to clients, and open the federation that the settings name.

    `data`: samples that are in memory, instead of those that the configuration names.
    """
    if data is not None and config.views is not None:
        raise DataError("views: expected images, which can be mirrored, got features")
    if data is not None and config.network:
        raise DataError("network: expected images in files to train on, got features in memory")
    change = None if config.shift is None else functools.partial(_shifted, config)
    source: Input | None = None
    if config.network:
        whole = _images(config, progress, change)
    else:
        source = data or read_data(config.data, config, progress, change=change)
        whole = _with_outside(config, source, progress)
    labelled: SceneSet | None = None
    if config.source is not None:
        whole, labelled = separated(config, whole)
    split = deal(config, whole)
    train, kept = split.train, split.kept
    if source is not None:  # the features of a network are known when it is
        config = config.model_copy(update={"bound": lattice_bound(config, train, source.bound)})
    clients, test = _held(config, split)
    images = ImageRecord()
    if config.shift is not None:
        images = ImageRecord.of_shift(config.shift, kept.names, len(test), config.splitting_seed)
    if config.augment:
        clients, test, images = augmented(config, clients, test, images)
    return Experiment(
        config,
        train,
        test,
        kept,
        heterogeneity(kept, train),
        clients,
        opened(config, clients, test, in_memory=data is not None),
        None if source is None else source.extractor,
        images,
        whole.test is not None and labelled is None,
        labelled,
    )


def _with_outside(config: RunConfig, source: Input, progress: Progress) -> Labelled:
    """With the test samples that the configuration names, through the same extractor."""
    if config.test is None:
        return source.data
    return source.data.with_outside(read_data(config.test, config, progress, source.extractor).data)


def _images(config: RunConfig, progress: Progress, change: Change | None) -> Labelled:
    """The images that a network trains on, and with them those that it is tested on."""
    how: dict[str, Any] = {"progress": progress, "skip_corrupt": config.skip_corrupt}
    side = config.sides[0]
    images = read_images(config.data, config.columns, side, change=change, **how)
    check_sides(config, images)
    if config.test is None:
        return images
    return images.with_outside(read_images(config.test, config.columns, side, **how))


def check_sides(config: RunConfig, images: Labelled) -> None:
    """A dense network wants masks and multiples of 32, any other a label per image and a square."""
    height, width = config.sides
    masks = isinstance(images, SceneSet)
    if masks != config.dense:
        able = ", ".join(name for name in NETWORKS if NETWORKS[name].stride)
        wanted, came = ("masks", "a label per image") if config.dense else ("a label each", "masks")
        hint = "" if config.dense else f"; on those trains one of {able}"
        raise DataError(
            f"network: {config.network}: expected images with {wanted}, got {came}{hint}"
        )
    if config.dense and (height % 32 or width % 32):
        raise DataError(f"pixels: expected multiples of 32, as in 96x128, got {height}x{width}")
    if not config.dense and height != width:
        raise DataError(f"pixels: expected one side for {config.network}, got {height}x{width}")


def deal(config: RunConfig, data: Labelled) -> ClientSplit:
    """Split and partition."""
    if config.source is not None and config.test is None:
        return _deal_to_unlabelled(config, data)
    if data.test is None:
        data = data.with_test(config.test_fraction, config.splitting_seed)
    train, test = data.train_part(), data.test_part()
    if not len(train) or not len(test):
        raise DataError(f"data: expected training and test samples, got {len(train)}, {len(test)}")
    whole = make_partition(config, train)
    minimum = max(config.minimum, 1)
    if isinstance(train, SceneSet | CellSet):  # neighbours of a frame are much like it
        kept, held = last_split(whole, config.held_out, minimum)
    else:
        kept, held = personal_split(
            whole, train.labels, config.held_out, minimum, config.splitting_seed
        )
    if not len(kept):
        raise DataError(f"minimum: expected clients with {minimum} samples or more, got none")
    return ClientSplit(data, train, test, kept, held)


def _deal_to_unlabelled(config: RunConfig, data: Labelled) -> ClientSplit:
    """Clients beside a labelled source: the last share of the frames of each is the test."""
    whole = make_partition(config, data)
    kept, tested = last_split(whole, config.test_fraction, max(config.minimum, 1))
    trained, outside = (np.sort(np.concatenate(part.indices)) for part in (kept, tested))
    mask = np.zeros(len(data), np.bool_)
    mask[outside] = True
    own = tuple(np.searchsorted(trained, index) for index in kept.indices)
    empty = tuple(index[:0] for index in own)
    marked: Labelled = replace(data, test=mask)  # type: ignore[type-var]  # a frozen dataclass
    held = Partition(kept.names, empty)
    train, test = marked.train_part(), marked.test_part()
    return ClientSplit(marked, train, test, Partition(kept.names, own), held)


def _shifted(config: RunConfig, images: ImageSet) -> ImageSet:
    """Before anything else is done to them: every client's images, and the test set's, shifted."""
    split = deal(config, images)
    delta = float(config.shift or 1)
    names, seed = split.kept.names, config.splitting_seed
    record = ImageRecord.of_shift(delta, names, len(split.test), seed)
    inside, outside = (np.flatnonzero(split.data.test == side) for side in (False, True))
    domains = np.full(len(images), "", "U8")
    domains[outside] = record.test
    for (name, kept), (_, rest) in zip(split.kept.items(), split.held.items(), strict=True):
        domains[inside[np.concatenate([kept, rest])]] = record.clients[name]
    return shifted(images, domains, delta)


@dataclass(frozen=True)
class RemoteClient:
    """A client's samples, read in another process by the same configuration."""

    config: str
    name: str

    def __call__(self) -> ClientData:
        return _dealt_anew(self.config)[self.name]


@functools.lru_cache(maxsize=1)
def _dealt_anew(text: str) -> Mapping[str, ClientData]:
    config = make_config({**parse_yaml(text), "federation": {}})
    return prepare(config).clients


def opened(
    config: RunConfig,
    clients: Mapping[str, ClientData],
    test: Samples,
    *,
    in_memory: bool = False,
) -> Federation:
    """The engine that the settings name, in groups, behind masks and noise where they say so."""
    how = config.federation
    federation = open_federation(
        how.engine,
        clients,
        seed=config.seed,
        precision=config.precision,
        remote=None if in_memory else functools.partial(RemoteClient, dump_config(config)),
        **how.settings,
    )
    size = masked_size(config, len(clients))
    federation = _grouped(config, federation, size, test)
    if config.private is None:
        return federation
    return private_federation(federation, config.private, clients, test)


def _grouped(
    config: RunConfig, federation: Federation, size: int | None, test: Samples
) -> Federation:
    shared = config.private is not None and config.private.trust == "secure-sum"
    if size is None:
        return federation
    if not (config.federation.secure or shared):
        return Grouped(federation, size, seed=config.seed)
    from headstart.privacy.masked import Masked

    # The list of classes is agreed beforehand: the server's own test set has them.
    return Masked(federation, size, np.unique(test.labels), seed=config.seed)


def make_partition(config: RunConfig, train: Labelled) -> Partition:
    """The named partitioner on what it asks for; without one, the data's own clients."""
    if config.partition is None:
        if train.clients is None:
            raise DataError(
                f"partition: {train.name} does not say whose a sample is (no column "
                f"{config.client!r}); name a partitioner, such as dirichlet with clients and alpha"
            )
        return natural(train.clients)
    make = PARTITIONERS[config.partition.name]
    labels: Any = train.labels
    if isinstance(train, CellSet | SceneSet) and config.partition.name == "imbalance":
        labels = train.shown
    parameters = inspect.signature(make).parameters
    sources: dict[str, Any] = {
        "labels": labels,
        "n": len(train),
        "ids": train.clients,
        "domains": train.domains,
    }
    first = next(iter(parameters))
    if sources[first] is None:
        raise DataError(f"partition: {config.partition.name} needs {first}, which the data lack")
    settings = {"seed": config.splitting_seed, **config.partition.settings}
    needed = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and name not in (first, *settings)
    ]
    if needed:
        raise DataError(f"partition: {config.partition.name} needs {', '.join(needed)}")
    return _whole(config.partition.name, make(sources[first], **settings), len(train))


def _whole(name: str, made: Any, samples: int) -> Partition:
    """What a partitioner made, which may be a user's own."""
    if not isinstance(made, Partition):
        raise DataError(f"partition: {name}: expected a Partition, got {type(made).__name__}")
    largest = max((int(index.max()) for index in made.indices if len(index)), default=-1)
    if not 0 <= largest < samples:
        raise DataError(
            f"partition: {name}: expected some of the samples 0 to {samples - 1}, got {largest}"
        )
    return made


def heterogeneity(partition: Partition, train: Labelled) -> Heterogeneity:
    """How unlike clients are by their samples; of scenes, by the classes of their cells."""
    if isinstance(train, CellSet):
        return describe(*train.dealt(partition))
    return describe(partition, train.labels)


def _held(config: RunConfig, split: ClientSplit) -> tuple[dict[str, ClientData], Samples]:
    """What each client holds, and the outside test set."""
    train, test = _picking(config, split.train), _picking(config, split.test)
    own_tests = dict(split.held.items())
    if config.matched:  # samples of the outside test set that are like the client's own
        like = matched(split.kept, split.train.labels, split.test.labels, config.splitting_seed)
        own_tests = dict(zip(split.kept.names, like, strict=True))
    pick = test if config.matched else train
    clients = {
        name: ClientData(train(rows), pick(own_tests[name]))
        for name, rows in split.kept.items()
        if len(rows)
    }
    return clients, test(np.arange(len(split.test)))


def _picking(config: RunConfig, data: Labelled) -> Callable[[NDArray[np.int64]], Samples]:
    """From positions to these samples of the data."""
    if isinstance(data, SceneSet):
        usual = NETWORKS[str(config.network)].preprocess
        whole = Whole(*config.sides, usual.interpolation, usual.mean, usual.std)
        scenes = SceneReader(data, whole)
        return lambda rows: SceneSamples(scenes, rows, data.labels[rows])
    if isinstance(data, ImageSet):
        reader = ImageReader(data, pixels_of(config.sides[0]))
        return lambda rows: ImageSamples(reader, rows, data.labels[rows])
    if isinstance(data, CellSet):
        return data.picked
    assert isinstance(data, Dataset)
    return lambda rows: ArraySamples(data.features[rows], data.labels[rows])


def lattice_bound(config: RunConfig, train: Labelled, source_bound: float | None) -> float:
    """The public bound; "auto" is the extractor's own, or the power of two the features stay in."""
    if config.bound != "auto":
        return float(config.bound)
    if source_bound is not None:
        return source_bound
    assert isinstance(train, Dataset)
    return bound_for(train.features)

"""Features of images or sentences: a frozen network over a set once, then read from the cache.

Threads read and decode ahead while the network runs; where the network may be called from several
threads at once, each decodes a batch and runs it. Batches are cut at fixed places and have a fixed
shape (the rest is zeros), so that a run that was interrupted gives the same bytes as one that was
not.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from headstart.data import checks
from headstart.data.datasets import Dataset
from headstart.data.feature_cache import Corrupt, Hashes, Part, Slot, cache_key, default_cache
from headstart.data.sample_set import CorruptSample, SampleSet, fetch
from headstart.errors import DataError, SkippedWarning
from headstart.progress import Progress, silent

ROOM = 2**26  # bytes of rows that wait to be written
BLOCK = 256  # samples between two points from which a run can continue, or a batch if larger

Floats: TypeAlias = NDArray[np.float32]
Inputs: TypeAlias = NDArray[Any]  # pixels (float32), or token ids (integers)
OnCorrupt: TypeAlias = Literal["error", "skip"]

_T = TypeVar("_T")
_R = TypeVar("_R")


class Extractor(Protocol):
    """A frozen network: samples, preprocessed and stacked `batch` at a time, to features."""

    @property
    def name(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    @property
    def preprocess(self) -> Callable[[Any], Inputs]:
        """From a sample to the array the network takes; called from several threads.

        One with a `shape` and a method `into(sample, place)` writes straight into the batch.
        """

    @property
    def bound(self) -> float: ...
    @property
    def identity(self) -> str:
        """The hash that names the weights and the preprocessing."""

    @property
    def batch(self) -> int: ...
    @property
    def parallel(self) -> int:
        """How many threads may call it at once."""

    def __call__(self, inputs: Any, /) -> Floats:
        """(batch, ...) to (batch, dimension)."""


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a set of samples, mapped from the cache; corrupt ones have no row."""

    array: Floats
    kept: NDArray[np.bool_]  # which samples have a row
    corrupt: tuple[tuple[str, str], ...]  # the others: their name, and what is wrong
    digest: str  # SHA-256 of the rows (little-endian float32)
    path: Path


def extract(
    samples: SampleSet,
    extractor: Extractor,
    cache: str | Path | None = None,
    *,
    workers: int = 2,
    progress: Progress = silent,
    on_corrupt: OnCorrupt = "error",
) -> Features:
    """The features of all samples, from the cache if they were extracted before.

    A run that was interrupted continues where it was; processes that want the same features wait
    for the first of them. With "error", corrupt samples stop the network, all of them are found,
    and a `DataError` counts them; with "skip" they are left out and listed in `corrupt`.
    """
    checks.count("workers", workers)
    checks.count("extractor.batch", extractor.batch)
    if on_corrupt not in ("error", "skip"):
        raise DataError(f"on_corrupt: expected 'error' or 'skip', got {on_corrupt!r}")
    folder = default_cache() if cache is None else Path(cache)
    job = _Job(samples, extractor, progress, on_corrupt == "error", workers)
    with _threads(job.threads) as pool:
        hashes = Hashes.of(folder, samples)
        digests = _digests(pool, samples, hashes)
        key = cache_key(digests, identity=extractor.identity, batch=extractor.batch)
        slot = Slot(folder / key)
        _make(job, pool, digests, hashes, slot)
    return _result(job, slot)


def dataset_from_images(
    samples: SampleSet,
    extractor: Extractor,
    cache: str | Path | None = None,
    *,
    workers: int = 2,
    progress: Progress = silent,
    on_corrupt: OnCorrupt = "error",
) -> Dataset:
    """The dataset of the features of `samples`; skipped ones are listed in a warning."""
    extraction = extract(
        samples, extractor, cache, workers=workers, progress=progress, on_corrupt=on_corrupt
    )
    if extraction.corrupt:
        warnings.warn(_listing(samples, extraction.corrupt), SkippedWarning, stacklevel=2)
    return as_dataset(samples, extraction)


def as_dataset(samples: SampleSet, features: Features) -> Dataset:
    """The features with the labels, clients, domains and split of their samples."""

    def pick(values: NDArray[Any] | None) -> Any:
        return values if values is None or features.kept.all() else values[features.kept]

    return Dataset(
        samples.name,
        features.array,
        pick(samples.labels),
        pick(samples.clients),
        pick(samples.domains),
        pick(samples.test),
    )


# --- One run


@dataclass(frozen=True)
class _Job:
    samples: SampleSet
    extractor: Extractor
    progress: Progress
    strict: bool  # corrupt samples are an error
    workers: int
    free: deque[Inputs] = field(default_factory=deque)  # batches to be filled again
    stopped: Event = field(default_factory=Event)  # a corrupt sample was met: no more network

    @property
    def threads(self) -> int:
        return max(self.workers, self.extractor.parallel)

    def report_progress(self, done: int) -> None:
        self.progress(f"features of {self.samples.name}", done, len(self.samples))


@dataclass(frozen=True)
class _Batch:
    """A batch of decoded samples: `count` of them, of which those at `rows` are sound."""

    start: int
    count: int
    rows: tuple[int, ...]
    inputs: Inputs | None  # None when no sample is sound
    corrupt: tuple[Corrupt, ...]


@dataclass(frozen=True)
class _Done:
    """What became of `count` samples; without features if the network was not to run any more."""

    end: int
    features: Floats
    corrupt: tuple[Corrupt, ...]


class _Changed(DataError):
    """A sample is not the one that was hashed."""


def _make(
    job: _Job, pool: ThreadPoolExecutor, digests: Sequence[str], hashes: Hashes, slot: Slot
) -> None:
    """Run, unless the features are there, or appear while another process holds the lock."""
    if slot.finished() is None:
        with slot.locked():
            if slot.finished() is None:
                return _run(job, pool, digests, hashes, slot)
    return job.report_progress(len(job.samples))


def _run(
    job: _Job, pool: ThreadPoolExecutor, digests: Sequence[str], hashes: Hashes, slot: Slot
) -> None:
    """Fill the slot, from where an earlier run left it."""
    size, total = job.extractor.batch, len(job.samples)
    most = min(BLOCK, ROOM // (4 * job.extractor.dimension))
    block = size * max(1, most // size)
    with Part.opened(slot, job.extractor.dimension, block) as part:
        job.report_progress(part.images)
        starts = range(part.images, total, size)
        done = _in_parallel(job, pool, digests, starts)
        try:
            _fill(job, part, done, block)
        except _Changed:
            hashes.forget()
            raise
        if not part.rows:
            raise DataError(_listing(job.samples, _named(job.samples, part.corrupt)))
        part.finish()


def _in_parallel(
    job: _Job, pool: ThreadPoolExecutor, digests: Sequence[str], starts: Iterable[int]
) -> Iterator[_Done]:
    """The batches in order. Threads that may run the network do; else it runs here."""
    decode = partial(_decode, job, digests)
    if (
        job.extractor.parallel > 1
    ):  # what waits is features, a few numbers: a late one holds up nobody
        yield from _ahead(pool, 4 * job.threads, lambda start: _run_one(job, decode(start)), starts)
    else:
        for batch in _ahead(pool, job.threads + 1, decode, starts):
            yield _run_one(job, batch)


def _run_one(job: _Job, batch: _Batch) -> _Done:
    if job.strict and batch.corrupt:
        job.stopped.set()
    features = np.empty((0, job.extractor.dimension), dtype=np.float32)
    if batch.inputs is not None:
        if not job.stopped.is_set():
            features = _features(job, batch, batch.inputs)
        job.free.append(batch.inputs)
    return _Done(batch.start + batch.count, features, batch.corrupt)


def _fill(job: _Job, part: Part, batches: Iterator[_Done], block: int) -> None:
    rows: list[Floats] = []
    corrupt: list[Corrupt] = []
    for batch in batches:
        corrupt += batch.corrupt
        if job.strict and (part.corrupt or corrupt):
            _refuse(job, [*part.corrupt, *corrupt], batches)
        rows.append(batch.features)
        if batch.end - part.images == block or batch.end == len(job.samples):
            part.append(np.concatenate(rows), batch.end - part.images, corrupt)
            rows, corrupt = [], []
        job.report_progress(batch.end)


def _refuse(job: _Job, corrupt: list[Corrupt], rest: Iterable[_Done]) -> None:
    """Find the other corrupt samples, without the network, and raise."""
    job.stopped.set()
    for batch in rest:
        corrupt += batch.corrupt
        job.report_progress(batch.end)
    raise DataError(_listing(job.samples, _named(job.samples, corrupt)))


def _features(job: _Job, batch: _Batch, inputs: Inputs) -> Floats:
    """The rows of the sound samples of a batch."""
    extractor = job.extractor
    features = np.asarray(extractor(inputs), dtype=np.float32)
    if features.shape != (extractor.batch, extractor.dimension):
        raise DataError(
            f"{extractor.name}: expected features of shape "
            f"{(extractor.batch, extractor.dimension)}, got {features.shape}"
        )
    rows = features[list(batch.rows)]
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        bad = batch.start + batch.rows[int(finite.argmin())]
        raise DataError(
            f"{job.samples.where(bad)}: expected finite features from {extractor.name}, got others"
        )
    return rows


# --- Decoding


def _decode(job: _Job, digests: Sequence[str], start: int) -> _Batch:
    """The batch of samples from `start`: corrupt ones, and those beyond the last, are zeros."""
    count = min(job.extractor.batch, len(job.samples) - start)
    inputs: Inputs | None = None
    sound: list[int] = []
    corrupt: list[Corrupt] = []
    for row in range(count):
        try:
            inputs = _place(job, inputs, row, _sample(job, start + row, digests[start + row]))
            sound.append(row)
        except CorruptSample as bad:
            corrupt.append((start + row, bad.reason))
    if inputs is not None:
        inputs[[row for row in range(len(inputs)) if row not in set(sound)]] = 0
    return _Batch(start, count, tuple(sound), inputs if sound else None, tuple(corrupt))


def _sample(job: _Job, i: int, digest: str) -> tuple[str, Any]:
    """Where sample `i` is, and itself, decoded: made sure to be the one that was hashed."""
    where = job.samples.where(i)
    data, actual = fetch(job.samples.source, i)
    if actual != digest:
        kind = job.samples.kind
        raise _Changed(f"{where}: expected the {kind} not to change during extraction; start again")
    if isinstance(data, CorruptSample):
        raise data
    return where, job.samples.source.decode(data, where)


def _place(job: _Job, inputs: Inputs | None, row: int, sample: tuple[str, Any]) -> Inputs:
    """A sample, preprocessed, in its row; the first one of a batch brings the batch."""
    where, decoded = sample
    prepare: Any = job.extractor.preprocess
    try:
        if hasattr(prepare, "into"):
            inputs = _buffer(job, prepare.shape, np.dtype(np.float32)) if inputs is None else inputs
            prepare.into(decoded, inputs[row])
            return inputs
        made = np.asarray(prepare(decoded))
    except (ValueError, OSError) as error:
        raise CorruptSample(where, f"cannot be preprocessed: {error}") from error
    if inputs is None:
        inputs = _buffer(job, made.shape, made.dtype if made.dtype.kind == "i" else np.dtype("f4"))
    if inputs.shape[1:] != made.shape:
        raise DataError(
            f"{job.extractor.name}: expected {job.samples.kind}s of one shape after preprocessing, "
            f"got {', '.join(map(str, sorted({made.shape, inputs.shape[1:]})))}"
        )
    inputs[row] = made
    return inputs


def _buffer(job: _Job, shape: tuple[int, ...], kind: np.dtype[Any]) -> Inputs:
    """Room for a batch: used again, for fresh memory costs more than filling it."""
    while job.free:
        with suppress(IndexError):  # another thread was faster
            old = job.free.pop()
            if old.shape[1:] == shape and old.dtype == kind:
                return old
    return np.empty((job.extractor.batch, *shape), kind)


def _digests(pool: ThreadPoolExecutor, samples: SampleSet, hashes: Hashes) -> list[str]:
    before = dict(hashes.known)
    chunk = 64  # samples per task: one is less work than handing it to a thread

    def some(start: int) -> list[str]:
        return [hashes.get(samples, i) for i in range(start, min(start + chunk, len(samples)))]

    parts = list(pool.map(some, range(0, len(samples), chunk)))
    if hashes.known != before:
        hashes.save()
    return [digest for part in parts for digest in part]


@contextmanager
def _threads(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that drop what they have not begun when something fails."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="headstart-decode")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _ahead(
    pool: ThreadPoolExecutor, depth: int, work: Callable[[_T], _R], items: Iterable[_T]
) -> Iterator[_R]:
    """`work` of each item, in order, at most `depth` of them begun and not yet taken."""
    pending: deque[Future[_R]] = deque()
    for item in items:
        pending.append(pool.submit(work, item))
        if len(pending) >= depth:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


# --- Results


def _result(job: _Job, slot: Slot) -> Features:
    finished = slot.finished()
    if finished is None:
        raise DataError(f"{slot.path}: expected the features just written, got another file")
    array, report = finished
    corrupt = _named(job.samples, report.corrupt)
    if corrupt and job.strict:
        raise DataError(_listing(job.samples, corrupt))
    return Features(array, report.kept(), corrupt, report.sha256, slot.path)


def _named(samples: SampleSet, corrupt: Sequence[Corrupt]) -> tuple[tuple[str, str], ...]:
    return tuple((samples.where(i), reason) for i, reason in corrupt)


def _listing(samples: SampleSet, corrupt: Sequence[tuple[str, str]]) -> str:
    first = "; ".join(f"{where}: {reason}" for where, reason in corrupt[:5])
    more = "; ..." if len(corrupt) > 5 else ""
    counts = f"{len(corrupt)} of {len(samples)} {samples.kind}s"
    return f"{samples.name}: {counts} are corrupt: {first}{more}"

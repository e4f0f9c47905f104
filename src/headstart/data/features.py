"""Features of images or sentences: a frozen network over a set once, then read from the cache.

Threads read and decode ahead while the network runs. Batches are cut at fixed places and have a
fixed shape (the rest is zeros), so that a run that was interrupted gives the same bytes as one
that was not.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from headstart.data import checks
from headstart.data.datasets import Dataset
from headstart.data.feature_cache import Corrupt, Hashes, Part, Slot, cache_key, default_cache
from headstart.data.sample_set import CorruptSample, SampleSet, fetch
from headstart.errors import DataError

BLOCK = 256  # samples between two points from which a run can continue, or a batch if larger

Floats: TypeAlias = NDArray[np.float32]
Inputs: TypeAlias = NDArray[Any]  # pixels (float32), or token ids (integers)
Progress: TypeAlias = Callable[[int, int], None]  # samples done, of how many
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
        """From a sample to the array the network takes; called from several threads."""

    @property
    def bound(self) -> float: ...
    @property
    def identity(self) -> str:
        """The hash that names the weights and the preprocessing."""

    @property
    def batch(self) -> int: ...
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
    progress: Progress | None = None,
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
    job = _Job(samples, extractor, progress or _silent, on_corrupt == "error", workers)
    with _threads(workers) as pool:
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
    progress: Progress | None = None,
    on_corrupt: OnCorrupt = "error",
) -> Dataset:
    """The dataset of the features of `samples`; skipped ones are told in a warning."""
    found = extract(
        samples, extractor, cache, workers=workers, progress=progress, on_corrupt=on_corrupt
    )
    if found.corrupt:
        warnings.warn(f"left out {_listing(samples, found.corrupt)}", stacklevel=2)
    return as_dataset(samples, found)


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


@dataclass(frozen=True)
class _Batch:
    """A batch of decoded samples: `count` of them, of which those at `rows` are sound."""

    start: int
    count: int
    rows: tuple[int, ...]
    inputs: Inputs | None  # None when no sample is sound
    corrupt: tuple[Corrupt, ...]


class _Changed(DataError):
    """A sample is not the one that was hashed."""


def _silent(done: int, total: int) -> None:
    pass


def _make(
    job: _Job, pool: ThreadPoolExecutor, digests: Sequence[str], hashes: Hashes, slot: Slot
) -> None:
    """Run, unless the features are there, or appear while another process holds the lock."""
    if slot.finished() is None:
        with slot.locked():
            if slot.finished() is None:
                return _run(job, pool, digests, hashes, slot)
    return job.progress(len(job.samples), len(job.samples))


def _run(
    job: _Job, pool: ThreadPoolExecutor, digests: Sequence[str], hashes: Hashes, slot: Slot
) -> None:
    """Fill the slot, from where an earlier run left it."""
    size, total = job.extractor.batch, len(job.samples)
    block = size * max(1, BLOCK // size)
    with Part.opened(slot, job.extractor.dimension, block) as part:
        job.progress(part.images, total)
        starts = range(part.images, total, size)
        decode = partial(_decode, job, digests)
        batches = _ahead(pool, job.workers + 1, decode, starts)
        try:
            _fill(job, part, batches, block)
        except _Changed:
            hashes.forget()
            raise
        if not part.rows:
            raise DataError(_listing(job.samples, _named(job.samples, part.corrupt)))
        part.finish()


def _fill(job: _Job, part: Part, batches: Iterator[_Batch], block: int) -> None:
    rows: list[Floats] = []
    corrupt: list[Corrupt] = []
    for batch in batches:
        corrupt += batch.corrupt
        if job.strict and (part.corrupt or corrupt):
            _refuse(job, [*part.corrupt, *corrupt], batches)
        rows.append(_features(job, batch))
        done = batch.start + batch.count
        if done - part.images == block or done == len(job.samples):
            part.append(np.concatenate(rows), done - part.images, corrupt)
            rows, corrupt = [], []
        job.progress(done, len(job.samples))


def _refuse(job: _Job, corrupt: list[Corrupt], rest: Iterable[_Batch]) -> None:
    """Find the other corrupt samples, without the network, and raise."""
    for batch in rest:
        corrupt += batch.corrupt
        job.progress(batch.start + batch.count, len(job.samples))
    raise DataError(_listing(job.samples, _named(job.samples, corrupt)))


def _features(job: _Job, batch: _Batch) -> Floats:
    """The rows of the sound samples of a batch."""
    extractor = job.extractor
    if batch.inputs is None:
        return np.empty((0, extractor.dimension), dtype=np.float32)
    found = np.asarray(extractor(batch.inputs), dtype=np.float32)
    if found.shape != (extractor.batch, extractor.dimension):
        raise DataError(
            f"{extractor.name}: expected features of shape "
            f"{(extractor.batch, extractor.dimension)}, got {found.shape}"
        )
    rows = found[list(batch.rows)]
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
    sound: dict[int, Inputs] = {}
    corrupt: list[Corrupt] = []
    for row in range(count):
        try:
            sound[row] = _input(job, start + row, digests[start + row])
        except CorruptSample as bad:
            corrupt.append((start + row, bad.reason))
    inputs = _stack(job, sound) if sound else None
    return _Batch(start, count, tuple(sound), inputs, tuple(corrupt))


def _input(job: _Job, i: int, digest: str) -> Inputs:
    """The preprocessed sample `i`, made sure to be the one that was hashed."""
    where = job.samples.where(i)
    data, found = fetch(job.samples.source, i)
    if found != digest:
        kind = job.samples.kind
        raise _Changed(f"{where}: expected the {kind} not to change during extraction; start again")
    if isinstance(data, CorruptSample):
        raise data
    sample = job.samples.source.decode(data, where)
    try:
        made = np.asarray(job.extractor.preprocess(sample))
        return made if made.dtype.kind == "i" else made.astype(np.float32, copy=False)
    except (ValueError, OSError) as error:
        raise CorruptSample(where, f"cannot be preprocessed: {error}") from error


def _stack(job: _Job, sound: dict[int, Inputs]) -> Inputs:
    shapes = {made.shape for made in sound.values()}
    if len(shapes) > 1:
        raise DataError(
            f"{job.extractor.name}: expected {job.samples.kind}s of one shape after preprocessing, "
            f"got {', '.join(map(str, sorted(shapes)))}"
        )
    kind = next(iter(sound.values())).dtype
    batch = np.zeros((job.extractor.batch, *shapes.pop()), dtype=kind)
    for row, made in sound.items():
        batch[row] = made
    return batch


def _digests(pool: ThreadPoolExecutor, samples: SampleSet, hashes: Hashes) -> list[str]:
    known = dict(hashes.known)
    chunk = 64  # samples a task: one is less work than handing it to a thread

    def some(start: int) -> list[str]:
        return [hashes.get(samples, i) for i in range(start, min(start + chunk, len(samples)))]

    found = list(pool.map(some, range(0, len(samples), chunk)))
    if hashes.known != known:
        hashes.save()
    return [digest for part in found for digest in part]


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
    found = slot.finished()
    if found is None:
        raise DataError(f"{slot.path}: expected the features just written, got another file")
    array, report = found
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

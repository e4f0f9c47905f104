"""Partitions: which client holds which samples.

Dirichlet by class (LDA, Yurochkin et al. 2019) and by client (Hsu et al. 2019), shards (McMahan et
al. 2017), natural ids and runs of their samples, domains, quantity skew, given sizes, and
FedDrive's class imbalance.

The first parameter of a partitioner says what it needs: `labels`, `ids`, `domains`, or only the
number of samples `n`. Each assigns every sample to exactly one client, and gives the same result
for the same seed. More clients than samples is a `DataError`, except for the two Dirichlet
partitioners, which leave clients empty.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.data import apportion, checks, stratify
from headstart.data.stratify import Ints
from headstart.errors import DataError, HeadstartError
from headstart.labels import Labels, as_labels
from headstart.registry import Registry

Sizes: TypeAlias = Sequence[int] | Ints | str | Path


@dataclass(frozen=True, eq=False)
class Partition:
    """Who holds what: client names, and the sample indices of each (disjoint)."""

    names: tuple[str, ...]
    indices: tuple[Ints, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.indices):
            raise DataError(
                f"indices: expected one array per client ({len(self.names)}), "
                f"got {len(self.indices)}"
            )
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise DataError(f"names: expected unique client names, got {twice!r} twice")
        _check_disjoint(self.indices)

    def __len__(self) -> int:
        return len(self.names)

    def items(self) -> Iterator[tuple[str, Ints]]:
        """Each client's name and sample indices, in order."""
        return zip(self.names, self.indices, strict=True)

    def sizes(self) -> Ints:
        """The number of samples of each client."""
        return np.array([len(index) for index in self.indices], dtype=np.int64)

    def flat(self) -> tuple[Ints, Ints]:
        """All assigned samples, client after client, and the client (position) of each."""
        samples = np.concatenate((np.zeros(0, dtype=np.int64), *self.indices))
        return samples, np.repeat(np.arange(len(self), dtype=np.int64), self.sizes())

    def counts(self, labels: ArrayLike) -> tuple[Labels, Ints]:
        """The sorted classes of `labels`, and how many samples of each every client holds."""
        classes, codes = encode(labels)
        samples, owner = self.flat()
        cells = owner * len(classes) + take(codes, samples)
        table = np.bincount(cells, minlength=len(self) * len(classes))
        return classes, table.reshape(len(self), len(classes)).astype(np.int64)


PartitionerFn: TypeAlias = Callable[..., Partition]
F = TypeVar("F", bound=PartitionerFn)
SOURCES = ("labels", "ids", "domains", "n")  # what a partitioner may require


def encode(labels: ArrayLike) -> tuple[Labels, Ints]:
    """The sorted classes, and each sample's position among them; at least one sample."""
    array = as_labels(labels)
    if not array.size:
        raise DataError("labels: expected at least one sample, got none")
    classes, codes = np.unique(array, return_inverse=True)
    return classes, codes.astype(np.int64)


def take(codes: Ints, samples: Ints) -> Ints:
    """`codes[samples]`, refused when the partition belongs to a larger dataset."""
    if samples.size and int(samples.max()) >= len(codes):
        raise DataError(
            f"labels: expected a label for sample {int(samples.max())} of the partition, "
            f"got {len(codes)} labels"
        )
    return codes[samples]


def iid(n: int, clients: int, *, seed: int = 0) -> Partition:
    """Samples dealt at random; client sizes differ by at most one."""
    checks.enough(n, clients)
    return _deal(apportion.even(n, clients), checks.generator(seed))


def dirichlet(
    labels: ArrayLike, clients: int, *, alpha: float, min_samples: int = 0, seed: int = 0
) -> Partition:
    """By class (LDA): each class is shared among the clients in proportions drawn from Dir(alpha).

    Clients may be empty unless `min_samples` forbids it: a client short of it then receives
    random samples from the largest clients.
    """
    classes, codes = encode(labels)
    checks.count("clients", clients)
    checks.positive("alpha", alpha)
    checks.minimum(len(codes), clients, min_samples)
    rng = checks.generator(seed)
    owner = np.empty(len(codes), dtype=np.int64)
    for pool in apportion.pools(codes, len(classes), rng):
        owner[pool] = apportion.share_class(len(pool), clients, alpha, rng)
    return _gather(apportion.top_up(owner, clients, min_samples, rng), clients)


def dirichlet_client(labels: ArrayLike, clients: int, *, alpha: float, seed: int = 0) -> Partition:
    """By client (Hsu et al.): each client draws its class mix from Dir(alpha · prior), equal sizes.

    Samples leave the class pools without replacement; a client's mix is renormalized over the
    classes that still have samples. `alpha` = 0 is one class a client, clients cycling through the
    classes: clients of the same class share it, and with fewer clients than classes each takes
    several, so that no sample is lost (sizes then follow the classes). With more clients than
    samples some clients are empty.
    """
    classes, codes = encode(labels)
    checks.count("clients", clients)
    if alpha != 0:
        checks.positive("alpha", alpha)
    rng = checks.generator(seed)
    pools = apportion.pools(codes, len(classes), rng)
    if alpha == 0:
        return _gather(_one_class(pools, len(codes), clients), clients)
    prior = np.bincount(codes) / len(codes)
    left = np.bincount(codes)
    owner = np.empty(len(codes), dtype=np.int64)
    for client, quota in enumerate(apportion.even(len(codes), clients).tolist()):
        logits = apportion.log_gammas(alpha * prior, rng)
        owner[apportion.draw(pools, left, quota, logits, rng)] = client
    return _gather(owner, clients)


def shards(
    labels: ArrayLike, clients: int, *, shards_per_client: int = 2, seed: int = 0
) -> Partition:
    """Samples sorted by class, cut into equal shards, `shards_per_client` dealt to each client.

    Needs at least one sample a shard.
    """
    classes, codes = encode(labels)
    checks.count("clients", clients)
    checks.count("shards_per_client", shards_per_client)
    total = clients * shards_per_client
    if total > len(codes):
        raise DataError(
            f"clients x shards_per_client: expected at most {len(codes)} shards, one per sample, "
            f"got {total}"
        )
    rng = checks.generator(seed)
    order = np.concatenate(apportion.pools(codes, len(classes), rng))
    owner = np.empty(len(codes), dtype=np.int64)
    owner[order] = np.repeat(
        rng.permutation(total) // shards_per_client, apportion.even(len(codes), total)
    )
    return _gather(owner, clients)


def natural(ids: ArrayLike, *, seed: int = 0) -> Partition:
    """The dataset's own clients, one for each id (nothing is random: any seed gives the same)."""
    checks.generator(seed)
    names, owner = _named("ids", ids)
    return _gather(owner, len(names), names)


def domain(domains: ArrayLike, clients: int | None = None, *, seed: int = 0) -> Partition:
    """A domain a client; with more clients than domains, each domain is cut into equal parts.

    Clients are dealt evenly to the domains, the largest domains taking the remainder. Fewer
    clients than domains, or more parts than a domain has samples, is an error.
    """
    names, codes = _named("domains", domains)
    rng = checks.generator(seed)
    parts = _parts(names, np.bincount(codes), len(names) if clients is None else clients)
    if parts.sum() == len(names):
        return _gather(codes, len(names), names)
    owner = np.empty(len(codes), dtype=np.int64)
    first = 0
    for pool, count in zip(apportion.pools(codes, len(names), rng), parts.tolist(), strict=True):
        owner[pool] = first + np.repeat(np.arange(count), apportion.even(len(pool), count))
        first += count
    pieces = [f"{name}/{part}" for name, m in zip(names, parts, strict=True) for part in _padded(m)]
    return _gather(owner, first, tuple(pieces))


def runs(ids: ArrayLike, frames: int = 25, *, seed: int = 0) -> Partition:
    """Runs of about so many consecutive samples of one id (a drive); nothing is random.

    FedDrive's heterogeneous clients: what neighbours show is alike, so they are never parted. A
    drive is cut into equal runs, of which it has as many as fit, one at least.
    """
    checks.count("frames", frames)
    checks.generator(seed)
    names, codes = _named("ids", ids)
    owner = np.empty(len(codes), dtype=np.int64)
    pieces: list[str] = []
    for code, name in enumerate(names):
        pool = np.flatnonzero(codes == code)
        count = max(1, len(pool) // frames)
        own = np.repeat(np.arange(count), apportion.even(len(pool), count))
        owner[pool] = len(pieces) + own
        pieces += [f"{name}/{part}" for part in _padded(count)]
    return _gather(owner, len(pieces), tuple(pieces))


def quantity(
    n: int, clients: int, *, alpha: float, min_samples: int = 1, seed: int = 0
) -> Partition:
    """Quantity skew: client sizes in proportions drawn from Dir(alpha), classes i.i.d."""
    checks.enough(n, clients)
    checks.positive("alpha", alpha)
    checks.minimum(n, clients, min_samples)
    rng = checks.generator(seed)
    weights = apportion.softmax(apportion.log_gammas(np.full(clients, float(alpha)), rng))
    return _deal(apportion.apportion(n, weights, min_samples), rng)


def sizes(n: int, sizes: Sizes, *, seed: int = 0) -> Partition:
    """Given client sizes (a list, or a CSV file of one column), classes i.i.d.

    Sizes whose sum is not `n` are scaled in proportion (largest remainders), at least one sample a
    client.
    """
    wanted = _wanted(sizes)
    checks.enough(n, len(wanted))
    return _deal(apportion.apportion(n, wanted, 1), checks.generator(seed))


def imbalance(
    labels: ArrayLike, clients: int | None = None, *, sizes: Sizes | None = None, seed: int = 0
) -> Partition:
    """FedDrive's class imbalance (algorithm 8): each client in turn empties the rarest class left.

    Give `clients` (equal sizes) or their `sizes`, scaled as by the partitioner `sizes`. `labels`
    may be a boolean matrix (samples x classes) of the classes that appear in each image.
    """
    shown, classes = _shown(labels)
    quotas = _quotas(len(shown), clients, sizes)
    rng = checks.generator(seed)
    pools = apportion.pools(shown, classes, rng)
    left = np.array([len(pool) for pool in pools], dtype=np.int64)
    single = shown.shape[1] == 1
    owner = np.full(len(shown), -1, dtype=np.int64)
    for client, quota in enumerate(quotas.tolist()):
        while quota:
            # Erratum: c* = argmin over the non-empty D^c, anew here; as printed (once per client,
            # over all D^c) the loop never ends.
            rarest = int(np.where(left > 0, left, len(shown) + 1).argmin())
            free = pools[rarest] if single else pools[rarest][owner[pools[rarest]] < 0]
            chosen, pools[rarest] = free[:quota], free[quota:]
            owner[chosen] = client
            left -= np.bincount(shown[chosen].ravel(), minlength=classes + 1)[:classes]
            quota -= len(chosen)
    return _gather(owner, len(quotas))


def _check(name: str, partitioner: Any) -> None:
    parameters = list(inspect.signature(partitioner).parameters)
    if not parameters or parameters[0] not in SOURCES or "seed" not in parameters:
        raise HeadstartError(
            f"partition {name}: expected a function of one of {', '.join(SOURCES)} first, and of "
            f"a seed, got one of {', '.join(parameters) or 'nothing'}"
        )


def _package() -> dict[str, PartitionerFn]:
    by_labels = (dirichlet, dirichlet_client, shards, imbalance)
    every: tuple[PartitionerFn, ...] = (*by_labels, domain, iid, natural, quantity, runs, sizes)
    return {partitioner.__name__: partitioner for partitioner in every}


PARTITIONERS: Registry[PartitionerFn] = Registry(
    "partition", "headstart.partitioners", _package, check=_check
)


def register_partitioner(function: F) -> F:
    """Let a function of your own be named as a partitioner: `by_site` is "by-site".

    Its first parameter says what it needs (`labels`, `ids`, `domains`, or the number of samples
    `n`), the others are its settings, `seed` among them; it returns a `Partition`.
    """
    PARTITIONERS.add(function)
    return function


def personal_split(
    partition: Partition,
    labels: ArrayLike,
    held_out: float = 0.45,
    minimum: int = 10,
    seed: int = 0,
) -> tuple[Partition, Partition]:
    """The training and the test part of every client with at least `minimum` samples.

    About `held_out` of each client is its test part, stratified so that no class of it is absent
    from the training part: a class with a single sample stays in training. Both parts have the
    same clients; the test part of a client without two samples of any class is empty.
    """
    checks.fraction("held_out", held_out)
    checks.count("minimum", minimum)
    whole = _with_least(partition, minimum)
    samples, owner = whole.flat()
    codes = take(encode(labels)[1], samples)
    mask = stratify.held_out(owner, codes, held_out, checks.generator(seed))
    return _select(whole, samples, owner, ~mask), _select(whole, samples, owner, mask)


def last_split(
    partition: Partition, held_out: float, minimum: int = 10
) -> tuple[Partition, Partition]:
    """The same of frames: the test part is the last share of each client, for neighbours are alike.

    Of two frames at least one is tested and one is not; a client with a single one trains on it.
    """
    checks.fraction("held_out", held_out)
    checks.count("minimum", minimum)
    whole = _with_least(partition, minimum)
    trained, tested = [], []
    for index in whole.indices:
        frames = np.sort(index)
        held = min(max(1, round(held_out * len(frames))), len(frames) - 1) if held_out else 0
        trained.append(frames[: len(frames) - held])
        tested.append(frames[len(frames) - held :])
    return Partition(whole.names, tuple(trained)), Partition(whole.names, tuple(tested))


def _with_least(partition: Partition, minimum: int) -> Partition:
    """The clients with at least so many samples; there must be one."""
    kept = [item for item in partition.items() if len(item[1]) >= minimum]
    if not kept:
        largest = int(partition.sizes().max(initial=0))
        raise DataError(
            f"minimum: expected some client with at least {minimum} samples, "
            f"but the largest has {largest}"
        )
    return Partition(*(tuple(part) for part in zip(*kept, strict=True)))


def matched(
    partition: Partition, labels: ArrayLike, test_labels: ArrayLike, seed: int = 0
) -> tuple[Ints, ...]:
    """Test samples for every client in the proportions of its own classes (FedDr+'s client tests).

    A client's share of the test samples is its share of the training samples, at least one, and no
    sample is twice with a client. Each class is dealt out in random order and from the beginning
    again when it is used up: the parts of equal shards are disjoint, others nearly so.
    """
    classes, counts = partition.counts(labels)
    held = as_labels(test_labels)
    order = checks.generator(seed).permutation(len(held))
    pools = [order[held[order] == label] for label in classes]
    free = np.array([len(pool) for pool in pools], dtype=np.int64)
    used = np.zeros(len(classes), dtype=np.int64)
    splits = []
    for client_counts in counts:
        wanted = max(1, round(len(held) * int(client_counts.sum()) / max(1, int(counts.sum()))))
        mix = np.where(free > 0, client_counts, 0)
        part = np.minimum(apportion.apportion(wanted, mix, 0), free) if mix.any() else 0 * free
        at = [pools[c][(used[c] + np.arange(part[c])) % free[c]] for c in np.flatnonzero(part)]
        used += part
        splits.append(np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *at])))
    return tuple(splits)


def read_sizes(path: str | Path) -> Ints:
    """Client sizes from a CSV file of one column, with or without a header."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"sizes: expected a CSV file of one column, cannot read {path}: {error}"
        ) from error
    cells = [(row, text) for row, line in enumerate(lines, 1) if (text := line.strip())]
    if cells and cells[0][1].strip('"').isidentifier():
        cells = cells[1:]
    wrong = next(((row, text) for row, text in cells if not _is_size(text)), None)
    if wrong:
        raise DataError(f"{path}: line {wrong[0]}: expected a positive integer, got {wrong[1]!r}")
    if not cells:
        raise DataError(f"{path}: expected one client size a line, got none")
    return np.array([int(text) for _, text in cells], dtype=np.int64)


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16 and int(text) > 0


def _wanted(sizes: Sizes) -> Ints:
    if isinstance(sizes, (str, Path)):
        return read_sizes(sizes)
    array = np.asarray(sizes)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not array.size or array.min() < 1:
        raise DataError(f"sizes: expected a list of positive integers, got {sizes!r:.80}")
    return array.astype(np.int64)


def _quotas(n: int, clients: int | None, sizes: Sizes | None) -> Ints:
    if clients is not None and sizes is None:
        checks.enough(n, clients)
        return apportion.even(n, clients)
    if sizes is not None and clients is None:
        wanted = _wanted(sizes)
        checks.enough(n, len(wanted))
        return apportion.apportion(n, wanted, 1)
    raise DataError("imbalance: expected either clients or sizes, got both or neither")


def _shown(labels: ArrayLike) -> tuple[Ints, int]:
    """The classes of each sample, one row per sample (filled up with C), and their number C."""
    array = np.asarray(labels)
    if array.ndim != 2:
        classes, codes = encode(labels)
        return codes[:, None], len(classes)
    if array.dtype != np.bool_ or not array.size:
        raise DataError(
            f"labels: expected a non-empty boolean matrix (samples x classes), "
            f"got {array.dtype} of shape {array.shape}"
        )
    bare = np.flatnonzero(~array.any(axis=1))
    if bare.size:
        raise DataError(f"labels: expected a class in every sample, got none in sample {bare[0]}")
    return np.where(array, np.arange(array.shape[1]), array.shape[1]), array.shape[1]


def _one_class(pools: list[Ints], n: int, clients: int) -> Ints:
    """Client k holds class k mod C, or with K < C the classes c with c mod K = k."""
    owner = np.empty(n, dtype=np.int64)
    for c, pool in enumerate(pools):
        holders = np.arange(c, clients, len(pools)) if c < clients else np.array([c % clients])
        owner[pool] = np.repeat(holders, apportion.even(len(pool), len(holders)))
    return owner


def _parts(names: tuple[str, ...], amounts: Ints, clients: int) -> Ints:
    """The number of clients of each domain."""
    checks.count("clients", clients)
    if clients < len(names):
        raise DataError(f"clients: expected at least {len(names)}, one a domain, got {clients}")
    parts = np.empty(len(names), dtype=np.int64)
    parts[np.argsort(-amounts, kind="stable")] = apportion.even(clients, len(names))
    over = np.flatnonzero(parts > amounts)
    if over.size:
        raise DataError(
            f"clients: domain {names[over[0]]!r} has {amounts[over[0]]} samples and cannot be cut "
            f"into {parts[over[0]]} parts, got {clients} clients for {len(names)} domains"
        )
    return parts


def _named(name: str, values: ArrayLike) -> tuple[tuple[str, ...], Ints]:
    """The sorted distinct values as strings, and each sample's position among them."""
    array = as_labels(values, name)
    if not array.size:
        raise DataError(f"{name}: expected at least one sample, got none")
    distinct, codes = np.unique(array, return_inverse=True)
    return tuple(str(value) for value in distinct), codes.astype(np.int64)


def _padded(count: int) -> list[str]:
    """'00', '01', ...: numbers whose alphabetical order is their order."""
    width = len(str(count - 1))
    return [f"{number:0{width}d}" for number in range(count)]


def _deal(amounts: Ints, rng: np.random.Generator) -> Partition:
    """Random samples, `amounts[k]` of them for client k."""
    return _gather(rng.permutation(np.repeat(np.arange(len(amounts)), amounts)), len(amounts))


def _gather(owner: Ints, clients: int, names: tuple[str, ...] | None = None) -> Partition:
    """The partition in which sample i belongs to client owner[i]."""
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=clients))
    indices = tuple(np.split(order, ends[:-1]))
    return Partition(names or tuple(f"client-{number}" for number in _padded(clients)), indices)


def _select(partition: Partition, samples: Ints, owner: Ints, mask: NDArray[np.bool_]) -> Partition:
    """The part of each client that `mask` marks among `samples` (those of `partition.flat()`)."""
    ends = np.cumsum(np.bincount(owner[mask], minlength=len(partition)))
    return Partition(partition.names, tuple(np.split(samples[mask], ends[:-1])))


def _check_disjoint(indices: tuple[Ints, ...]) -> None:
    if any(index.ndim != 1 or index.dtype.kind not in "iu" for index in indices):
        raise DataError("indices: expected 1-D arrays of integers")
    every = np.sort(np.concatenate((np.zeros(0, dtype=np.int64), *indices)))
    if every.size and every[0] < 0:
        raise DataError(f"indices: expected sample numbers from 0, got {every[0]}")
    twice = every[1:][every[1:] == every[:-1]]
    if twice.size:
        raise DataError(f"indices: expected each sample at one client, got {twice[0]} twice")

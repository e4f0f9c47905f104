"""How unlike the clients are, and how long it takes to have met them all.

Clients per class, classes per client, the mean Jaccard index of clients' class sets; the batch
coupon collector (Stadje 1990) behind the rounds of partial participation (thesis, table 3.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headstart.data import checks
from headstart.data.partition import Partition, encode, take
from headstart.data.stratify import Ints
from headstart.errors import DataError

Floats: TypeAlias = NDArray[np.float64]
Presence: TypeAlias = "scipy.sparse.csr_array[np.float32, tuple[int, int]]"

_BLOCK = 4_000_000  # pairs of clients compared at once
_DENSE_GAIN = 50  # multiplications BLAS does in the time of one of a sparse product


@dataclass(frozen=True, eq=False)
class Heterogeneity:
    """Measures of a partition: counts, class spread and the mean Jaccard index."""

    clients: int
    samples: int
    classes: int
    clients_per_class: Ints
    classes_per_client: Ints
    sizes: Ints
    jaccard: float

    def summary(self) -> dict[str, int | float]:
        """Plain numbers for a table: each array as its mean, deviation, least and most."""
        spreads = {
            "clients_per_class": self.clients_per_class,
            "classes_per_client": self.classes_per_client,
            "size": self.sizes,
        }
        numbers: dict[str, int | float] = {
            "clients": self.clients,
            "samples": self.samples,
            "classes": self.classes,
            "jaccard": self.jaccard,
        }
        for name, values in spreads.items():
            numbers[f"{name}_mean"] = float(values.mean())
            numbers[f"{name}_std"] = float(values.std())
            numbers[f"{name}_min"] = int(values.min())
            numbers[f"{name}_max"] = int(values.max())
        return numbers


def describe(partition: Partition, labels: ArrayLike) -> Heterogeneity:
    """Measure `partition` over all classes of `labels`; at least one sample must be assigned."""
    classes, codes = encode(labels)
    samples, owner = partition.flat()
    if not samples.size:
        raise DataError("partition: expected at least one assigned sample, got none")
    cells = np.unique(owner * len(classes) + take(codes, samples))
    rows, columns = np.divmod(cells, len(classes))
    return Heterogeneity(
        clients=len(partition),
        samples=len(samples),
        classes=len(classes),
        clients_per_class=np.bincount(columns, minlength=len(classes)),
        classes_per_client=np.bincount(rows, minlength=len(partition)),
        sizes=partition.sizes(),
        jaccard=mean_jaccard(rows, columns),
    )


def mean_jaccard(rows: Ints, columns: Ints) -> float:
    """J̄ = 1/K² ΣΣ |C_k∩C_h| / |C_k∪C_h| over the K clients (`rows`) that hold any class.

    `rows` and `columns` list each (client, class) that is present, once.
    """
    _, client = np.unique(rows, return_inverse=True)
    _, code = np.unique(columns, return_inverse=True)
    amounts = np.bincount(client)
    k, spread = len(amounts), np.bincount(code).astype(np.float64)
    present = scipy.sparse.csr_array((np.ones(len(client), dtype=np.float32), (client, code)))
    # The sparse product multiplies Σ_c K_c² times, the dense one K² C times.
    dense = _DENSE_GAIN * (spread**2).sum() > float(k) ** 2 * len(spread)
    pair_sum = _dense_sum if dense else _sparse_sum
    step = max(1, _BLOCK // k)
    blocks = (slice(start, start + step) for start in range(0, k, step))
    return sum(pair_sum(present, amounts, block) for block in blocks) / k**2


def _sparse_sum(present: Presence, amounts: Ints, block: slice) -> float:
    common = (present[block] @ present.T).tocoo()
    first, second = common.coords
    union = amounts[block][first] + amounts[second] - common.data
    return float((common.data / union).sum())


def _dense_sum(present: Presence, amounts: Ints, block: slice) -> float:
    common = (present[block].toarray() @ present.toarray().T).astype(np.float64)
    union = amounts[block, None] + amounts - common
    return float((common / union).sum())


def rounds_to_see(
    clients: int, per_round: int, fractions: Sequence[float] = (0.25, 0.5, 0.75, 1.0)
) -> list[float]:
    """Expected rounds until ⌈fraction · clients⌉ have been seen, `per_round` distinct a round.

    Batch coupon collector, exactly: the rounds are independent, and with s of K clients seen a
    round meets j new ones with probability C(K−s, j) C(s, κ−j) / C(K, κ).
    """
    checks.count("clients", clients)
    checks.count("per_round", per_round)
    if per_round > clients:
        raise DataError(f"per_round: expected at most {clients}, the clients, got {per_round}")
    targets = [_target(fraction, clients) for fraction in fractions]
    spent = _rounds_spent(clients, per_round)
    return [float(spent[:target].sum()) for target in targets]


def _target(fraction: float, clients: int) -> int:
    if not 0 < fraction <= 1:
        raise DataError(f"fractions: expected each above 0 and at most 1, got {fraction!r}")
    return math.ceil(fraction * clients - 1e-9)  # 0.1 · 30 is 3.0000000000000004


def _rounds_spent(clients: int, per_round: int) -> Floats:
    """Expected rounds that begin with exactly s clients seen, for s = 0, ..., K − 1."""
    log_factorial = scipy.special.gammaln(np.arange(clients + 1) + 1.0)
    visited = np.zeros(clients + per_round + 1)  # probability that s is ever the number seen
    visited[0] = 1.0
    spent = np.zeros(clients)
    for seen in range(clients):
        fresh, chance = _new_clients(clients, per_round, seen, log_factorial)
        leave = chance.sum()
        spent[seen] = visited[seen] / leave
        visited[seen + fresh.start : seen + fresh.stop] += visited[seen] * chance / leave
    return spent


def _new_clients(
    clients: int, per_round: int, seen: int, log_factorial: Floats
) -> tuple[range, Floats]:
    """The possible numbers j >= 1 of new clients in a round, and their probabilities."""
    unseen = clients - seen
    fresh = range(max(1, per_round - seen), min(per_round, unseen) + 1)
    j = np.arange(fresh.start, fresh.stop)

    def choose(n: int, k: Ints | int) -> Floats:
        logs: Floats = log_factorial[n] - log_factorial[k] - log_factorial[n - k]
        return logs

    logs = choose(unseen, j) + choose(seen, per_round - j) - choose(clients, per_round)
    return fresh, np.exp(logs)

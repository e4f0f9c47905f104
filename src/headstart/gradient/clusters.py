"""Clients in clusters by their styles, as LADD does it (Shenaj et al. 2023).

For each number of clusters k-means is run from several seeds, and the run with the smallest
distance within clusters is kept; of the numbers, the one with the highest silhouette. The authors'
program tries 4 to 19, and found 4, the edge of its range, on all its data: here 2 is the first.

The server sees each client's style (a row, not a sum) and knows the cluster of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError
from headstart.gradient.checks import whole

MOST = 19  # clusters, as in the authors' program
RESTARTS = 10


@dataclass(frozen=True, eq=False)
class Clusters:
    """The cluster of each client, the centre of each cluster, and how well each number did."""

    of: Mapping[str, int]
    centres: NDArray[np.float64]
    silhouettes: Mapping[int, float]  # by number of clusters; empty: there was nothing to choose

    def __len__(self) -> int:
        return len(self.centres)

    def members(self, cluster: int) -> tuple[str, ...]:
        return tuple(name for name, own in self.of.items() if own == cluster)

    def nearest(self, style: ArrayLike) -> int:
        """The cluster whose centre is nearest to a style, of an image for instance."""
        row = np.asarray(style, np.float64).ravel()
        if row.shape != self.centres.shape[1:]:
            raise DataError(f"style: expected {self.centres.shape[1]} numbers, got {row.size}")
        return int(np.linalg.norm(self.centres - row, axis=1).argmin())


def clustered(
    styles: Mapping[str, ArrayLike],
    counts: Iterable[int] | None = None,
    *,
    restarts: int = RESTARTS,
    seed: int = 0,
) -> Clusters:
    """Clusters of clients by their styles, the same for any order of the clients.

    `counts`: the numbers of clusters to choose from, 2 to 19 if nothing is said; those that are not
    between 2 and one less than there are different styles cannot be judged. Where none is left,
    all clients are one cluster.
    """
    whole("restarts", restarts)
    whole("seed", seed, 0)
    names, rows = _rows(styles)
    most = len(np.unique(rows, axis=0)) - 1
    tried = [k for k in dict.fromkeys(counts or range(2, MOST + 1)) if 2 <= k <= most]
    found = {k: _best(rows, k, restarts, seed) for k in tried}
    from sklearn.metrics import silhouette_score

    judged = {k: float(silhouette_score(rows, labels)) for k, labels in found.items()}
    chosen = max(judged, key=lambda k: (judged[k], -k), default=1)
    labels = _renumbered(found[chosen]) if judged else np.zeros(len(names), np.int64)
    centres = np.stack([rows[labels == own].mean(axis=0) for own in range(labels.max() + 1)])
    return Clusters(dict(zip(names, labels.tolist(), strict=True)), centres, judged)


def _rows(styles: Mapping[str, ArrayLike]) -> tuple[list[str], NDArray[np.float64]]:
    names = sorted(styles)
    rows = [np.asarray(styles[name], np.float64).ravel() for name in names]
    if not rows or len({row.size for row in rows}) > 1 or not rows[0].size:
        sizes = sorted({row.size for row in rows})
        raise DataError(f"styles: expected clients with rows of one length, got {sizes}")
    table = np.stack(rows)
    if not np.isfinite(table).all():
        worst = names[int(np.argmin(np.isfinite(table).all(axis=1)))]
        raise DataError(f"styles: expected finite numbers, got NaN or infinity of {worst}")
    return names, table


def _best(rows: NDArray[np.float64], count: int, restarts: int, seed: int) -> NDArray[np.int64]:
    """The clusters of the seed with the smallest sum of squared distances to their centres."""
    from sklearn.cluster import KMeans

    fits = [KMeans(count, n_init=1, random_state=seed + at).fit(rows) for at in range(restarts)]
    labels: NDArray[np.int64] = min(fits, key=lambda fit: fit.inertia_).labels_.astype(np.int64)
    return labels


def _renumbered(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """In the order in which clusters first occur, so that their numbers do not depend on seeds."""
    order = {own: place for place, own in enumerate(dict.fromkeys(labels.tolist()))}
    return np.array([order[own] for own in labels.tolist()])

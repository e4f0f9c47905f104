"""OLL, the local prior, the residual ridge: each makes a global head a client's own, alone.

Every one is (head, features, labels, settings) → head, of the client's training samples; those of
classes the head has never seen are left aside. Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError
from headstart.heads.linear import LinearHead
from headstart.labels import Labels, as_labels, same_kind
from headstart.personal.residual import choose, problem
from headstart.personal.settings import Settings


def known(head: LinearHead, labels: ArrayLike) -> NDArray[np.bool_]:
    """Which samples are of the head's classes."""
    y = as_labels(labels)
    if not same_kind(y, head.classes):
        raise DataError(
            f"labels: expected classes like {head.classes[0].item()!r}, got {y[0].item()!r}"
        )
    return np.isin(y, head.classes)


def as_it_came(
    head: LinearHead, features: ArrayLike, labels: ArrayLike, settings: Settings
) -> LinearHead:
    """The global head."""
    return head


def only_local_labels(
    head: LinearHead, features: ArrayLike, labels: ArrayLike, settings: Settings
) -> LinearHead:
    """OLL: the rows of the client's own classes."""
    return head.restrict(_own(head, labels))


def local_prior(
    head: LinearHead, features: ArrayLike, labels: ArrayLike, settings: Settings
) -> LinearHead:
    """OLL, and Bayes' rule for the client's own class frequencies."""
    classes, counts = np.unique(_own(head, labels), return_counts=True)
    local_counts = dict(zip(classes.tolist(), counts.tolist(), strict=True))
    return head.with_prior(local_counts, smoothing=settings.smoothing)


def residual_ridge(
    head: LinearHead, features: ArrayLike, labels: ArrayLike, settings: Settings
) -> LinearHead:
    """OLL, the local prior, and a ridge regression of what both leave unexplained."""
    kept = known(head, labels)
    z, y = np.asarray(features), as_labels(labels)
    if len(z) != len(y):
        raise DataError(f"labels: expected one per sample ({len(z)}), got {len(y)}")
    masked = only_local_labels(head, z, y, settings)
    prior = local_prior(head, z, y, settings)
    posed = problem(masked, prior, z[kept], y[kept], settings.leverage)
    return posed.with_mu(choose(posed.candidates()).mu)


def _own(head: LinearHead, labels: ArrayLike) -> Labels:
    usable = as_labels(labels)[known(head, labels)]
    if not len(usable):
        raise DataError("labels: expected samples of the head's classes, got none")
    return usable


Variant = Callable[[LinearHead, ArrayLike, ArrayLike, Settings], LinearHead]
VARIANTS: dict[str, Variant] = {
    "global": as_it_came,
    "oll": only_local_labels,
    "prior": local_prior,
    "ridge": residual_ridge,
}

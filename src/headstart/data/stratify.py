"""Held-out samples chosen group by group, class by class: Sainte-Laguë apportionment.

The j-th sample (j = 0, 1, ...) of a class of m samples has priority (j + 1/2) / m; a group holds
out its samples of lowest priority. A class gives in proportion to its size, and never its last
sample, so that no held-out class is absent from the training part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def ranks(groups: Ints, *keys: NDArray[Any]) -> Ints:
    """Each sample's place (from 0) within its own group when sorted by `keys`."""
    order = np.lexsort((*reversed(keys), groups))
    grouped = groups[order]
    starts = np.flatnonzero(np.diff(grouped, prepend=grouped[:1] - 1))
    lengths = np.diff(starts, append=len(groups))
    place = np.empty(len(groups), dtype=np.int64)
    place[order] = np.arange(len(groups)) - np.repeat(starts, lengths)
    return place


def held_out(
    groups: Ints, codes: Ints, fraction: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Mask of about `fraction` of each group (codes from 0), stratified by class."""
    shuffle = rng.permutation(len(codes))
    strata = groups * (int(codes.max(initial=0)) + 1) + codes
    _, stratum, amounts = np.unique(strata, return_inverse=True, return_counts=True)
    place, amount = ranks(strata, shuffle), amounts[stratum]
    spare = np.flatnonzero(place < amount - 1)
    priority = (place[spare] + 0.5) / amount[spare]
    wanted = np.floor(fraction * np.bincount(groups) + 0.5)
    chosen = ranks(groups[spare], priority, shuffle[spare]) < wanted[groups[spare]]
    mask = np.zeros(len(codes), dtype=np.bool_)
    mask[spare[chosen]] = True
    return mask

"""How samples are shared out: random pools, Dirichlet proportions, whole numbers of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headstart.data.stratify import Ints, ranks

Floats = NDArray[np.float64]


def pools(codes: Ints, classes: int, rng: np.random.Generator) -> list[Ints]:
    """The samples of each class in random order; `codes` may hold several classes per sample."""
    shuffle = rng.permutation(len(codes))
    shuffled = codes[shuffle].reshape(len(codes), -1)
    order = np.argsort(shuffled, axis=None, kind="stable")
    ends = np.cumsum(np.bincount(shuffled.ravel(), minlength=classes)[:classes])
    return np.split(shuffle[order // shuffled.shape[1]], ends)[:classes]


def even(n: int, parts: int) -> Ints:
    """`parts` integers that sum to n and differ by at most one."""
    return np.arange(n, n + parts, dtype=np.int64)[::-1] // parts


def apportion(total: int, weights: Floats | Ints, minimum: int) -> Ints:
    """Integers in proportion to `weights` (largest remainders), each at least `minimum`."""
    weights = np.asarray(weights, dtype=np.float64)
    amounts = np.full(len(weights), minimum, dtype=np.int64)
    free = np.ones(len(weights), dtype=np.bool_)
    while free.any():
        rest = total - minimum * int((~free).sum())
        exact = rest * weights[free] / weights[free].sum()
        if (exact >= minimum).all():
            whole = np.floor(exact).astype(np.int64)
            order = np.argsort(whole - exact, kind="stable")
            whole[order[: rest - int(whole.sum())]] += 1
            amounts[free] = whole
            break
        free[np.flatnonzero(free)[exact < minimum]] = False
    return amounts


def log_gammas(shape: Floats, rng: np.random.Generator) -> Floats:
    """log g, g_i ~ Gamma(a_i), so that g / Σg ~ Dir(a); in logarithms no small a underflows."""
    # g(a) = g(a + 1) U^(1/a)
    floor = np.maximum(shape, 1e-300)
    return np.log(rng.standard_gamma(shape + 1)) - rng.standard_exponential(len(shape)) / floor


def softmax(logits: Floats) -> Floats:
    """e^l / Σe^l."""
    weights: Floats = np.exp(logits - logits.max())
    weights /= weights.sum()
    return weights


def share_class(amount: int, clients: int, alpha: float, rng: np.random.Generator) -> Ints:
    """The clients of `amount` samples of a class: n_c p_c rounded without bias, p_c ~ Dir(α)."""
    logits = log_gammas(np.full(clients, float(alpha)), rng)
    holders = locate(softmax(logits), (np.arange(amount) + rng.random()) / amount)
    # Shuffled clients: equally spaced marks would meet the same clients in every class.
    return np.asarray(rng.permutation(clients)[holders])


def locate(weights: Floats, marks: Floats) -> Ints:
    """Which of the intervals of these sizes, laid end to end over [0, 1), holds each mark."""
    ends = np.cumsum(weights)
    places = np.searchsorted(ends, marks * ends[-1], side="right").astype(np.int64)
    return np.asarray(np.minimum(places, len(ends) - 1))


def top_up(owner: Ints, clients: int, minimum: int, rng: np.random.Generator) -> Ints:
    """Move samples from the largest clients to those with fewer than `minimum`."""
    short = np.maximum(minimum - np.bincount(owner, minlength=clients), 0)
    if not short.any():
        return owner
    shuffle = rng.permutation(len(owner))
    height = ranks(owner, shuffle)
    tallest = np.lexsort((shuffle, -height))[: short.sum()]
    moved = owner.copy()
    moved[tallest] = np.repeat(np.arange(clients), short)
    return moved


def draw(
    pooled: list[Ints], left: Ints, quota: int, logits: Floats, rng: np.random.Generator
) -> Ints:
    """Take `quota` samples out of the pools (`left` is how many remain in each), classes ~ mix."""
    taken = [np.zeros(0, dtype=np.int64)]
    while quota:
        mix = softmax(np.where(left > 0, logits, -np.inf))
        picks = np.bincount(locate(mix, rng.random(quota)), minlength=len(left))
        drawn = np.minimum(picks, left)
        left -= drawn
        taken += [pooled[c][left[c] : left[c] + drawn[c]] for c in np.flatnonzero(drawn)]
        quota -= int(drawn.sum())
    return np.concatenate(taken)

"""What a later head over pixels receives of the scores of an earlier one, and random features.

A cell knows its own features; its neighbours' classes are in the scores that an earlier head gives
them. All of it is a map of one image alone, so moments of it are sums as before, and a head over
it costs each client one more message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError

Array = NDArray[np.float32]
Grid = tuple[int, int]
STEPS = (1, 2, 4, 8, 16, 32)  # cells to the eight neighbours
SIDES = (1, 5, 13, 29, 61)  # cells of the boxes that shares are averaged over
SOFTER = 4.0  # temperature of what is averaged: heads over many cells are too sure
_ROUND = tuple((a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)


def context(scores: NDArray[Any], grid: Grid) -> Array:
    """(h·w × C) scores ↦ (h·w × (55C + 6)): neighbours, boxes, the image's mean, the position.

    55 = 1 + 8·|STEPS| + |SIDES| + 1; fewer where these are fewer.
    """
    rows, columns = grid
    if scores.ndim != 2 or len(scores) != rows * columns:
        raise DataError(
            f"scores: expected a row for each of {rows}×{columns} cells, got {scores.shape}"
        )
    sure = softmax(scores)
    mean = np.broadcast_to(sure.mean(axis=0), sure.shape)
    soft = softmax(scores / SOFTER)
    parts = (neighbours(sure, grid), boxes(soft, grid), mean, positions(grid))
    return np.concatenate(parts, axis=1)


def softmax(scores: NDArray[Any]) -> Array:
    """Shares of the classes; rows add to 1."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)


def neighbours(shares: Array, grid: Grid, steps: Sequence[int] = STEPS) -> Array:
    """Each cell's own columns and those of the eight cells so many steps away; borders go on."""
    rows, columns = grid
    edge = max(steps, default=0)
    wide = _framed(shares, grid, edge)
    moves = [(0, 0), *((a * step, b * step) for step in steps for a, b in _ROUND)]
    planes = [
        wide[edge + down : edge + down + rows, edge + right : edge + right + columns]
        for down, right in moves
    ]
    return np.concatenate(planes, axis=2).reshape(rows * columns, -1)


def boxes(shares: Array, grid: Grid, sides: Sequence[int] = SIDES) -> Array:
    """Means over squares of these (odd) sides around each cell; borders go on."""
    return np.concatenate([_box(shares, grid, side) for side in sides], axis=1)


def _box(shares: Array, grid: Grid, side: int) -> Array:
    """By differences of running sums, first down and then across."""
    sums = _framed(shares, grid, side // 2).astype(np.float64)
    for axis in (0, 1):
        total = np.cumsum(np.insert(sums, 0, 0.0, axis=axis), axis=axis)
        ends, starts = (
            np.take(total, np.arange(first, first + grid[axis]), axis=axis) for first in (side, 0)
        )
        sums = ends - starts
    return (sums / side**2).reshape(len(shares), -1).astype(np.float32)


def _framed(shares: Array, grid: Grid, edge: int) -> Array:
    planes = shares.reshape(*grid, -1)
    return np.pad(planes, ((edge, edge), (edge, edge), (0, 0)), mode="edge")


def positions(grid: Grid) -> Array:
    """y, y², y³, x, x², xy of each cell, both from −1 to 1."""
    y, x = (
        axis.ravel() for axis in np.meshgrid(*(np.linspace(-1, 1, n) for n in grid), indexing="ij")
    )
    return np.stack([y, y**2, y**3, x, x**2, x * y], axis=1).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Hinges:
    """max(0, zR + r): random features along directions that matter (`directions`)."""

    weights: Array  # d × D
    offsets: Array  # D

    def __call__(self, z: Array) -> Array:
        return np.maximum(z @ self.weights + self.offsets, 0)

    def __add__(self, other: Hinges) -> Hinges:
        """These features, then the others."""
        weights = np.concatenate([self.weights, other.weights], axis=1)
        return Hinges(weights, np.concatenate([self.offsets, other.offsets]))


def hinges(
    directions: NDArray[np.float64],
    mean: NDArray[np.float64],
    count: int,
    generator: np.random.Generator,
    spread: float = 1.5,
) -> Hinges:
    """`count` features of z: of k directions (d × k) along which z has unit variance.

    R mixes them, each weight N(0, spread²/k), so that zR has deviation `spread`; thresholds are
    N(0, 1) around the mean.
    """
    k = directions.shape[1]
    weights = directions @ (generator.standard_normal((k, count)) * (spread / np.sqrt(k)))
    offsets = generator.standard_normal(count) - mean @ weights
    return Hinges(weights.astype(np.float32), offsets.astype(np.float32))


def principal(covariance: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The first principal directions of standardized columns, scaled to unit variance (d × k)."""
    deviations = np.sqrt(np.diagonal(covariance) + 1e-8)
    values, vectors = np.linalg.eigh(covariance / np.outer(deviations, deviations))
    first = slice(-1, -1 - count, -1)
    chosen: NDArray[np.float64] = vectors[:, first] / np.sqrt(values[first])
    return chosen / deviations[:, None]


def discriminant(
    weights: NDArray[np.float64], covariance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """C − 1 uncorrelated directions of unit variance that span a head's rows (C × d) ↦ d × C−1.

    The direction of least variance is left: what all scores share says nothing of the class.
    """
    values, vectors = np.linalg.eigh(weights @ covariance @ weights.T)
    return weights.T @ (vectors[:, 1:] / np.sqrt(values[1:]))

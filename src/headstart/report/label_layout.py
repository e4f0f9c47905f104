"""Labels beside points: each takes the nearest free place around its own point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple


class Box(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float

    def common(self, other: Box) -> float:
        """The area that two boxes share."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(width, 0.0) * max(height, 0.0)


Pair = tuple[float, float]
NEAR = 12.0  # a label farther from its point is led to it by a line
_RADII = (9.0, 16.0, 26.0, 38.0, 52.0, 68.0, 86.0)
_DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))


def place(points: Sequence[Pair], sizes: Sequence[Pair], frame: Box) -> list[Box]:
    """A box of each size near its point, inside the frame, over no point, box or leading line."""
    marks = [Box(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    placed: list[Box] = []
    lines: list[Box] = []
    for at, point in enumerate(points):
        others = marks[:at] + marks[at + 1 :] + placed
        boxes = [
            _beside(point, sizes[at], radius, direction)
            for radius, direction in itertools.product(_RADII, _DIRECTIONS)
        ]
        costs = [
            _cost(box, others + lines, frame) + 3 * _shared(_leading(point, box), others)
            for box in boxes
        ]
        placed.append(boxes[costs.index(min(costs))])
        lines += _leading(point, placed[-1])
    return placed


def nearest(point: Pair, box: Box) -> Pair:
    """Where a line from the point to the box ends."""
    x = min(max(point[0], box.left), box.right)
    return x, min(max(point[1], box.bottom), box.top)


def _leading(point: Pair, box: Box, steps: int = 8) -> list[Box]:
    """Small boxes along the line from a point to its box, if it is far enough to need one."""
    end = nearest(point, box)
    if math.dist(point, end) <= NEAR:
        return []
    along = [(step + 0.5) / steps for step in range(steps)]
    spots = [tuple(a + t * (b - a) for a, b in zip(point, end, strict=True)) for t in along]
    return [Box(x - 1.5, y - 1.5, x + 1.5, y + 1.5) for x, y in spots]


def _beside(point: Pair, size: Pair, radius: float, direction: Pair) -> Box:
    reach = radius / math.hypot(*direction)
    x = point[0] + direction[0] * (reach + size[0] / 2)
    y = point[1] + direction[1] * (reach + size[1] / 2)
    return Box(x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2)


def _cost(box: Box, others: Sequence[Box], frame: Box) -> float:
    area = (box.right - box.left) * (box.top - box.bottom)
    return round(2 * (area - box.common(frame)), 6) + _shared([box], others)


def _shared(boxes: Sequence[Box], others: Sequence[Box]) -> float:
    return round(sum(box.common(other) for box in boxes for other in others), 6)

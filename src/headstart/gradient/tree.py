"""Arithmetic on named arrays: NumPy's on the server, torch's on a client; neither is imported."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Tree = Mapping[str, Any]


def each(work: Callable[..., Any], *trees: Tree) -> dict[str, Any]:
    """`work` on the arrays of each name of the first tree."""
    return {name: work(*(tree[name] for tree in trees)) for name in trees[0]}


def add(left: Tree, right: Tree, by: float = 1.0) -> dict[str, Any]:
    """left + by·right."""
    if by == 1:
        return each(operator.add, left, right)
    return each(lambda a, b: a + by * b, left, right)


def minus(left: Tree, right: Tree) -> dict[str, Any]:
    """Return left − right, array by array."""
    return each(lambda a, b: a - b, left, right)


def scaled(tree: Tree, by: Any) -> dict[str, Any]:
    """Return each array times `by`."""
    return each(lambda a: a * by, tree)


def zeros(tree: Tree) -> dict[str, Any]:
    """Return zeros of the same shapes."""
    return each(lambda a: a * 0, tree)


def only(tree: Tree, names: Iterable[str]) -> dict[str, Any]:
    """The part of a tree with these names, in their order."""
    return {name: tree[name] for name in names}


def spread(factors: Any, array: Any) -> Any:
    """A number per client, shaped to multiply an array of theirs."""
    return factors.reshape(-1, *[1] * (array.ndim - 1))


def norms(tree: Tree) -> Any:
    """‖tree‖ of every client."""
    return sum((a * a).reshape(len(a), -1).sum(1) for a in tree.values()) ** 0.5


def squares(tree: Tree) -> float:
    """‖tree‖²."""
    return float(sum((a * a).sum() for a in tree.values()))

"""What sums of statistics promise: any order, any split, subtraction."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from headstart.errors import DataError
from headstart.heads.base import Head
from headstart.statistics.base import total
from headstart.testing.heads.comparing import (
    Client,
    alike,
    dealt,
    federations,
    make_clients,
    measure,
    one_client,
    pooled,
    quick,
    same_digest,
    values,
)
from headstart.testing.require import near, refuses, require


def order_of_clients_in_exact_mode(head: Head) -> None:
    """The order of clients does not move a bit of an exact total."""

    @quick
    @given(federations(), st.randoms(use_true_random=False))
    def holds(clients: list[Client], random: Any) -> None:
        stats = measure(head, clients, exact=True)
        first = total(stats)
        random.shuffle(stats)
        same_digest(total(stats), first, "total of shuffled clients")
        same_digest(sum(stats), first, "sum() of shuffled clients")
        same_digest(functools.reduce(operator.add, stats), first, "a + b + … of shuffled clients")

    holds()


def order_of_clients(head: Head) -> None:
    """The order of clients does not move a head."""
    clients = make_clients()
    stats, (z, _) = measure(head, clients), pooled(clients)
    scores = head.solve(total(stats)).scores(z)
    near(head.solve(total(stats[::-1])).scores(z), scores, "scores of reversed clients", atol=1e-7)


def splits_in_exact_mode(head: Head) -> None:
    """Any split gives the bits of the pooled data in exact mode, through bytes."""

    @quick
    @given(federations(), st.integers(0, 2**16), st.integers(1, 2))
    def holds(clients: list[Client], seed: int, threads: int) -> None:
        z, y = pooled(clients)
        whole = head.measure(z, y, exact=True)
        with threadpool_limits(threads):
            parts = dealt(z, y, np.random.default_rng(seed))
            sent = [stat.to_bytes() for stat in measure(head, parts, exact=True)]
            came = total(head.statistic.from_bytes(message) for message in sent)
            same_digest(came, whole, f"the total of {len(parts)} clients and the pooled one")

    holds()


def splits(head: Head) -> None:
    """Any split solves to the head of the pooled data."""
    z, y = pooled(make_clients())
    expected = head.solve(head.measure(z, y))
    rng = np.random.default_rng(3)
    for _ in range(3):
        head_ = head.solve(total(measure(head, dealt(z, y, rng, 16))))
        require(head_.classes.tolist() == expected.classes.tolist(), "the classes differ")
        near(head_.weights, expected.weights, "weights", rtol=1e-6, atol=1e-6)
        near(head_.bias, expected.bias, "bias", rtol=1e-6, atol=1e-6)


def removal(head: Head) -> None:
    """A client taken out is a client that never joined."""
    clients = make_clients()
    clients.append((clients[-1][0][:3], np.array([9, 9, 9])))  # a class only it has
    stats = measure(head, clients, exact=True)
    for k in range(len(stats)):
        rest = total(stats[:k] + stats[k + 1 :])
        same_digest(total(stats) - stats[k], rest, f"without client {k}")
    gone = total(stats) - stats[-1]
    require(9 not in gone.classes, "a class that only the removed client had is still there")
    floats = measure(head, clients)
    alike(total(floats) - floats[3], total(floats[:3] + floats[4:]), 1e-12, "without client 3")


def removal_of_everybody(head: Head) -> None:
    """Everybody taken out leaves a total of empty clients."""
    for kind in (np.int64, np.str_):
        clients = [(z, y.astype(kind)) for z, y in make_clients((0, 3, 20))]
        empty, *others = measure(head, clients, exact=True)
        left = functools.reduce(operator.sub, others, total([empty, *others]))
        never = head.measure(np.zeros((0, 12)), [], exact=True)
        same_digest(left, empty, "what is left and an empty client")
        same_digest(left, never, "what is left and one that never had a label")
        same_digest(left - never, never, "nothing without nothing")


def removal_of_an_empty_client(head: Head) -> None:
    """An empty client can be taken out of any total."""
    z, y = pooled(make_clients())
    whole = head.measure(z, y.astype(str), exact=True)
    left = whole - head.measure(np.zeros((0, 12)), [], exact=True)
    same_digest(left, whole, "a total without an empty client")


def removal_of_strangers(head: Head) -> None:
    """Only a part of the sum can be subtracted."""
    z, y = pooled(make_clients())
    whole = head.measure(z, y, exact=True)
    strangers = {
        "another class": head.measure(z[:3], [7, 8, 9], exact=True),
        "too many": head.measure(np.tile(z, (2, 1)), np.tile(y, 2), exact=True),
        "text": head.measure(z[:1], ["a"], exact=True),
    }
    if set(values(whole)) - {"g"}:  # counts alone cannot tell samples apart
        strangers["other samples"] = head.measure(z + 1.0, y, exact=True)
    for name, stranger in strangers.items():
        refuses(functools.partial(operator.sub, whole, stranger), DataError, name, "subtract")


def unlike_statistics(head: Head) -> None:
    """Statistics of other modes, labels, bounds or dimensions do not add."""
    z, y = one_client(9)
    mine = head.measure(z, y, exact=True)
    others = {
        "float and exact": head.measure(z, y),
        "text and integers": head.measure(z, y.astype(str), exact=True),
    }
    if getattr(head, "feature_map", None) is None:  # whose lattice and dimension are its own
        others["another bound"] = head.measure(z, y, exact=True, bound=17.0)
        others["another dimension"] = head.measure(z[:, :-1], y, exact=True)
    for name, other in others.items():
        refuses(lambda other=other: (mine + other).digest(), DataError, name)  # type: ignore[misc]
        refuses(lambda other=other: total([mine, other]), DataError, name)  # type: ignore[misc]

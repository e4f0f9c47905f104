"""What messages and saved totals promise: precision, the same bytes, nothing lost."""

from __future__ import annotations

import functools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headstart.data.datasets import load
from headstart.errors import DataError
from headstart.heads.base import Head
from headstart.statistics.base import PRECISIONS, total
from headstart.testing.heads.comparing import (
    TOLERANCE,
    Client,
    alike,
    each_mode,
    make_clients,
    measure,
    one_client,
    quick,
    same_digest,
    solved,
)
from headstart.testing.require import refuses, require


def messages_keep_their_precision(head: Head) -> None:
    """A message keeps what its precision promises, as bytes and as arrays."""
    for n in (0, 1, 5, 11, 60):
        stat = head.measure(*one_client(n), secret=b"s")
        for precision in PRECISIONS:
            what = f"{n} samples at {precision}"
            copy = head.statistic.from_bytes(stat.to_bytes(precision))
            alike(stat, copy, TOLERANCE[precision], f"{what}, as bytes")
            copy = head.statistic.from_arrays(stat.to_arrays(precision))
            alike(stat, copy, TOLERANCE[precision], f"{what}, as arrays")


def messages_can_be_sent_on(head: Head) -> None:
    """A relay decodes at one precision and encodes at another: the coarser one's error, no more."""
    for n in (5, 60):
        stat = head.measure(*one_client(n), secret=b"s")
        for first in PRECISIONS:
            for second in PRECISIONS:
                copy = head.statistic.from_bytes(stat.to_bytes(first))
                again = head.statistic.from_bytes(copy.to_bytes(second))
                allowed = TOLERANCE[first] + TOLERANCE[second]
                alike(stat, again, allowed, f"{n} samples at {first}, then at {second}")


def totals_can_be_saved(head: Head) -> None:
    """A total of rounded uploads, which is not quite that of any dataset, is saved and read."""
    for name, clients in _awkward_totals().items():
        for precision in PRECISIONS:
            uploads = [stat.to_bytes(precision) for stat in measure(head, clients)]
            came = total(head.statistic.from_bytes(message) for message in uploads)
            for stored in ("float64", "float32"):
                again = head.statistic.from_bytes(came.to_bytes(stored))
                what = f"{name} at {precision}, saved at {stored}"
                require(again.samples == came.samples, f"{what}: the samples differ")
            if head.statistic.is_sum:
                left = came - head.statistic.from_bytes(uploads[-1])
                again = head.statistic.from_bytes(left.to_bytes("float64"))
                require(again.samples == left.samples, f"{name} at {precision}, less one client")


def _awkward_totals() -> dict[str, list[Client]]:
    digits, rng = load("digits"), np.random.default_rng(9)
    z, y = digits.features * 16, digits.labels
    low = [(rng.normal(size=(n, 2)) @ rng.normal(size=(2, 9)), n) for n in (3, 1, 5, 20, 50)]
    return {
        "clients": make_clients(),
        "digits": [(z[k * 7 : k * 7 + 7], y[k * 7 : k * 7 + 7]) for k in range(30)],
        "constant": [(np.full((n, 9), 5.0), np.zeros(n, int)) for n in (3, 1, 20, 50)],
        "low rank": [(rows, np.arange(n) % 2) for rows, n in low],
    }


def exact_messages_lose_nothing(head: Head) -> None:
    """An exact statistic comes back bit for bit, and is not sent at a coarser precision."""

    @quick
    @given(st.integers(0, 70), st.integers(1, 12), st.integers(0, 2**16))
    def holds(n: int, d: int, seed: int) -> None:
        stat = head.measure(*one_client(n, d=d, seed=seed), exact=True, secret=b"s")
        cls = head.statistic
        same_digest(cls.from_bytes(stat.to_bytes()), stat, "through bytes")
        same_digest(cls.from_arrays(stat.to_arrays()), stat, "through arrays")
        for precision in ("float32", "float16", "int8"):
            coarse = functools.partial(stat.to_bytes, precision)
            refuses(coarse, DataError, f"an exact statistic at {precision}", "precision")

    holds()


def retries_send_the_same_bytes(head: Head) -> None:
    """The same samples and secret give the same message."""
    for mode, how in each_mode():
        for n in (4, 60):
            first, second = (head.measure(*one_client(n), secret=b"mine", **how) for _ in range(2))
            for precision in ["float64"] if how["exact"] else PRECISIONS:
                same = first.to_bytes(precision) == second.to_bytes(precision)
                require(same, f"{mode}, {n} samples at {precision}: the bytes differ")


def looking_changes_nothing(head: Head) -> None:
    """Looking at a statistic, or solving from it, does not change its message."""
    for mode, how in each_mode():
        for n in (4, 60):
            stat = head.measure(*one_client(n), secret=b"mine", **how)
            before = stat.to_bytes()
            stat.digest()
            repr(stat)
            solved(head, stat, 12, f"{mode}, {n} samples")
            require(stat.to_bytes() == before, f"{mode}, {n} samples: the bytes differ")


def order_of_samples(head: Head) -> None:
    """The order of samples does not move a byte, nor do zeros of either sign."""
    rng = np.random.default_rng(5)
    for mode, how in each_mode():
        n, d = (40, 10) if how["exact"] else (6, 10)
        z, y = rng.normal(size=(n, d)).round(1), rng.integers(3, size=n)
        z[:, :3] = 0.0
        z[rng.random(z.shape) < 0.2] = 0.0
        if not how["exact"] and not hasattr(head.statistic, "gram"):
            z = z.round()  # float sums of few whole numbers are exact as well
        message = head.measure(z, y, secret=b"s", **how).to_bytes()
        for _ in range(4):
            order = rng.permutation(n)
            signed = np.where((z == 0) & (rng.random(z.shape) < 0.5), -0.0, z)
            again = head.measure(signed[order], y[order], secret=b"s", **how).to_bytes()
            require(again == message, f"{mode}: the bytes differ for another order of samples")

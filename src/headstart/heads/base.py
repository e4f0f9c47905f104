"""What a head is: a name, a statistic, `measure` on a client and `solve` on the server."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Protocol, TypedDict, Unpack

from numpy.typing import ArrayLike

from headstart.errors import HeadstartError, SolveError
from headstart.heads.linear import LinearHead
from headstart.statistics.base import Statistic


class Measurement(TypedDict, total=False):
    """How a client measures, whatever the head.

    exact   on the public lattice of `bound`: totals are the same bits for every split and order
    bound   the largest magnitude a feature may have in exact mode (default 16)
    secret  bytes the client keeps, so that a retry sends the same message
    """

    exact: bool
    bound: float
    secret: bytes | None


class Head(Protocol):
    """One closed-form method. `measure` and `solve` are all a federation calls.

    Each has a type of statistic of its own, which only the head itself reads.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    statistic: ClassVar[type[Any]]

    def measure(self, features: ArrayLike, labels: ArrayLike, **how: Unpack[Measurement]) -> Any:
        """Return the statistic of a client's samples; bad features and labels are refused."""
        ...

    def paper_upload_size(self, d: int, held: float, every: int) -> float:
        """Return how many numbers the papers count as sent by a client that has `held` of `every`
        classes (4 bytes each)."""
        ...

    def solve(self, total: Any) -> LinearHead:
        """Return the head of the sum of all statistics; a `SolveError` where there is none."""
        ...


def settings(head: Any) -> dict[str, Any]:
    """The parameters of a head as plain values: what a config or a step says."""
    return dataclasses.asdict(head)


def check_upload(head: Any, statistic: Any, clients: int) -> None:
    """What a head's own settings say of the uploads of so many clients, where they say something.

    `WireError` where one is nothing that a client which follows them sends.
    """
    own = getattr(head, "check_upload", None)
    if own is not None:
        own(statistic, clients)


def require_samples(total: Statistic) -> None:
    """Refuse to solve from nothing."""
    if total.samples == 0:
        raise SolveError("total: expected at least one sample, got none")


def number(name: str, value: Any, least: float = 0.0, *, strict: bool = False) -> None:
    """Refuse a parameter that is not a number of at least (or above) `least`."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (value > least if strict else value >= least) or value == float("inf"):
        above = "above" if strict else "of at least"
        raise HeadstartError(f"{name}: expected a number {above} {least:g}, got {value!r}")


def flag(name: str, value: Any) -> None:
    """Refuse a parameter that is neither true nor false."""
    if not isinstance(value, bool):
        raise HeadstartError(f"{name}: expected true or false, got {value!r}")


def choice(name: str, value: Any, options: tuple[str, ...]) -> None:
    """Refuse a parameter that is none of the options."""
    if value not in options:
        raise HeadstartError(f"{name}: expected one of {', '.join(options)}, got {value!r}")

"""What a step promised of its answers: the one place where every federation holds answers to it.

A client may be broken, or lie. An answer of another length, with hits above the samples tested,
numbers that are not finite, or a step longer than training can take is dropped and its client
named; the round goes on with the others. Nothing here can see inside a masked sum: of a group only
the sum is checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.errors import SkippedWarning, WireError
from headstart.federation.protocol import Answer, Arrays, Check, Step, step_kind
from headstart.statistics.tally import Tally
from headstart.statistics.vectors import Vectors
from headstart.statistics.wire import Limits

CODE = "promise"
Failed = Callable[[Sequence[str], WireError], None]
_WIDE = Limits()


def broken(text: str) -> WireError:
    """The error of an answer that is not what its step promised."""
    return WireError(CODE, f"answer: {text}")


def promised(step: Step, broadcast: Arrays | None) -> Check:
    """The check of every answer to this question; of a step without a promise, no more than its
    type."""
    kind = step_kind(step.name)
    expected = kind.answer_type(step)
    promise = kind.promise(step.params, broadcast or {}) if kind.promise else None

    def check(statistic: object, limits: Limits, clients: int) -> None:
        if not isinstance(statistic, expected):
            raise broken(f"expected {expected.__name__}, got {type(statistic).__name__}")
        if promise is not None:
            promise(statistic, limits, clients)

    return check


def left_out(clients: Sequence[str], error: WireError) -> None:
    """Say in one line whose answer was dropped; where clients are one's own, that is a warning."""
    names = ", ".join(clients[:5]) + ", …" * (len(clients) > 5)
    warnings.warn(f"{names}: left out: {error}", SkippedWarning, stacklevel=3)


def sound(
    answers: Iterable[Answer],
    step: Step,
    broadcast: Arrays | None,
    failed: Failed = left_out,
    limits: Callable[[Sequence[str]], Limits] = lambda clients: _WIDE,
) -> Iterator[Answer]:
    """Yield the answers that keep their step's promise; `failed` is called for the others."""
    check = promised(step, broadcast)
    for answer in answers:
        try:
            check(answer.statistic, limits(answer.clients), len(answer.clients))
        except WireError as error:
            failed(answer.clients, error)
        else:
            yield answer


# -- what steps promise ----------------------------------------------------------------------------


def numbers(tally: Tally, length: int) -> NDArray[np.float64]:
    """The numbers of a tally of this length, none of them negative."""
    values = tally.values
    if values.shape != (length,):
        raise broken(f"expected {length} numbers, got shape {values.shape}")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise broken("expected numbers of at least 0")
    return values


def hits(tally: Tally, columns: int, rows: int, limits: Limits, clients: int) -> None:
    """A row of samples tested, then rows of hits: whole numbers, none above the samples."""
    table = numbers(tally, columns * (1 + rows)).reshape(1 + rows, columns)
    if (table != np.rint(table)).any():
        raise broken("expected whole numbers of samples and hits")
    if (table[0] > limits.samples * clients).any():
        raise broken(f"expected at most {limits.samples} samples tested per client")
    if (table[1:] > table[0]).any():
        raise broken("expected at most as many hits as samples tested")


def shape(vectors: Vectors, rows: Sequence[str], names: Sequence[str], size: int) -> None:
    """Vectors and numbers of these names, each vector of this size, all of them finite."""
    if (vectors.rows, vectors.names) != (tuple(rows), tuple(names)):
        got = ", ".join([*vectors.rows, *vectors.names])
        raise broken(f"expected {', '.join([*rows, *names])}; got {got:.200}")
    if vectors.vectors.shape != (len(rows), size):
        raise broken(f"expected vectors of {size} numbers, got shape {vectors.vectors.shape}")
    if not np.isfinite(vectors.numbers).all() or not np.isfinite(vectors.vectors).all():
        raise broken("expected finite numbers")


def count(value: float, most: float, what: str) -> None:
    """Refuse what is no whole number from 0 to `most`."""
    if value != np.rint(value) or not 0 <= value <= most:
        raise broken(f"{what}: expected a whole number up to {most:g}, got {value:g}")


def length(vector: NDArray[np.floating], most: float, what: str) -> None:
    """Refuse a vector that is longer than `most`."""
    if most == np.inf:
        return
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    if norm > most:
        raise broken(f"{what}: expected a length of at most {most:.6g}, got {norm:.6g}")

"""The arguments that partitioners share, checked at the edge."""

from __future__ import annotations

import numpy as np

from headstart.errors import DataError


def generator(seed: int) -> np.random.Generator:
    """A random generator; the seed is a non-negative integer."""
    if not is_integer(seed) or seed < 0:
        raise DataError(f"seed: expected a non-negative integer, got {seed!r}")
    return np.random.default_rng(seed)


def is_integer(value: object) -> bool:
    """Whether `value` is an integer (a boolean is not)."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def count(name: str, value: int) -> None:
    """A positive integer."""
    if not is_integer(value) or value < 1:
        raise DataError(f"{name}: expected a positive integer, got {value!r}")


def enough(n: int, clients: int) -> None:
    """At least one sample for every client."""
    count("n", n)
    count("clients", clients)
    if clients > n:
        raise DataError(f"clients: expected at most one a sample ({n}), got {clients}")


def positive(name: str, value: float) -> None:
    """A finite number above 0."""
    if not (isinstance(value, (int, float, np.number)) and 0 < value < np.inf):
        raise DataError(f"{name}: expected a finite number above 0, got {value!r}")


def fraction(name: str, value: float) -> None:
    """A number in [0, 1)."""
    if not (isinstance(value, (int, float, np.number)) and 0 <= value < 1):
        raise DataError(f"{name}: expected a number from 0 to below 1, got {value!r}")


def share(name: str, value: float) -> None:
    """A number above 0, at most 1."""
    if not (isinstance(value, (int, float, np.number)) and 0 < value <= 1):
        raise DataError(f"{name}: expected a number above 0, at most 1, got {value!r}")


def minimum(n: int, clients: int, minimum: int) -> None:
    """A number of samples that every client can have."""
    if not is_integer(minimum) or minimum < 0:
        raise DataError(f"min_samples: expected a non-negative integer, got {minimum!r}")
    if minimum * clients > n:
        raise DataError(
            f"min_samples: expected at most {n // clients} ({n} samples, {clients} clients), "
            f"got {minimum}"
        )

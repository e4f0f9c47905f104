"""Pages of one result, of a comparison, and of several seeds."""

from __future__ import annotations

import pytest

from headstart.report import page

from .helpers import (
    ALL,
    LONG,
    ONCE,
    ROUNDS,
    alone,
    fitted,
    seeded,
)


@pytest.fixture(scope="module")
def full() -> str:
    return page(alone(fitted(), fitted("FedNCM", 0.8)))


@pytest.fixture(scope="module")
def compared() -> str:
    return page(ALL)


@pytest.fixture(scope="module")
def seeds() -> str:
    return page([seeded(ONCE), seeded(ROUNDS, (0.0, 0.02, 0.01)), seeded(LONG)])

"""One BLAS thread for small work: two threads on a 13-row product wait on each other 60 times."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

_SMALL = (
    2**11
)  # rows, or dimensions, up to which one thread is not slower, and on a busy machine far faster


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be found)

    return ThreadpoolController()


def for_size(size: int) -> AbstractContextManager[Any]:
    """One thread while `size` is small, all of them otherwise.

    Of BLAS alone: torch, whose OpenMP this would limit and whose own BLAS it would not, would take
    itself to have one thread and use more.
    """
    if size > _SMALL:
        return nullcontext()
    return _controller().limit(limits=1, user_api="blas")

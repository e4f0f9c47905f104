"""Groups of clients side by side on the cores, or one after the other on one thread."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def parallel(small: bool, side_by_side: bool) -> Iterator[Callable[..., Iterable[Any]]]:
    """A `map`: in turn, or side by side on the threads that torch has, one for each.

    Small work gets one thread: two would wait for each other, on a busy machine for long.
    """
    threads = torch.get_num_threads()
    if threads == 1 or not (small or side_by_side):
        yield map
        return
    torch.set_num_threads(1)
    try:
        yield map if small else _pool(os.getpid(), threads).map
    finally:
        torch.set_num_threads(threads)


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Kept for the next round; a forked process has none of its parent's threads.

    What a thread uses of MKL and OpenMP is said in the thread itself.
    """
    single_thread = functools.partial(torch.set_num_threads, 1)
    return ThreadPoolExecutor(threads, "headstart-lane", initializer=single_thread)

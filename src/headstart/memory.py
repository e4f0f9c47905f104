"""Memory that torch frees stays with the process, to be used again.

glibc gives every block of over 32 MB back to the kernel at once, and trims what lies free above its
heap; a network then gets each layer's activations as fresh pages, zeroed one by one, and may spend
most of its time on that.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of malloc.h
_OWN = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")  # somebody has chosen: left as it is


@lru_cache(maxsize=1)
def keep_freed() -> bool:
    """Once a process, where its allocator is glibc's; whether it was done."""
    if any(name.startswith(_OWN) for name in os.environ):
        return False
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018  (there in glibc only)
        change = libc.mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(change(_MMAP_MAX, 0)) and bool(change(_TRIM_THRESHOLD, -1))

"""Names of heads and methods as the papers write them."""

from __future__ import annotations

import functools
import re
import sys

from headstart import gradient, heads
from headstart.registry import folded

_TITLE = re.compile(r"([^(:]+?)\s*[(:]")  # "FedAvg (McMahan et al. 2017): local SGD"


@functools.lru_cache(maxsize=512)
def paper_name(name: str) -> str:
    """Fed3R of fed3r, FedDr+ of feddr-plus; a name that no paper has stays as it is.

    Whatever it is, the notation reads it as the same method.
    """
    for title in _titles(name):
        if folded(title) == folded(name):
            return title
    return name


def _titles(name: str) -> list[str]:
    head = heads.HEADS.get(name)
    if head is not None:
        return [getattr(head, "notation", ""), head.title]
    method = gradient.METHODS.get(name)
    text = (method.__doc__ or sys.modules[method.__module__].__doc__ or "") if method else ""
    match = _TITLE.match(text)
    return [match[1]] if match else []

"""What can be named, where it comes from, and what it is."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headstart.data.augment import AUGMENTATIONS
from headstart.data.backbones import text_names
from headstart.data.backbones.catalogue import NETWORKS, Network
from headstart.data.datasets import DATASETS
from headstart.data.partition import PARTITIONERS
from headstart.errors import HeadstartError
from headstart.federation.protocol import OWN_STEPS, STEPS
from headstart.gradient import METHODS
from headstart.gradient.objectives import LOSSES, Loss
from headstart.heads import HEADS
from headstart.papers import catalogue
from headstart.pipeline.notation import PERSONAL
from headstart.registry import PACKAGE, Registry
from headstart.statistics.base import PRECISIONS

Row = tuple[str, str, str, str]  # kind, name, from, what it is


def rows() -> Iterator[Row]:
    """Of all registries; what cannot be loaded says why instead of what it is."""
    yield from _registered(HEADS, _first_line)
    yield from _registered(METHODS, _of_method)
    for name, kind in PERSONAL.items():
        what = "each client alone, FP(…)" if kind == "full" else "closed-form personalization"
        yield "personal", name, PACKAGE, what
    yield from _registered(LOSSES, _of_loss)
    yield from _registered(PARTITIONERS, _first_line)
    yield from _registered(NETWORKS, _of_network)
    for name, what in text_names().items():
        yield "extractor", name, PACKAGE, f"of sentences: {what}"
    yield from _registered(AUGMENTATIONS, _first_line)
    yield from _registered(DATASETS, _first_line)
    texts = {name: text for name, (_, text) in OWN_STEPS.items()}  # ours are not imported for this
    yield from _registered(STEPS, lambda kind: str(kind.about), texts)
    for name, reproduction in catalogue().items():
        yield "reproduction", name, PACKAGE, f"{reproduction.paper}: {reproduction.title}"
    for name, what in PRECISIONS.items():
        yield "precision", name, PACKAGE, what


def _registered(
    registry: Registry[Any], describe: Callable[[Any], str], texts: Mapping[str, str] | None = None
) -> Iterator[Row]:
    for entry in registry.entries():
        try:
            what = (texts or {}).get(entry.name) or describe(entry.load())
        except HeadstartError as error:
            what = str(error)
        yield registry.kind, entry.name, entry.source, what


def _first_line(thing: Any) -> str:
    return next(iter((inspect.getdoc(thing) or "").splitlines()), "")


def _of_method(method: Any) -> str:
    """Its own text, or that of the file it is alone in."""
    return _first_line(method) or _first_line(sys.modules[method.__module__])


def _of_loss(loss: Loss) -> str:
    return "a term, for any method" if loss.references else "a loss"


def _of_network(network: Network) -> str:
    if network.stride:
        return f"{network.about} (dense: for masks)"
    return f"{network.about}{'' if network.weights else ' (trained, not an extractor)'}"

"""Engines by name: what carries simulated clients. The pipeline knows none of them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from headstart.errors import HeadstartError
from headstart.federation.protocol import ClientData, Federation

Engine = Callable[..., Federation]
_MODULES = {
    "simulator": "headstart.federation.simulator:Simulator",
    "ray": "headstart.federation.ray:open_cluster",
}
ENGINES: dict[str, Engine] = {}
_COMMON = ("data", "seed", "precision", "remote", "together")


def register_engine(name: str) -> Callable[[Engine], Engine]:
    """Name a function (clients, seed, precision, settings) -> Federation."""

    def put(engine: Engine) -> Engine:
        ENGINES[name] = engine
        return engine

    return put


def engine_names() -> list[str]:
    """Return the names of all engines, loaded or not, sorted."""
    return sorted({*_MODULES, *ENGINES})


def open_federation(
    name: str,
    clients: Mapping[str, ClientData],
    *,
    seed: int = 0,
    precision: str | None = None,
    remote: Callable[[str], Callable[[], ClientData]] | None = None,
    **settings: Any,
) -> Federation:
    """The federation of these clients on the named engine; unknown names and settings are refused.

    `remote`: how another process reads a client's samples where they lie, for engines that ask.
    """
    if name not in ENGINES and name in _MODULES:
        module, _, thing = _MODULES[name].partition(":")
        ENGINES[name] = getattr(importlib.import_module(module), thing)
    if name not in ENGINES:
        names = ", ".join(engine_names())
        raise HeadstartError(f"engine: expected one of {names}, got {name!r}")
    engine = ENGINES[name]
    parameters = inspect.signature(engine).parameters
    accepted = [key for key in parameters if key not in _COMMON and not key.startswith("_")]
    unknown = ", ".join(key for key in settings if key not in accepted)
    if unknown:
        expected = ", ".join(accepted) or "none of its own"
        raise HeadstartError(f"federation: {name} has settings {expected}, got {unknown}")
    if "remote" in parameters:
        settings["remote"] = remote
    return engine(clients, seed=seed, precision=precision, **settings)

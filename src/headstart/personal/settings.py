"""The settings of closed-form personalization: plain numbers, as a step carries them."""

from __future__ import annotations

from dataclasses import dataclass, field

from headstart.heads.leverage import Leverage


@dataclass(frozen=True)
class Settings:
    """`smoothing` is added to a client's counts; `leverage` is the global head's (see there)."""

    smoothing: float = 0.5
    leverage: Leverage = field(default_factory=Leverage)

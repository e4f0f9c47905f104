"""Where a step is known, and the kind of statistic that answers it, whatever a client may say."""

from __future__ import annotations

import importlib
from typing import Any

from headstart import heads, optional
from headstart.errors import HeadstartError
from headstart.federation.protocol import Step
from headstart.statistics.tally import Tally
from headstart.statistics.vectors import Vectors

# step → the module that registers it (those that train need torch), and its answer
_KNOWN: dict[str, tuple[str, type[Any] | None]] = {
    "measure": ("headstart.federation.steps", None),  # the head's own statistic
    "calibrate": ("headstart.federation.steps", Tally),
    "personal": ("headstart.federation.steps", Tally),
    "channels": ("headstart.federation.channels", Tally),
    "update": ("headstart.gradient.steps", Vectors),
    "gradient": ("headstart.gradient.steps", Vectors),
    "home": ("headstart.gradient.home", Tally),
    "follow": ("headstart.gradient.follow", Vectors),
}


def made_ready(step: Step) -> None:
    """Register the step's work in this process."""
    if step.name not in _KNOWN:
        raise HeadstartError(f"step: expected one of {', '.join(_KNOWN)}, got {step.name!r}")
    module = _KNOWN[step.name][0]
    if module.startswith("headstart.gradient."):
        optional.check("torch", f"step {step.name}")
    importlib.import_module(module)


def answer_kind(step: Step) -> type[Any]:
    """The statistic a client answers this step with."""
    made_ready(step)
    kind = _KNOWN[step.name][1]
    return kind or heads.make(step.params["head"], dict(step.params["settings"])).statistic

"""A run that waits says for whom: who was asked and is silent, and who is not online."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

PAUSE = 5.0  # seconds without a line, so that what is quick is not waited for
AGAIN = 60.0  # seconds after which the same is said again
SHOWN = 10  # names in a line

log = logging.getLogger("flwr")


def listing(names: Sequence[str]) -> str:
    """Names as one reads them; of many, the first."""
    if len(names) > SHOWN:
        return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def to_log(text: str) -> None:
    log.info("headstart: %s", text)


@dataclass
class Waiting:
    """Said after `pause`, when it changes (not sooner than `pause` after the last), and `again`."""

    say: Callable[[str], None] = to_log
    pause: float = field(default_factory=lambda: PAUSE)
    again: float = AGAIN
    clock: Callable[[], float] = time.monotonic
    _at: float | None = None  # of the last line, or the beginning
    _said: str = ""

    def __call__(self, silent: Mapping[str, Sequence[str]], more: str = "") -> bool:
        """`silent`: names by why there is nothing of them yet. `more`: what ends the line.

        Return whether it was said now.
        """
        now = self.clock()
        self._at = now if self._at is None else self._at
        parts = [f"{listing(names)} ({why})" for why, names in silent.items() if names]
        text = f"waiting for {', '.join(parts)}{more}"
        due = self.again if text == self._said else self.pause
        if not parts or now - self._at < due:
            return False
        self.say(text)
        self._at, self._said = now, text
        return True

"""What a user did wrong, said in one line: the argument, what was expected, what came."""

from __future__ import annotations

import re

# What moves a terminal's cursor, ends a line or turns the direction of what follows.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str, kept: str = "") -> str:
    """Text without control characters: their escapes stand for them, but for those `kept`."""
    return _CONTROLS.sub(
        lambda found: found[0] if found[0] in kept else found[0].encode("unicode_escape").decode(),
        text,
    )


class HeadstartError(ValueError):
    """Base of every error a user's input can cause; its text stands alone, without a traceback."""


class DataError(HeadstartError):
    """A dataset, file or partition that cannot be used as asked; one line, whatever it names."""

    def __init__(self, text: object = "") -> None:
        super().__init__(printable(str(text)))


class SkippedWarning(UserWarning):
    """Something among a user's data that was left out; its text is one line."""


class NoAnswerError(DataError):
    """A step that no client answered."""


class SolveError(HeadstartError):
    """A total from which a head cannot be solved."""


class DivergedError(HeadstartError):
    """A training whose model is no longer finite."""


class StepRefusedError(HeadstartError):
    """A step that a federation does not carry: what it would show is hidden there."""


class WireError(HeadstartError):
    """A message that was refused: `code` is stable for programs, `str()` is for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(printable(f"{message} [{code}]"))
        self.code = code

"""Short names for sentences side by side: what all their trainings share is said once."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TRAINED = re.compile(r"([^\s()+]+-\d+)(?:\(([^()]*)\))?")  # fedavg-50(f, lr=0.1)
_SETTING = re.compile(r'\s*((?:[^,"]|"[^"]*")+)')  # drops="25,38" is one


def short(sentences: Sequence[str]) -> tuple[list[str], list[str]]:
    """The sentences without the settings that every training of every one has, and these."""
    trained = [found[2] for sentence in sentences for found in _TRAINED.finditer(sentence)]
    each = [_settings(inside) for inside in trained]
    shared = [one for one in (each or [[]])[0] if "=" in one and all(one in own for own in each)]
    if len(sentences) < 2 or not shared:
        return list(sentences), []

    def less(found: re.Match[str]) -> str:
        left = ", ".join(one for one in _settings(found[2]) if one not in shared)
        return f"{found[1]}({left})" if left else found[1]

    names = [_TRAINED.sub(less, sentence) for sentence in sentences]
    return (names, shared) if len(set(names)) == len(set(sentences)) else (list(sentences), [])


def _settings(inside: str | None) -> list[str]:
    return [one.strip() for one in _SETTING.findall(inside or "")]

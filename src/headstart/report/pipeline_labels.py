"""Short labels for pipelines side by side: what all their trainings share is said once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headstart.report.format import name

_TRAINED = re.compile(r"([^\s()+]+\+?-\d+)(?:\(([^()]*)\))?")  # FedDr+-50(f, lr=0.1)
_SETTING = re.compile(r'\s*((?:[^,"]|"[^"]*")+)')  # drops="25,38" is one
_LEGEND = 64  # signs of a pipeline in a legend


def short(pipelines: Sequence[str]) -> tuple[list[str], list[str]]:
    """The pipelines without the settings that every training of every one has, and these."""
    trained = [match[2] for text in pipelines for match in _TRAINED.finditer(text)]
    each = [_settings(inside) for inside in trained]
    shared = [
        setting
        for setting in (each or [[]])[0]
        if "=" in setting and all(setting in other for other in each)
    ]
    if len(pipelines) < 2 or not shared:
        return list(pipelines), []

    def less(match: re.Match[str]) -> str:
        left = ", ".join(setting for setting in _settings(match[2]) if setting not in shared)
        return f"{match[1]}({left})" if left else match[1]

    labels = [_TRAINED.sub(less, text) for text in pipelines]
    alike = len(set(labels)) == len(set(pipelines))
    return (labels, shared) if alike else (list(pipelines), [])


def _settings(inside: str | None) -> list[str]:
    return [setting.strip() for setting in _SETTING.findall(inside or "")]


def legend(labels: Sequence[str], limit: int = _LEGEND) -> list[str]:
    """Labels for a legend, numbered where they were too long to be distinguished."""
    full = [name(label, 1000) for label in labels]
    if max(map(len, full), default=0) <= limit and len(set(full)) == len(full):
        return full
    return [name(f"{at}. {label}", limit) for at, label in enumerate(full, 1)]

"""A pipeline: phases in their order, as text, as YAML and as Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headstart.errors import HeadstartError
from headstart.pipeline.phases import KINDS, InitHead, PersonalizeClosedForm, Phase, Value, _shown


@dataclass(frozen=True, init=False)
class Pipeline:
    """Phases in order; the first is always an InitHead, a random one where nothing was said."""

    phases: tuple[Phase, ...]

    def __init__(self, *phases: Phase) -> None:
        for phase in phases:
            if not isinstance(phase, Phase):
                raise HeadstartError(f"pipeline: expected phases, got {_shown(phase)}")
        object.__setattr__(self, "phases", started(phases))
        for index, fault in disorder(self.phases):
            raise HeadstartError(f"pipeline: {fault} (phase {index + 1} of {len(self.phases)})")

    @property
    def init(self) -> InitHead:
        first = self.phases[0]
        assert isinstance(first, InitHead)
        return first

    @property
    def oll(self) -> int | None:
        """The index of the phase in which each client keeps only its own labels."""
        return next((i for i, phase in enumerate(self.phases) if phase.name == "oll"), None)

    @property
    def trains(self) -> bool:
        """Whether anything is trained, for which torch is needed."""
        return any(phase.trains for phase in self.phases)

    def __str__(self) -> str:
        texts = [str(phase) for phase in self.phases]
        kinds = [phase.kind for phase in self.phases[:2]]
        if kinds == ["init", "source"] and texts[0] == "none" and self.oll is None:
            del texts[0]  # which is where a source begins
        if self.oll is not None:
            texts[: self.oll + 1] = [f"OLL({' + '.join(texts[: self.oll])})"]
        return " + ".join(texts)

    def to_plain(self) -> list[str | dict[str, Any]]:
        """The same as a list for YAML: `[{init: fed3r}, {train: fedavg, rounds: 50}, oll]`."""
        return [_plain(phase) for phase in self.phases]

    @classmethod
    def from_plain(cls, items: Any) -> Pipeline:
        """Back from the list; `parse(str(pipeline), …)` checks its names against catalogues."""
        if not isinstance(items, list) or not items:
            raise HeadstartError(f"pipeline: expected a list of phases, got {_shown(items)}")
        return cls(*(_from_item(item) for item in items))


def started(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
    """With a random head first, where no other was said."""
    begins = bool(phases) and phases[0].kind == "init"
    return tuple(phases) if begins else (InitHead(), *phases)


def disorder(phases: tuple[Phase, ...]) -> Iterator[tuple[int, str]]:
    """Which phases are out of place, and what their places want; the first is an init."""
    for index, (before, phase) in enumerate(itertools.pairwise(phases), 1):
        if phase.kind == "init":
            yield index, f"expected one initial head, and it first, got {phase} after {before}"
        if _stage(phase) < _stage(before):
            title = "OLL" if phase.name == "oll" else phase.description
            other = "OLL" if before.name == "oll" else before.description
            yield index, f"expected {title} before {other}, got {phase} after {before}"
        if phase.kind == "closed_form" and phase.name in [other.name for other in phases[:index]]:
            yield index, f"expected {phase} once, got it again"


def _stage(phase: Phase) -> int:
    # OLL may stand on either side of partial personalization, before all else a client does alone
    return list(KINDS).index("personal" if phase.name == "oll" else phase.kind)


def _plain(phase: Phase) -> str | dict[str, Value]:
    if phase.kind == "closed_form" and not phase.settings:
        return phase.name
    return {phase.kind: phase.name, **phase.arguments()}


def _from_item(item: Any) -> Phase:
    if isinstance(item, str):
        return PersonalizeClosedForm(item)
    kinds = [kind for kind in KINDS if isinstance(item, Mapping) and kind in item]
    if len(kinds) != 1:
        expected = f"a mapping with one of {', '.join(KINDS)}, or a word such as oll"
        raise HeadstartError(f"pipeline: expected {expected}, got {_shown(item)}")
    arguments = {key: value for key, value in item.items() if key != kinds[0]}
    return KINDS[kinds[0]].of(item[kinds[0]], arguments)

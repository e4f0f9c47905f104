"""A sentence as data: its phases, the rules of their order, its canonical text and YAML form."""

from __future__ import annotations

import itertools
import json
import math
import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headstart.errors import HeadstartError
from headstart.registry import NAME, QUALIFIED, folded

Value = bool | int | float | str
KINDS = {  # in the order of a sentence
    "init": "an initial head",
    "train": "training",
    "personal": "partial personalization",
    "closed": "closed-form personalization",
    "full": "full personalization",
}
SYMBOLS = {"model": "f", "extractor": "φ", "head": "ψ"}
COUNTS = {"train": "rounds", "personal": "rounds", "full": "epochs"}

_WORDS = {"model": "f m model", "extractor": "φ phi varphi extractor", "head": "ψ psi head"}
PARTS = {word: part for part, words in _WORDS.items() for word in words.split()}
_OWNERS = {"none": "init", "oll": "closed", "fp": ""}  # words that only one kind may be called
_SETTING = re.compile(r"[^\W\d]\w*")
_BARE = re.compile(r"(?i)(?!(?:true|false)\Z)[^\W\d_][\w.-]*")  # a text that needs no quotes


@dataclass(frozen=True)
class Phase:
    """One phase; without a part it is the method's own choice (the papers': the whole model)."""

    kind: str
    name: str
    part: str | None = None  # what is trained; of a partial personalization, what is personal
    rounds: int | None = None  # epochs, when full
    follow: bool = False  # the initial head's statistics follow the extractor (Fed3R-FT)
    settings: Mapping[str, Value] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", dict(self.settings))
        for said in _faults(self):
            raise HeadstartError(f"sentence: {said}")
        if folded(self.name) in _OWNERS:  # our own words have one spelling
            object.__setattr__(self, "name", folded(self.name))

    def __str__(self) -> str:
        full = self.kind == "full"
        title = "FP" if full else "OLL" if self.name == "oll" else self.name
        words = [self.name] if full and self.name != "sgd" else []
        words += [SYMBOLS[self.part]] if self.part else []
        words += ["follow=true"] if self.follow else []
        words += [f"{key}={_printed(value)}" for key, value in sorted(self.settings.items())]
        count = f"-{self.rounds}" if self.rounds else ""
        return title + count + (f"({', '.join(words)})" if words else "")


@dataclass(frozen=True)
class Sentence:
    """Phases in order; the first is always an init, `none` where nothing else was said."""

    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "phases", started(self.phases))
        for index, said in disorder(self.phases):
            raise HeadstartError(f"sentence: {said} (phase {index + 1} of {len(self.phases)})")

    @property
    def init(self) -> Phase:
        return self.phases[0]

    @property
    def oll(self) -> int | None:
        """The index of the phase in which each client keeps only its own labels."""
        return next((i for i, phase in enumerate(self.phases) if phase.name == "oll"), None)

    def __str__(self) -> str:
        texts = [str(phase) for phase in self.phases]
        if self.oll is not None:
            texts[: self.oll + 1] = [f"OLL({' + '.join(texts[: self.oll])})"]
        return " + ".join(texts)


def to_plain(sentence: Sentence) -> list[str | dict[str, Value]]:
    """The same as a list for YAML: `[{init: fed3r}, {train: fedavg, rounds: 50}, oll]`."""
    return [_plain(phase) for phase in sentence.phases]


def from_plain(items: Any) -> Sentence:
    """Back from the list; `parse(str(sentence), …)` checks its names against catalogues."""
    if not isinstance(items, list) or not items:
        raise HeadstartError(f"sentence: expected a list of phases, got {_shown(items)}")
    return Sentence(tuple(_from_item(item) for item in items))


def made(kind: str, name: Any, words: Mapping[Any, Any]) -> Phase:
    """A phase from its words: those that are no field of it are settings of its method."""
    rest = dict(words)
    part, follow = rest.pop("part", None), rest.pop("follow", False)
    rounds = rest.pop(COUNTS.get(kind, "rounds"), None)
    if isinstance(part, str):
        part = PARTS.get(folded(part), part)
    return Phase(kind, name, part, rounds, follow, rest)


def started(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
    begins = bool(phases) and phases[0].kind == "init"
    return tuple(phases) if begins else (Phase("init", "none"), *phases)


def disorder(phases: tuple[Phase, ...]) -> Iterator[tuple[int, str]]:
    """Which phases are out of place, and what their places want; the first is an init."""
    for index, (before, phase) in enumerate(itertools.pairwise(phases), 1):
        if phase.kind == "init":
            yield index, f"expected one initial head, and it first, got {phase} after {before}"
        if _stage(phase) < _stage(before):
            title = "OLL" if phase.name == "oll" else KINDS[phase.kind]
            told = "OLL" if before.name == "oll" else KINDS[before.kind]
            yield index, f"expected {title} before {told}, got {phase} after {before}"
        if phase.kind == "closed" and phase.name in [other.name for other in phases[:index]]:
            yield index, f"expected {phase} once, got it again"
        if phase.follow and phases[0].name == "none":
            yield index, f"expected a closed-form head that {phase} lets follow, got none"


def is_plain(value: object) -> bool:
    """Whether a setting may have this value: text and YAML give it back as it was."""
    if isinstance(value, int):
        return abs(value) < 2**63
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def _stage(phase: Phase) -> int:
    # OLL may stand on either side of partial personalization, before all else a client does alone
    return list(KINDS).index("personal" if phase.name == "oll" else phase.kind)


def _faults(phase: Phase) -> Iterator[str]:
    """What keeps a phase from meaning something, or from being printed and read back."""
    kind, name, part, count = phase.kind, phase.name, phase.part, phase.rounds
    if kind not in list(KINDS):
        yield f"expected a kind among {', '.join(KINDS)}, got {_shown(kind)}"
    if not isinstance(name, str) or not (NAME.fullmatch(name) or QUALIFIED.fullmatch(name)):
        yield f"expected the name of a method, got {_shown(name)}"
    if folded(name) in PARTS or _OWNERS.get(folded(name), kind) != kind:
        yield f"expected the name of {KINDS[kind]}, got {name!r}, which means something else"
    if kind not in COUNTS and (part is not None or count is not None):
        given = _shown(part) if part is not None else f"{_shown(count)} rounds"
        yield f"{name}: expected neither part nor rounds for {KINDS[kind]}, got {given}"
    if part is not None and part not in list(SYMBOLS):
        yield f"{name}: expected a part among φ, ψ and f, got {_shown(part)}"
    if count is not None and not (type(count) is int and 0 < count < 10**12):
        yield f"{name}: expected a number of {COUNTS[kind]} from 1, got {_shown(count)}"
    if type(phase.follow) is not bool or (phase.follow and kind != "train"):
        yield f"{name}: expected follow to be true in training only, got {_shown(phase.follow)}"
    yield from _wrong_settings(phase)


def _wrong_settings(phase: Phase) -> Iterator[str]:
    taken = {*KINDS, "part", "follow", COUNTS.get(phase.kind, "rounds")}
    for key, value in phase.settings.items():
        named = isinstance(key, str) and _SETTING.fullmatch(key) and key not in taken
        if not named or folded(phase.name) == "oll":
            yield f"{phase.name}: expected the name of a setting, got {_shown(key)}"
        if not is_plain(value):
            expected = "a finite number, true, false or a text"
            yield f"{phase.name}: {key}: expected {expected}, got {_shown(value)}"


def _plain(phase: Phase) -> str | dict[str, Value]:
    if phase.kind == "closed" and not phase.settings:
        return phase.name
    told = {"part": phase.part, COUNTS.get(phase.kind, "rounds"): phase.rounds}
    given: dict[str, Value] = {key: value for key, value in told.items() if value is not None}
    follow = {"follow": True} if phase.follow else {}
    return {phase.kind: phase.name, **given, **follow, **phase.settings}


def _from_item(item: Any) -> Phase:
    if isinstance(item, str):
        return Phase("closed", item)
    found = [kind for kind in KINDS if isinstance(item, Mapping) and kind in item]
    if len(found) != 1:
        expected = f"a mapping with one of {', '.join(KINDS)}, or a word such as oll"
        raise HeadstartError(f"sentence: expected {expected}, got {_shown(item)}")
    words = {key: value for key, value in item.items() if key != found[0]}
    return made(found[0], item[found[0]], words)


def _printed(value: Value) -> str:
    bare = isinstance(value, str) and _BARE.fullmatch(value)
    return str(value) if bare else json.dumps(value, ensure_ascii=False)


def _shown(value: object) -> str:
    try:
        return reprlib.repr(value)  # short, whatever came: a list that holds itself, a long text
    except ValueError:
        return "a number of thousands of digits"  # which Python refuses to print

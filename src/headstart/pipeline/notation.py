"""The papers' notation, from text to a pipeline by recursive descent.

    OLL(Fed3R(ridge=gcv) + FedAvg-50(ψ)) + FP-25(ditto, ψ)

    pipeline = ( "OLL" "(" phases ")" | phase ) { "+" phase }
    phases   = phase { "+" phase }
    phase    = name [ "-" rounds ] [ "(" [ argument { "," argument } ] ")" ] [ "-" rounds ]
    argument = part | method | key "=" value       a method (sgd, ditto) only in FP, a style
                                                   (fda, lab) only in Source
    part     = "φ" | "ψ" | "f"                     or extractor, head, model; phi, psi, m
    value    = number | "true" | "false" | word | quoted text
    rounds   = integer [ "k" ]                     of FP and Source: epochs

`HEAD-FT(algorithm, settings)` is the algorithm with `refit=HEAD(settings)`: the head's statistics
follow the extractor that the algorithm moves. A pipeline is flat: OLL stands after the phases that
its parentheses hold. Names are those of the caller's catalogues; no method is known here.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from typing import NoReturn

from headstart.errors import HeadstartError
from headstart.pipeline.phases import KINDS, PARTS, Phase, Value, is_plain
from headstart.pipeline.pipeline import Pipeline, disorder, started
from headstart.registry import QUALIFIED, folded, not_loaded

# What a client does alone: by gradient inside FP(…), or in closed form under its own name.
SOURCES = {"plain": "source", "fda": "source", "lab": "source"}  # inside Source(…)
PERSONAL = {"sgd": "full", "ditto": "full", "prior": "closed_form", "ridge": "closed_form"}

# A + that touches a word is the word's where no phase can follow: "FedDr+ + FP", "FedDr+(f)".
_TOKEN = re.compile(
    r"""-?[0-9]+(?:\.[0-9]*)?[eE]\+[0-9]+ | "(?:[^"\\]|\\.)*" | '[^']*'
    | [\w.:\-‐‑‒–−]+ (?: \+ (?=\s*(?:[-+(),]|\Z)) (?:-[0-9]+[kK]?)? )? | \S""",
    re.VERBOSE,
)
_DASHES = str.maketrans("‐‑‒–−", "-----")  # in texts copied from a PDF
_WORD = re.compile(r"[\w.-].*")
_VALUE = re.compile(r"[\w.-].*|'.*'|\".*\"", re.DOTALL)
_COUNT = re.compile(r"-([0-9]{1,12}[kK]?)\Z")
_INTEGER = re.compile(r"-?[0-9]+[kK]?")
_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


def parse(
    text: str,
    *,
    heads: Collection[str],
    algorithms: Mapping[str, str],
    personal: Mapping[str, str] = PERSONAL,
) -> Pipeline:
    """`algorithms` are each "train" or "personal"; those of `personal`, "full" or "closed_form".

    Names match whatever their case, hyphens and underscores, and come back as the caller's. The
    kind of an algorithm is looked up when its name is read, and not before.
    """
    closed_forms = {name: kind for name, kind in personal.items() if kind == "closed_form"}
    methods = {name: kind for name, kind in personal.items() if kind == "full"}
    reserved = {"none": "init", "oll": "closed_form", "FP": "full", "Source": "source"}
    names = _Names(closed_forms, algorithms, dict.fromkeys(heads, "init"), reserved)
    return _Parser(text, names, _Names(methods)).pipeline()


class _Names(dict[str, list[tuple[str, Mapping[str, str]]]]):
    """Folded name → the names and kinds that it may mean; more than one is refused when read."""

    def __init__(self, *kinds: Mapping[str, str]) -> None:
        super().__init__()
        for some in kinds:
            for name in some:
                self.setdefault(folded(name), []).append((name, some))

    def kind(self, word: str) -> str:
        """What a word is, "" if nothing."""
        return "".join(some[name] for name, some in self.get(word, [])[:1])

    def nearest(self, word: str) -> str:
        spellings = {entries[0][0].lower(): entries[0][0] for entries in self.values()}
        close = difflib.get_close_matches(word.lower(), spellings, n=1, cutoff=0.5)
        if close:
            return f"did you mean {spellings[close[0]]!r}?"
        return f"there are {', '.join(spellings.values())}"


class _Parser:
    """One text on its way; every failure points at its place there."""

    def __init__(self, text: str, names: _Names, methods: _Names) -> None:
        self.text, self.names, self.methods = text, names, methods
        matches = [(token[0], token.start()) for token in _TOKEN.finditer(text)]
        tokens = [
            (word if word[0] in "'\"" else word.translate(_DASHES), at) for word, at in matches
        ]
        self.tokens = [("", len(text)), *reversed(tokens)]  # the next is the last; "" is the end
        self.phases: list[tuple[Phase, int]] = []

    def pipeline(self) -> Pipeline:
        opening = self.at
        if folded(self.next) == "oll" and self.tokens[-2][0] == "(":
            del self.tokens[-2:]
            self.sum()
            self.expect(")")
            self.add(opening, "closed_form", "oll", {})
        else:
            self.phase()
        if self.accept("+"):
            self.sum()
        if self.next:
            self.fail(self.at, f"expected '+' or the end, got {self.next!r}")
        return self.ordered()

    def sum(self) -> None:
        self.phase()
        while self.accept("+"):
            self.phase()

    def phase(self) -> None:
        key = folded(self.next)
        if key not in self.names and self.names.kind(key.removesuffix("ft")) == "init":
            self.refitted(key.removesuffix("ft"))
        else:
            self.plain_phase()

    def refitted(self, word: str) -> None:
        """HEAD-FT(algorithm, settings): the algorithm, with a head that is refitted."""
        _, head = self.look_up(self.names, word, self.at)
        _, at = self.tokens.pop()
        self.expect("(")
        self.plain_phase()  # not any phase: nothing nests, so no text is too deep
        algorithm, place = self.phases.pop()
        if algorithm.kind != "train" or "refit" in algorithm.arguments():
            self.fail(place, f"expected an algorithm that trains, got {algorithm}")
        arguments: dict[str, Value] = {}
        while self.accept(","):
            self.argument("init", arguments)
        self.expect(")")
        self.add(at, "init", head, arguments)
        refit, _ = self.phases.pop()
        self.add(at, "train", algorithm.name, {**algorithm.arguments(), "refit": refit})

    def plain_phase(self) -> None:
        at = self.at
        name = self.take(_WORD, "a phase")
        kind, method = self.look_up(self.names, _COUNT.sub("", name), at)
        arguments: dict[str, Value] = {}
        self.count(name, at, kind, arguments)
        if method == "oll" and self.next == "(":
            self.fail(at, "expected OLL(…) at the beginning, around all that comes before it")
        if self.accept("("):
            self.arguments(kind, arguments)
        if _COUNT.match(self.next):
            self.count(self.next, self.at, kind, arguments)
            self.tokens.pop()
        if kind == "full":
            _, method = self.look_up(self.methods, str(arguments.pop("", "sgd")), at)
        if kind == "source":
            method = str(arguments.pop("", "plain"))
        self.add(at, kind, method, arguments)

    def count(self, word: str, at: int, kind: str, arguments: dict[str, Value]) -> None:
        if match := _COUNT.search(word):
            self.put(at, KINDS[kind].counts or "rounds", _read(match[1]), arguments)

    def arguments(self, kind: str, arguments: dict[str, Value]) -> None:
        if not self.accept(")"):
            self.argument(kind, arguments)
            while self.accept(","):
                self.argument(kind, arguments)
            self.expect(")")

    def argument(self, kind: str, arguments: dict[str, Value]) -> None:
        at = self.at
        word = self.take(_WORD, "a part (φ, ψ, f) or key=value")
        if self.accept("="):
            key = "part" if (kind, word) == ("personal", "personal") else word
            value = self.value()
            if key == "refit" and isinstance(value, str):
                named, value = self.look_up(self.names, value, at)
                if named != "init":
                    self.fail(at, f"refit: expected the name of a head, got {value!r}")
            self.put(at, key, value, arguments)
        elif folded(word) in PARTS:
            self.put(at, "part", word, arguments)
        elif kind == "source":
            _, method = self.look_up(_Names(SOURCES), word, at)
            self.put(at, "", method, arguments)
        elif kind == "full":
            _, method = self.look_up(self.methods, word, at)
            self.put(at, "", method, arguments)  # no key of a setting is empty
        else:
            self.fail(at, f"expected a part (φ, ψ, f) or key=value, got {word!r}")

    def value(self) -> Value:
        at = self.at
        word = self.take(_VALUE, "a value")
        try:
            return _read(word)
        except ValueError:
            self.fail(at, f"expected a text, or a finite number below 2^63, got {word!r}")

    def put(self, at: int, key: str, value: Value, arguments: dict[str, Value]) -> None:
        if key in arguments:
            place = "style in Source" if value in SOURCES else "method in FP"
            expected = f"{key} once" if key else f"one {place}"
            self.fail(at, f"expected {expected}, got {arguments[key]!r} and {value!r}")
        arguments[key] = value

    def add(self, at: int, kind: str, name: str, arguments: Mapping[str, object]) -> None:
        try:
            self.phases.append((KINDS[kind].of(name, arguments), at))
        except HeadstartError as error:
            self.fail(at, str(error).removeprefix("pipeline: "))

    def ordered(self) -> Pipeline:
        phases = started(tuple(phase for phase, _ in self.phases))
        places = [at for _, at in self.phases]
        for index, problem in disorder(phases):
            self.fail(places[index - len(phases)], problem)  # from the end: an init may be added
        return Pipeline(*phases)

    @property
    def next(self) -> str:
        return self.tokens[-1][0]

    @property
    def at(self) -> int:
        return self.tokens[-1][1]

    @property
    def came(self) -> str:
        return repr(self.next) if self.next else "the end"

    def accept(self, mark: str) -> bool:
        return self.next == mark and bool(self.tokens.pop())

    def expect(self, mark: str) -> None:
        if not self.accept(mark):
            self.fail(self.at, f"expected {mark!r}, got {self.came}")

    def take(self, pattern: re.Pattern[str], expected: str) -> str:
        if not pattern.fullmatch(self.next):
            self.fail(self.at, f"expected {expected}, got {self.came}")
        return self.tokens.pop()[0]

    def look_up(self, names: _Names, word: str, at: int) -> tuple[str, str]:
        if folded(word) not in names:
            if QUALIFIED.fullmatch(word):
                self.fail(at, f"expected a known name, got {word!r}, which {not_loaded(word)}")
            self.fail(at, f"expected a known name, got {word!r}; {names.nearest(word)}")
        (name, kinds), *others = names[folded(word)]
        if others:
            self.fail(at, f"expected one thing of this name, got several: {word!r}; rename yours")
        return kinds[name], name

    def fail(self, at: int, problem: str) -> NoReturn:
        shown = "".join(sign if sign.isprintable() else " " for sign in self.text)
        raise HeadstartError(f"pipeline: {problem}\n  {shown}\n  {' ' * at}^") from None


def _read(word: str) -> Value:
    """A value as written; ValueError where a quoted text or a number cannot be read."""
    if word[0] in "'\"":
        return word[1:-1] if word[0] == "'" else str(json.loads(word))
    if word.casefold() in ("true", "false"):
        return word.casefold() == "true"
    if not _INTEGER.fullmatch(word) and not _NUMBER.fullmatch(word):
        return word
    thousands = 1000 if word[-1] in "kK" else 1
    number = int(word.rstrip("kK")) * thousands if _INTEGER.fullmatch(word) else float(word)
    if not is_plain(number):
        raise ValueError(word)
    return number

"""The phases of a pipeline as objects: what was said of each, how it is checked and carried out.

    Pipeline(InitHead(Fed3R()), FineTune("fedavg", "head", rounds=50), PersonalizeFully())

is what the notation `Fed3R + FedAvg-50(ψ) + FP` parses to. What is not said is None and resolved
by `check`, before anything runs; two phases are equal when the same was said of them.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from headstart.errors import HeadstartError
from headstart.registry import NAME, QUALIFIED, folded

if TYPE_CHECKING:
    from headstart.pipeline.checkpoint import SavedTraining
    from headstart.pipeline.context import ModelState, PipelineContext

Value = bool | int | float | str
SYMBOLS = {"model": "f", "extractor": "φ", "head": "ψ"}
_SPELLINGS = {"model": "f m model", "extractor": "φ phi varphi extractor", "head": "ψ psi head"}
PARTS = {word: part for part, spellings in _SPELLINGS.items() for word in spellings.split()}
_OWNERS = {
    "none": "init",
    "oll": "closed_form",
    "fp": "",
    "source": "",
}  # names that only one kind may have
_SETTING = re.compile(r"[^\W\d]\w*")
_BARE = re.compile(r"(?i)(?!(?:true|false)\Z)[^\W\d_][\w.-]*")  # a text that needs no quotes


@dataclass(frozen=True, init=False, eq=False)
class Phase:
    """What was said of one phase: a method by name, its part and rounds, its settings."""

    name: str
    part: str | None
    rounds: int | None
    settings: Mapping[str, Value]

    kind: ClassVar[str] = ""
    module: ClassVar[str] = ""  # of this package, with `check` and `run`
    description: ClassVar[str] = ""  # what such a phase is, for messages
    counts: ClassVar[str] = ""  # what its number counts; empty: it has neither number nor part

    def _set(
        self, name: str, part: str | None, rounds: int | None, settings: Mapping[str, Any]
    ) -> None:
        if isinstance(part, str):
            part = PARTS.get(folded(part), part)
        spelled = folded(name) if isinstance(name, str) and folded(name) in _OWNERS else name
        values = (spelled, part, rounds, dict(settings))
        for key, value in zip(("name", "part", "rounds", "settings"), values, strict=True):
            object.__setattr__(self, key, value)
        for fault in self._faults():
            raise HeadstartError(f"pipeline: {fault}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.kind, self.name, self.part, self.rounds))

    @classmethod
    def of(cls, name: Any, arguments: Mapping[Any, Any]) -> Phase:
        """From a name and arguments: those that are no field are settings of its method."""
        rest = dict(arguments)
        part, rounds = rest.pop("part", None), rest.pop(cls.counts or "rounds", None)
        if not cls.counts and (part is not None or rounds is not None):
            given = _shown(part) if part is not None else f"{_shown(rounds)} rounds"
            raise HeadstartError(
                f"pipeline: {name}: expected neither part nor rounds for {cls.description}, "
                f"got {given}"
            )
        made = cls.__new__(cls)
        made._set(name, part, rounds, rest)
        return made

    @property
    def trains(self) -> bool:
        """Whether gradients are taken, for which torch is needed."""
        return bool(self.counts)

    def arguments(self) -> dict[str, Value]:
        """All that was said, as `of` takes it back."""
        given = {"part": self.part, self.counts or "rounds": self.rounds}
        return {**{k: v for k, v in given.items() if v is not None}, **self.settings}

    def __str__(self) -> str:
        """As the papers write it; `parse` reads it back."""
        from headstart.pipeline.names import paper_name

        return self._written(paper_name(self.name))

    def _written(self, title: str, *first: str) -> str:
        inside = [*first, *([SYMBOLS[self.part]] if self.part else [])]
        inside += [f"{key}={printed(value)}" for key, value in sorted(self.settings.items())]
        count = f"-{self.rounds}" if self.rounds else ""
        return title + count + (f"({', '.join(inside)})" if inside else "")

    def _faults(self) -> Iterator[str]:
        """What keeps a phase from meaning something, or from being printed and read back."""
        name, part, count = self.name, self.part, self.rounds
        if not isinstance(name, str) or not (NAME.fullmatch(name) or QUALIFIED.fullmatch(name)):
            yield f"expected the name of a method, got {_shown(name)}"
        elif folded(name) in PARTS or _OWNERS.get(folded(name), self.kind) != self.kind:
            expected = f"the name of {self.description}"
            yield f"expected {expected}, got {name!r}, which means something else"
        if part is not None and part not in list(SYMBOLS):
            yield f"{name}: expected a part among φ, ψ and f, got {_shown(part)}"
        if count is not None and not (type(count) is int and 0 < count < 10**12):
            yield f"{name}: expected a number of {self.counts} from 1, got {_shown(count)}"
        taken = {*KINDS, "part", "refit", self.counts or "rounds"}
        for key, value in self.settings.items():
            named = isinstance(key, str) and _SETTING.fullmatch(key) and key not in taken
            if not named or folded(name) == "oll":
                yield f"{name}: expected the name of a setting, got {_shown(key)}"
            if not is_plain(value):
                expected = "a finite number, true, false or a text"
                yield f"{name}: {key}: expected {expected}, got {_shown(value)}"

    # -- what it does --------------------------------------------------------------------------

    def check(self, context: PipelineContext, state: ModelState) -> ModelState:
        """Refuse what cannot be done, before anything is; what is known of the model after it."""
        return cast("ModelState", self._work().check(self, context, state))

    def run(
        self,
        context: PipelineContext,
        state: ModelState,
        number: int,
        resume: SavedTraining | None = None,
    ) -> ModelState:
        """Carry it out as phase `number`, from a checkpoint where there is one; the model after."""
        return cast("ModelState", self._work().run(self, context, state, number, resume))

    def _work(self) -> ModuleType:
        """Imported when it is first needed: what trains needs torch."""
        return importlib.import_module(f"headstart.pipeline.{self.module}")


class InitHead(Phase):
    """A head solved from one message per client; without one, a random head (`none`).

    `head`: an object (`Fed3R(ridge="gcv")`), or a name with settings.
    """

    kind: ClassVar[str] = "init"
    module: ClassVar[str] = "init_head"
    description: ClassVar[str] = "an initial head"

    def __init__(self, head: Any = "none", **settings: Value) -> None:
        name, given = head_arguments(head)
        self._set(name, None, None, {**given, **settings})


@dataclass(frozen=True, init=False, eq=False)
class FineTune(Phase):
    """Training of the whole model, of its extractor or of its head, by all clients together.

    `refit` (Fed3R-FT): a closed-form head whose statistics follow the extractor as it trains, and
    which is the model's head at every evaluation. As published, it begins with nothing and grows
    with the clients that are sampled, while a softmax head of its own trains the extractor; after
    an initial head of the same kind, its total begins with everybody's statistics.
    """

    refit: InitHead | None

    kind: ClassVar[str] = "train"
    module: ClassVar[str] = "training"
    counts: ClassVar[str] = "rounds"
    description: ClassVar[str] = "training"

    def __init__(
        self,
        method: Any = "fedavg",
        part: str | None = None,
        *,
        rounds: int | None = None,
        refit: Any = None,
        **settings: Value,
    ) -> None:
        head = refit if refit is None or isinstance(refit, InitHead) else InitHead(refit)
        object.__setattr__(self, "refit", _refittable(method, head))
        self._set(method_name(method), part, rounds, settings)

    @classmethod
    def of(cls, name: Any, arguments: Mapping[Any, Any]) -> Phase:
        rest = dict(arguments)
        refit = rest.pop("refit", None)
        made = super().of(name, rest)
        if isinstance(refit, Mapping):
            inner = dict(refit)
            refit = InitHead.of(inner.pop("init", None), inner)
        elif isinstance(refit, str):
            refit = InitHead.of(refit, {})
        object.__setattr__(made, "refit", _refittable(name, refit))
        return made

    def arguments(self) -> dict[str, Any]:
        if self.refit is None:
            return super().arguments()
        inner: Any = self.refit.name
        if self.refit.settings:
            inner = {"init": self.refit.name, **self.refit.settings}
        return {**super().arguments(), "refit": inner}

    def _work(self) -> ModuleType:
        if self.name == "ladd":  # a model per cluster of clients
            return importlib.import_module("headstart.pipeline.ladd")
        return super()._work()

    def __str__(self) -> str:
        if self.refit is None:
            return super().__str__()
        inside = [super().__str__(), *_inside(self.refit)]
        return f"{str(self.refit).partition('(')[0]}-FT({', '.join(inside)})"


class PretrainAtSource(Phase):
    """Labelled scenes of the server's own, as they are or in clients' styles (`fda`, `lab`).

    A network trains on them; without one, a head is solved from their cells.
    """

    kind: ClassVar[str] = "source"
    module: ClassVar[str] = "sourcing"
    description: ClassVar[str] = "learning from a labelled source"
    counts: ClassVar[str] = "epochs"

    def __init__(
        self, style: str = "plain", *, epochs: int | None = None, **settings: Value
    ) -> None:
        self._set(style, None, epochs, settings)

    def __str__(self) -> str:
        return self._written("Source", *([self.name] if self.name != "plain" else []))


class PersonalizePartly(Phase):
    """Training in which a part of the model stays with each client: `part` names that part."""

    kind: ClassVar[str] = "personal"
    module: ClassVar[str] = "training"
    counts: ClassVar[str] = "rounds"
    description: ClassVar[str] = "partial personalization"

    def __init__(
        self,
        method: Any = "fedalt",
        part: str | None = None,
        *,
        rounds: int | None = None,
        **settings: Value,
    ) -> None:
        self._set(method_name(method), part, rounds, settings)


class PersonalizeClosedForm(Phase):
    """Only local labels (`oll`), the local prior, or the residual ridge: no step is taken."""

    kind: ClassVar[str] = "closed_form"
    module: ClassVar[str] = "personalize"
    description: ClassVar[str] = "closed-form personalization"

    def __init__(self, name: str = "oll", **settings: Value) -> None:
        self._set(name, None, None, settings)

    def __str__(self) -> str:
        return "OLL" if self.name == "oll" else super().__str__()


class PersonalizeFully(Phase):
    """Each client trains alone, from the model it has, by SGD or Ditto."""

    kind: ClassVar[str] = "full"
    module: ClassVar[str] = "local"
    description: ClassVar[str] = "full personalization"
    counts: ClassVar[str] = "epochs"

    def __init__(
        self,
        method: str = "sgd",
        part: str | None = None,
        *,
        epochs: int | None = None,
        **settings: Value,
    ) -> None:
        self._set(method, part, epochs, settings)

    def __str__(self) -> str:
        return self._written("FP", *([self.name] if self.name != "sgd" else []))


KINDS: dict[str, type[Phase]] = {  # in the order of a pipeline
    kind.kind: kind
    for kind in (
        InitHead,
        PretrainAtSource,
        FineTune,
        PersonalizePartly,
        PersonalizeClosedForm,
        PersonalizeFully,
    )
}


def _refittable(method: Any, head: Any) -> InitHead | None:
    """A head that can be solved anew, or None; a random one cannot."""
    if head is None or (isinstance(head, InitHead) and head.name != "none"):
        return head
    shown = head.name if isinstance(head, InitHead) else head
    raise HeadstartError(
        f"pipeline: {_shown(method)}: refit: expected the name of a head, got {_shown(shown)}"
    )


def head_arguments(head: Any) -> tuple[Any, dict[str, Value]]:
    """A head's name and the settings in which it differs from its defaults."""
    from headstart import heads

    if head is None:
        return "none", {}
    if isinstance(head, str):
        return head, {}
    name = heads.name_of(head)
    if isinstance(head, type):
        return name, {}
    usual = {
        field.name: field.default if field.default is not dataclasses.MISSING else None
        for field in dataclasses.fields(head)
    }
    given = {key: getattr(head, key) for key in usual}
    return name, {key: value for key, value in given.items() if value != usual[key]}


def method_name(method: Any) -> Any:
    """The name of a method, or of a recipe function."""
    from headstart import gradient

    return method if isinstance(method, str) else gradient.METHODS.name_of(method)


def is_plain(value: object) -> bool:
    """Whether a setting may have this value: text and YAML give it back as it was."""
    if isinstance(value, int):
        return abs(value) < 2**63
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def printed(value: Value) -> str:
    """A value as the notation writes it."""
    bare = isinstance(value, str) and _BARE.fullmatch(value)
    return str(value) if bare else json.dumps(value, ensure_ascii=False)


def _inside(head: InitHead) -> list[str]:
    return [f"{key}={printed(value)}" for key, value in sorted(head.settings.items())]


def _shown(value: object) -> str:
    try:
        return reprlib.repr(value)  # short, whatever came: a list that holds itself, a long text
    except ValueError:
        return "a number of thousands of digits"  # which Python refuses to print

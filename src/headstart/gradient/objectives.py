"""The losses and terms that an objective can name, and what is known of each without torch.

Their equations are in `losses`, which needs torch and is imported when one is first computed.
`@register_loss` adds one's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from headstart.errors import HeadstartError
from headstart.gradient.recipe import Term
from headstart.registry import Registry, natural_name, qualified

if TYPE_CHECKING:
    from torch import Tensor

    from headstart.gradient.losses import Outputs

Value = Callable[["Outputs", Term], "Tensor"]
Slope = Callable[["Tensor", "Tensor", "Tensor"], "Tensor"]  # (logits, labels, weights) → k×b×C
V = TypeVar("V", bound=Value)


@dataclass(frozen=True)
class Loss:
    """A loss, or a term that holds a model to others.

    value       of a batch, summed over clients that train together
    slope       ∂/∂logits, so that a head trains without autograd
    references  how many models it evaluates besides the one that trains: 1 the received one,
                2 also the client's last. With any, `term=NAME` adds it to every method
    usual       the settings of its paper (tau, scale, gamma), where it is added so
    beside      by its term: whole models that the server sends for it to look through; where no
                teacher was sent, the received model is one
    """

    value: Value
    slope: Slope | None = None
    references: int = 0
    usual: Mapping[str, float] = field(default_factory=dict, hash=False)
    beside: Callable[[Term], tuple[str, ...]] | None = None

    def term(self, name: str, weight: float) -> Term:
        usual: dict[str, Any] = dict(self.usual)
        return Term(name, weight, **usual)


@dataclass(frozen=True)
class _Equation:
    """A function of `losses`, found when it is called."""

    name: str

    def __call__(self, *batch: Any) -> Tensor:
        losses = importlib.import_module("headstart.gradient.losses")
        values: Tensor = getattr(losses, self.name)(*batch)
        return values


def _ours(name: str, *, slope: bool = False, references: int = 0, **usual: float) -> Loss:
    function = name.replace("-", "_")
    by_logits = _Equation(f"{function}_slope") if slope else None
    return Loss(_Equation(function), by_logits, references, usual)


def _taught(term: Term) -> tuple[str, ...]:
    """A teacher, and where its weight is not 0 the source."""
    return ("teacher", "source") if dict(term.settings).get("source") else ("teacher",)


def _package() -> dict[str, Loss]:
    """Temperatures as in the papers: FedNTD's 3 (also of KD, which shares its code), MOON's 0.5."""
    return {
        "cross-entropy": _ours("cross-entropy", slope=True),
        **{name: _ours(name) for name in ("dot-regression", "sphere", "balanced", "scaled")},
        "kd": _ours("kd", references=1, tau=3.0),
        "ntd": _ours("ntd", references=1, tau=3.0),
        "ld": _ours("ld", references=1),
        "fd": _ours("fd", references=1),
        "moon": _ours("moon", references=2, tau=0.5),
        "self-training": Loss(_Equation("self_training"), beside=_taught),
    }


def _check(name: str, loss: Any) -> None:
    if not isinstance(loss, Loss):
        raise HeadstartError(
            f"loss {name}: expected one that @register_loss has registered, got {loss!r:.200}"
        )


LOSSES: Registry[Loss] = Registry("loss", "headstart.losses", _package, check=_check)


def register_loss(*, references: int = 0, **usual: float) -> Callable[[V], V]:
    """Let a loss of your own be named in a recipe: `my_loss(seen, term)` is "my-loss".

    `references`: how many other models it evaluates (1: `seen.received`; 2: also `seen.last`);
    with any, every method takes it by `term=my-loss`, at the `usual` tau, scale and gamma.
    """
    if references not in (0, 1, 2):
        raise HeadstartError(f"references: expected 0, 1 or 2, got {references!r}")
    unknown = [key for key in usual if key not in ("tau", "scale", "gamma")]
    if unknown:
        raise HeadstartError(f"loss: expected settings among tau, scale, gamma, got {unknown[0]}")

    def put(value: V) -> V:
        loss = Loss(value, references=references, usual=usual)
        LOSSES.add(loss, name=natural_name(value), place=qualified(value))
        return value

    return put


def references_of(objective: Iterable[Term]) -> int:
    """How many models an objective evaluates besides the one that trains."""
    return max((LOSSES[term.name].references for term in objective), default=0)


def beside_of(objective: Iterable[Term]) -> frozenset[str]:
    """The names of the models that an objective looks through beside those."""
    named = ((LOSSES[term.name].beside, term) for term in objective)
    return frozenset(name for beside, term in named if beside for name in beside(term))


def term_names() -> tuple[str, ...]:
    """What `term=…` may say."""
    every = LOSSES.entries()
    held = [entry.name for entry in every if entry.thing is None or entry.thing.references]
    return ("none", "prox", *held)

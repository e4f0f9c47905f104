"""Differential privacy of closed-form heads: a federation whose sums carry discrete Gaussian noise.

Two messages per client, both sums of feature vectors at unit length. First their sum over all
classes, which gives the direction p̂ that all share; then A, B and the counts of the features
without it, (z − p̂p̂ᵀz)/‖·‖. The noise of a release does not depend on what is common to all
samples, so what is left stands out of it. A head W on such features is W − Wp̂p̂ᵀ on the features
as they are, for the length of z is the same factor of all its scores.

With class means a third may ask what they leave unexplained (`residual`). All else is
post-processing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import heads
from headstart.errors import DataError, HeadstartError, StepRefusedError
from headstart.federation.protocol import (
    EXTRACTOR,
    Answer,
    Arrays,
    Federation,
    Step,
    chosen,
    step_kind,
)
from headstart.heads.noisy import unit_weights
from headstart.privacy.accountant import composed
from headstart.privacy.budget import Budget
from headstart.privacy.layout import Layout
from headstart.privacy.noise import Entropy
from headstart.privacy.plan import HEADS, SHARES, PrivacyPlan
from headstart.privacy.residual import correction
from headstart.privacy.sensitivity import Noise
from headstart.privacy.statement import Statement
from headstart.privacy.unit_sums import rows_of, unit_sums
from headstart.statistics.moments import Moments
from headstart.statistics.noisy import NoisySums


@dataclass(frozen=True)
class Private:
    """A federation of which nothing is seen but releases within the plan; each is drawn once.

    `measure` is answered with `NoisySums`, by as many messages as the plan needs; all other steps
    are refused. `entropy` is there for tests.
    """

    inner: Federation
    plan: PrivacyPlan
    budget: Budget = field(default_factory=lambda: Budget(0.0))
    entropy: Entropy = secrets.token_bytes

    def __post_init__(self) -> None:
        if not self.budget.mu and self.budget.path is None:  # none was given: that of the plan
            object.__setattr__(self, "budget", Budget(self.plan.mu))

    @property
    def clients(self) -> Sequence[str]:
        return self.inner.clients

    def answers(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Answer]:
        """The release, as one answer of all."""
        yield self.total(step, broadcast, cohort)

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Answer:
        kind = self._kind(step)
        names, arrays = tuple(chosen(self.clients, cohort)), dict(broadcast or {})
        extra = {key: step.params[key] for key in (EXTRACTOR,) if key in step.params}
        ask = _Question(names, arrays | self._public(), extra, self.plan.text)
        if kind == "sums" and self.budget.charges.keys() & {ask.name("gram")}:
            kind = "gram"  # which has all that is asked for: post-processing is free
        kinds = self.plan.messages(kind)
        self._check(kinds, ask)
        answers: dict[str, Answer] = {}
        for each in kinds:
            answers[each] = self._released(each, ask)
            ask = ask.with_arrays(_told(each, answers[each].statistic, ask))
        release = self._together(kind, answers, ask)
        said = self._statement(kind, release, answers, len(names))
        up, down = (sum(getattr(a, way) for a in answers.values()) for way in ("up", "down"))
        return Answer(answers[kind].clients, replace(release, statement=asdict(said)), up, down)

    def _public(self) -> dict[str, NDArray[Any]]:
        """What clients are told of public data."""
        given = {"direction": self.plan.direction, "projection": self.plan.projection}
        return {name: np.asarray(array) for name, array in given.items() if array is not None}

    def _together(self, kind: str, answers: dict[str, Answer], ask: _Question) -> NoisySums:
        """The sums of this kind, with what the other messages say of them."""
        release: NoisySums = answers[kind].statistic
        classes, last = len(self.plan.labels), answers.get("residual")
        corrected = None if last is None else correction(last.statistic, classes)
        return replace(
            release,
            direction=ask.broadcast.get("direction"),
            projection=ask.broadcast.get("projection"),
            correction=corrected,
        )

    def _check(self, kinds: Sequence[str], ask: _Question) -> None:
        """Refuse, before anybody is asked, what could not be released to the end."""
        clients, charged = len(ask.cohort), self.budget.charges
        self.plan.check_noise(kinds, clients)
        new = [kind for kind in kinds if ask.name(kind) not in charged]
        self.budget.check(composed(self.plan.noise(kind, clients).mu for kind in new))

    def _kind(self, step: Step) -> str:
        if step.name != "measure" or step.silent:
            raise StepRefusedError(
                f"private: expected a step that noise can hide (measure), got {step.name!r}"
            )
        head = step.params["head"]
        if head not in HEADS:
            raise HeadstartError(
                f"private: expected a head that is solved from noisy sums ({', '.join(HEADS)}), "
                f"got {head}"
            )
        made: Any = heads.make(head, step.params["settings"])
        if hasattr(made, "check_noisy"):
            made.check_noisy()
        if step_kind("measure").answer_type(step) is not Moments:
            return "sums"
        if self.plan.residual:
            raise HeadstartError(
                f"residual: expected class means (fedncm), which it corrects, got {head}"
            )
        return "gram"

    def _released(self, kind: str, ask: _Question) -> Answer:
        """One message: from the budget where it was drawn before, else of the clients."""
        name = ask.name(kind)
        kept = self.budget.release(name)
        if kept is not None:
            return Answer(ask.cohort, NoisySums.from_bytes(kept))
        noise = self.plan.noise(kind, len(ask.cohort))
        if self.plan.trust == "server":
            answer = self._noised(kind, noise, ask)
            self.budget.charge(name, noise.mu)
        else:
            self.budget.charge(name, noise.mu)  # clients' noise leaves them before it is here
            answer = self._noised_by_clients(kind, noise, ask)
        self.budget.keep(name, answer.statistic.to_bytes())
        return answer

    def _noised_by_clients(self, kind: str, noise: Noise, ask: _Question) -> Answer:
        """What comes with its noise. Who lies is left out: that is post-processing, and private.

        Nobody's answer is a release that is void: asked again, clients would draw again.
        """
        try:
            return self.inner.total(*ask.step(kind, self.plan, noise), ask.cohort)
        except DataError as error:
            raise DataError(
                f"private: no client gave an answer that can be released ({error}); what was "
                "charged for it is spent"
            ) from None

    def _noised(self, kind: str, noise: Noise, ask: _Question) -> Answer:
        """Of a trusted server: exact statistics come, and noise is added to their sum, once."""
        asked = (*ask.step(kind, self.plan), ask.cohort)
        single = self.plan.unit == "client"  # who is clipped must be seen
        answers = list(self.inner.answers(*asked)) if single else [self.inner.total(*asked)]
        if single and any(len(answer.clients) != 1 for answer in answers):
            raise DataError("unit: expected answers of single clients to clip, got sums of several")
        if not answers:
            raise DataError("total: expected at least one statistic, got none")
        layout = Layout.of(answers[0].statistic, rows_of(asked[0].params))
        numbers = sum(noise.vector(layout, answer.statistic) for answer in answers)
        release = noise.restored(layout, noise.added(layout, np.asarray(numbers), self.entropy))
        members = tuple(name for answer in answers for name in answer.clients)
        # Small messages are as long as their clients have samples: what is told is the agreed form.
        up = len(members) * len(release.to_bytes())
        return Answer(members, release, up, sum(answer.down for answer in answers))

    def _statement(
        self, kind: str, release: NoisySums, answers: dict[str, Answer], clients: int
    ) -> Statement:
        plan = self.plan
        shares: dict[str, float] = {}
        for each in answers:  # of the others the one number that matters
            own = SHARES[kind] if each == kind else {each: 1.0}
            shares |= {part: plan.share(each) * share for part, share in own.items()}
        sigmas = {
            part: release.sigma(part) if part in SHARES[kind] else _sigma(answers[part])
            for part in shares
        }
        survivors = getattr(self.inner, "least_survivors", None)
        return Statement(
            plan.unit,
            plan.epsilon,
            plan.delta,
            plan.mu,
            self.budget.epsilon(plan.delta),
            self.budget.spent,
            plan.trust,
            plan.samples,
            release.dimension,
            len(plan.labels),
            len(answers),
            shares,
            sigmas,
            None if plan.unit == "sample" else plan.reach(kind, clients),
            survivors - plan.colluding if plan.trust == "secure-sum" and survivors else None,
            release.digest(),
            clients,
            plan.rows,
            tuple(self._public()),
            self.entropy is not secrets.token_bytes,
        )

    def begin_training(self, name: str) -> None:
        """Nothing: a private federation trains nothing."""

    def snapshot(self) -> dict[str, NDArray[Any]]:
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Nothing was kept."""


@dataclass(frozen=True, eq=False)
class _Question:
    """Who is asked, with what beside the step."""

    cohort: tuple[str, ...]
    broadcast: dict[str, NDArray[Any]]
    extra: dict[str, Any]
    plan: str  # what is promised: numbers that were drawn under another one are not these

    def name(self, kind: str) -> str:
        """Of the request: the same for the same clients, extractor and promise."""
        asked = (sorted(self.cohort), sorted(self.extra.items()), self.plan)
        state = hashlib.sha256(repr(asked).encode())
        for key in sorted(set(self.broadcast) - {"direction", "projection", "weights"}):
            state.update(key.encode() + np.ascontiguousarray(self.broadcast[key]).tobytes())
        return f"{kind}-{state.hexdigest()[:32]}"

    def step(
        self, kind: str, plan: PrivacyPlan, noise: Noise | None = None
    ) -> tuple[Step, dict[str, NDArray[Any]]]:
        samples, clients = plan.samples * plan.rows, len(self.cohort)
        most = {"samples": samples, "clients": clients, "dimension": plan.width}
        image = plan.noise(kind, clients) if plan.unit == "image" else None
        step = unit_sums(kind, plan.labels, noise, most, image)
        return replace(step, params={**step.params, **self.extra}), self.broadcast

    def with_arrays(self, arrays: Arrays) -> _Question:
        return replace(self, broadcast={**self.broadcast, **arrays})


def _told(kind: str, release: NoisySums, ask: _Question) -> dict[str, NDArray[np.float64]]:
    """What clients are told of a message before the next: p̂, or W₁."""
    if kind == "mean":
        sums = release.class_sums()[0]
        return {"direction": sums / max(float(np.linalg.norm(sums)), 1e-300)}
    if kind == "sums":
        apart = replace(release, direction=ask.broadcast.get("direction"))
        return {"weights": unit_weights(apart, release.class_sums())}
    return {}


def _sigma(answer: Answer) -> float:
    return float(answer.statistic.sigma("sums"))

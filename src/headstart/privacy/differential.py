"""Differential privacy of closed-form heads: a federation whose sums carry discrete Gaussian noise.

Two messages per client, both sums of feature vectors at unit length. First their sum over all
classes, which gives the direction p̂ that all share; then A, B and the counts of the features
without it, (z − p̂p̂ᵀz)/‖·‖. The noise of a release does not depend on what is common to all
samples, so what is left stands out of it. A head W on such features is W − Wp̂p̂ᵀ on the features
as they are, for the length of z is the same factor of all its scores.

The budget μ² (of ε and δ) is split among the messages and their parts; all else is post-processing.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
from headstart.labels import Labels, as_labels
from headstart.privacy.accountant import composed, mu_of
from headstart.privacy.budget import Budget
from headstart.privacy.layout import Layout
from headstart.privacy.noise import Entropy
from headstart.privacy.refusals import Abort
from headstart.privacy.sensitivity import Noise
from headstart.privacy.statement import TRUSTS, Statement
from headstart.privacy.unit_sums import rows_of, unit_sums
from headstart.statistics.moments import Moments
from headstart.statistics.noisy import NoisySums

UNITS = ("sample", "client")
# Of μ²: the mean's part of all, then those of each message's own parts.
MEAN = {"sample": 0.03, "client": 0.05}
SHARES: dict[str, dict[str, float]] = {
    "mean": {"counts": 0.01, "sums": 0.99},
    "sums": {"counts": 0.01, "sums": 0.99},
    "gram": {"counts": 0.01, "sums": 0.79, "gram": 0.20},
}
SIGNAL = 3.5  # how far a class's sum must stand out of its noise for ridge to be the better head
HEADS = ("fed3r", "lda", "fedncm")


@dataclass(frozen=True, eq=False)
class PrivacyPlan:
    """What is promised, and by whom: all of it public, and fixed before data are seen.

    `classes`: the list agreed beforehand. `samples`: as many as are planned for. `trust`: who adds
    the noise, `server`, `secure-sum` or `client`. `clip`: with unit `client`, what one may count
    for, in samples (None: √(samples/clients)). `colluding`: members of a masked group that may side
    with the server. `mean`: whether the common direction is asked for first. `dimension`: of the
    features, so that nobody's answer says it for others (None: not known beforehand).
    """

    epsilon: float
    delta: float
    classes: ArrayLike
    samples: int
    unit: str = "sample"
    trust: str = "server"
    clip: float | None = None
    colluding: int = 0
    mean: bool = True
    dimension: int | None = None

    @property
    def text(self) -> str:
        """What is promised, in one line; the dimension is the extractor's and promises nothing."""
        said = {**asdict(self), "classes": self.labels.tolist()}
        return repr({name: value for name, value in said.items() if name != "dimension"})

    def __post_init__(self) -> None:
        labels = np.unique(as_labels(self.classes, "classes"))
        object.__setattr__(self, "classes", labels)
        if not len(labels):
            raise HeadstartError("classes: expected the list agreed beforehand, got none")
        for name, options in (("unit", UNITS), ("trust", tuple(TRUSTS))):
            if getattr(self, name) not in options:
                said = f"expected one of {', '.join(options)}, got {getattr(self, name)!r}"
                raise HeadstartError(f"{name}: {said}")
        if type(self.samples) is not int or self.samples < 1:
            raise HeadstartError(f"samples: expected how many are planned, got {self.samples!r}")
        if type(self.colluding) is not int or self.colluding < 0:
            raise HeadstartError(f"colluding: expected 0 or more, got {self.colluding!r}")
        if self.dimension is not None and (type(self.dimension) is not int or self.dimension < 1):
            raise HeadstartError(f"dimension: expected 1 or more, got {self.dimension!r}")
        if self.colluding and self.trust != "secure-sum":
            raise HeadstartError("colluding: expected 0 but for trust secure-sum")
        _ = self.mu  # which refuses ε and δ that promise nothing
        if self.delta > 1 / self.samples:
            raise HeadstartError(
                f"delta: expected at most 1/samples = {1 / self.samples:.3g}, got {self.delta:g}: "
                "to publish one sample whole would be as private"
            )
        self._check_clip()

    def _check_clip(self) -> None:
        if self.clip is None:
            return
        known = isinstance(self.clip, (int, float)) and 0 < self.clip < math.inf
        if self.unit != "client" or not known:
            raise HeadstartError(
                f"clip: expected a number above 0 with unit client alone, got {self.clip!r}"
            )

    @cached_property
    def mu(self) -> float:
        """Of all messages together."""
        return mu_of(self.epsilon, self.delta)

    @property
    def labels(self) -> Labels:
        return np.asarray(self.classes)

    def share(self, kind: str) -> float:
        """Of μ², that goes to a message."""
        mean = MEAN[self.unit] if self.mean else 0.0
        return mean if kind == "mean" else 1.0 - mean

    def reach(self, kind: str, clients: int) -> float:
        """What one unit may count for in a message, in samples."""
        if self.unit == "sample":
            return 1.0
        usual = max(1.0, self.samples / clients)
        most = self.clip or math.sqrt(usual)
        # Samples of many classes add up like √n in the sums, and like n along what all share.
        return most**2 if kind == "mean" else most

    def noise(self, kind: str, clients: int) -> Noise:
        """Of one message of so many clients."""
        return Noise.plan(
            self.mu * math.sqrt(self.share(kind)),
            SHARES[kind],
            reach=self.reach(kind, clients),
            clip=self.unit == "client",
            colluding=self.colluding if self.trust == "secure-sum" else None,
        )

    def check_noise(self, kinds: Sequence[str], clients: int) -> None:
        """Refuse ε and δ whose noise, of one of these messages, cannot be drawn."""
        for kind in kinds:
            try:
                self.noise(kind, clients).check_room(clients)
            except Abort as error:
                raise Abort(
                    error.code,
                    f"epsilon: {self.epsilon:g} with δ = {self.delta:g} needs noise that cannot be "
                    f"drawn for {clients} clients ({str(error).removesuffix(f' [{error.code}]')})",
                ) from None

    def signal(self, dimension: int, clients: int) -> float:
        """How far the mean class's sum stands out of its noise."""
        copies = clients if self.trust == "client" else 1
        sigma = self.noise("sums", clients).sigma("sums") * math.sqrt(copies)
        return self.samples / len(self.labels) / (sigma * math.sqrt(dimension))

    def better_head(self, dimension: int, clients: int) -> str:
        """Class means while their noise is large, ridge regression beyond; a rule of thumb."""
        return "fed3r" if self.signal(dimension, clients) >= SIGNAL else "fedncm"


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
        if not self.budget.mu:  # none was given: that of the plan, in memory
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
        ask = _Question(names, arrays, extra, self.plan.text)
        if kind == "sums" and self.budget.charges.keys() & {ask.name("gram")}:
            kind = "gram"  # which has all that is asked for: post-processing is free
        self._check((*["mean"] * self.plan.mean, kind), ask)
        mean = self._released("mean", ask) if self.plan.mean else None
        if mean is not None:
            ask = replace(ask, broadcast={**arrays, "direction": _direction(mean.statistic)})
        found = self._released(kind, ask)
        release = replace(found.statistic, direction=ask.broadcast.get("direction"))
        said = self._statement(kind, release, mean, len(names))
        release = replace(release, statement=asdict(said))
        up, down = (sum(getattr(a, w) for a in (mean, found) if a) for w in ("up", "down"))
        return Answer(found.clients, release, up, down)

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
        if step.params["settings"].get("ridge") == "gcv":
            raise HeadstartError(
                "ridge: expected a number with noisy sums, got 'gcv': their residual is none; "
                "λ follows from the noise"
            )
        return "gram" if step_kind("measure").answer_type(step) is Moments else "sums"

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
        self, kind: str, release: NoisySums, mean: Answer | None, clients: int
    ) -> Statement:
        plan = self.plan
        shares = {part: plan.share(kind) * share for part, share in SHARES[kind].items()}
        sigmas = {part: release.sigma(part) for part in shares}
        if mean is not None:
            shares = {"mean": plan.share("mean"), **shares}
            sigmas["mean"] = mean.statistic.sigma("sums")
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
            1 + plan.mean,
            shares,
            sigmas,
            plan.reach(kind, clients) if plan.unit == "client" else None,
            survivors - plan.colluding if plan.trust == "secure-sum" and survivors else None,
            release.digest(),
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
        for key in sorted(set(self.broadcast) - {"direction"}):
            state.update(key.encode() + np.ascontiguousarray(self.broadcast[key]).tobytes())
        return f"{kind}-{state.hexdigest()[:32]}"

    def step(
        self, kind: str, plan: PrivacyPlan, noise: Noise | None = None
    ) -> tuple[Step, dict[str, NDArray[Any]]]:
        most = {"samples": plan.samples, "clients": len(self.cohort), "dimension": plan.dimension}
        step = unit_sums(kind, plan.labels, noise, most)
        return replace(step, params={**step.params, **self.extra}), self.broadcast


def _direction(mean: NoisySums) -> NDArray[np.float64]:
    """p̂: where the noisy sum of all samples points."""
    sums = mean.class_sums()[0]
    return np.asarray(sums / max(float(np.linalg.norm(sums)), 1e-300))

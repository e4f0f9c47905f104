"""What a private release promises, to whom, and what it does not: in every report and model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TRUSTS = {
    "server": "The server sees all statistics and adds the noise; whoever reads its memory or its "
    "messages is not bound by ε.",
    "secure-sum": "Members of a masked group add the noise in shares, and the server sees the "
    "noisy sum alone. It holds while {honest} members of a group keep their shares to themselves, "
    "the server is honest but curious, and keys are its members' own.",
    "client": "Each client adds all the noise itself; nobody else is trusted.",
}
NOT_COVERED = (
    "test samples, and every accuracy and confusion matrix measured on them",
    "who took part, who dropped out, when, and how long it took",
    "other releases over the same data: other heads, runs, seeds and settings add their μ²",
    "settings that were chosen by looking at results on these data",
    "features, files and messages outside the release",
    "the extractor, if it was trained on these samples",
)
_PERSONS = "persons with more than one {unit}: ε is that of one {unit}, not of all of theirs"
_GIVEN = {"direction": "mean of public data", "projection": "projection of public data"}
HARDLY = 20.0  # an ε above it promises hardly anything


@dataclass(frozen=True)
class Statement:
    """One release; `shares` are of μ², `sigmas` in features of unit length."""

    unit: str
    epsilon: float
    delta: float
    mu: float
    spent_epsilon: float
    spent_mu: float
    trust: str
    samples: int  # planned
    dimension: int
    classes: int
    messages: int
    shares: dict[str, float] = field(default_factory=dict)
    sigmas: dict[str, float] = field(default_factory=dict)
    clip: float | None = None  # what a client, or an image, counts for
    honest: int | None = None  # members of each group that must be, in a secure sum
    digest: str = ""  # of the noisy numbers
    clients: int | None = None  # asked; None: of an older release, which did not say
    rows: int = 1  # samples of an image, at most
    given: tuple[str, ...] = ()  # arrays of public data: direction, projection
    seeded: bool = False

    @property
    def neighbours(self) -> str:
        return f"add or remove one {self.unit}"

    @property
    def holds(self) -> str:
        """The trust model, and what breaks it."""
        return TRUSTS[self.trust].format(honest=self.honest)

    @property
    def public(self) -> str:
        planned = f"{self.samples} planned samples"
        if self.unit == "image":
            planned = f"{self.samples} planned images of at most {self.rows} samples"
        clients = "" if self.clients is None else f"{self.clients} clients, "
        given = "".join(f"the {_GIVEN[name]}, " for name in self.given)
        return (
            f"taken as public: {planned}, {clients}dimension {self.dimension}, the list of "
            f"{self.classes} classes, {given}the extractor, the shares and the lattice"
        )

    @property
    def not_covered(self) -> tuple[str, ...]:
        own = _PERSONS.format(unit=self.unit)
        return (*NOT_COVERED, *([] if self.unit == "client" else [own]))

    @property
    def warnings(self) -> tuple[str, ...]:
        found = []
        if self.seeded:
            found.append("not private: seeded noise")
        if self.epsilon > HARDLY:
            found.append(f"ε = {self.epsilon:g} is above {HARDLY:g}: hardly a promise")
        if self.delta > 1 / self.samples:
            found.append(
                f"δ = {self.delta:g} is above 1/{self.samples}: to publish one {self.unit} whole "
                "would be as private"
            )
        return tuple(found)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """(what, text), in the order in which they must be read."""
        noise = ", ".join(
            f"{part} {100 * share:.3g}% (σ = {self.sigmas[part]:.4g})"
            for part, share in self.shares.items()
        )
        clip = ""
        if self.clip is not None:
            clip = f"; each {self.unit} counts for {self.clip:.4g} samples at most"
        messages = f"{self.messages} message{'s' * (self.messages > 1)}"
        return (
            ("Unit", self.unit),
            ("Neighbours", self.neighbours),
            ("This release", f"ε = {self.epsilon:g} at δ = {self.delta:g} (μ = {self.mu:.4g})"),
            ("Spent so far", f"ε = {self.spent_epsilon:.4g} (μ = {self.spent_mu:.4g})"),
            ("Trust", f"{self.trust}. {self.holds}"),
            ("Public", self.public),
            ("Shares of μ² and noise", f"{noise}, in {messages}{clip}"),
            ("Not covered", "; ".join(self.not_covered)),
            *(("Warning", text) for text in self.warnings),
        )

    def __str__(self) -> str:
        return "\n".join(f"{what}: {text}" for what, text in self.facts)

    @classmethod
    def of_plain(cls, plain: Any) -> Statement:
        """From the plain values that travel with a head."""
        return cls(**{**plain, "given": tuple(plain.get("given", ()))})

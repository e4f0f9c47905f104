"""How far one sample or one client can move a sum, on whole numbers, and the noise that hides it.

A sample is a feature vector of unit length on the lattice of bound 1: q = trunc(R·z/‖z‖), R =
2¹⁵ − 1. Truncated, ‖q‖ ≤ R for certain; rounded it would not be. Its part of A is qqᵀ, whose norm
counts the triangle beside the diagonal twice, ‖qqᵀ‖_F = ‖q‖² ≤ R²; of B it is q, of the counts R
(a constant feature). With noise of variance s_j² on every number j of a sum, one unit moves it by

    μ² = Σ_j x_j²/(s_j² − 4)

in deviations, and that is the μ of the release. So the numbers beside the diagonal of A take half
the variance of those on it, for each of them stands for two.

Where the unit is a client, its sums are scaled down until they move the total by μ at most. Where
it is an image of many samples, these are shortened together, q ↦ trunc(t·q), until theirs do: what
is sent are sums of samples as ever.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import HeadstartError, WireError
from headstart.privacy.layout import Layout
from headstart.privacy.noise import LEAST, LOST, REACH, Entropy, discrete_gaussian
from headstart.privacy.refusals import Abort
from headstart.statistics.exact import LEVELS
from headstart.statistics.noisy import NoisySums

Whole = NDArray[np.int64]
BOUND = 1.0  # of the lattice
_TINY = 1e-9  # of a unit vector: what is left of one that points where all do
_ABOVE = 1e-9  # more than the rounding of a norm
_ROUNDED = 1e-12  # more than the rounding of a variance
_ROOM = 2**61  # that noise may take of 63 bits; sums have 62


def unit_rows(
    features: NDArray[Any], direction: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Each row at unit length, without its part along `direction`, on the lattice of bound 1.

    Rows of zeros stay zero, and those with a number that is none become zeros. A row depends on
    itself and on the direction alone, whatever stands beside it.
    """
    rows = _unit(np.asarray(features, np.float64, order="C"))
    if direction is not None:
        rows = _unit(rows - np.einsum("nd,d->n", rows, direction)[:, None] * direction, _TINY)
    whole = np.trunc(LEVELS * rows).astype(np.int64)
    for row in np.flatnonzero((whole**2).sum(axis=1) > LEVELS**2):  # a float was an ulp high
        while (whole[row] ** 2).sum() > LEVELS**2:
            at = np.argmax(np.abs(whole[row]))
            whole[row, at] -= np.sign(whole[row, at])
    return whole / LEVELS


def _unit(rows: NDArray[np.float64], least: float = 0.0) -> NDArray[np.float64]:
    """By the largest number first: squares of 1e150 and of 1e-200 are none."""
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > least)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=rows, where=norms > 0)


def along(features: NDArray[Any], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Zᵀ ↦ QᵀZᵀ, a row at a time: a product of many would round each by what stands beside it."""
    found = np.empty((len(features), columns.shape[1]))
    row = np.empty(len(columns))
    for at, given in enumerate(features):
        row[:] = given
        np.dot(row, columns, out=found[at])
    return found


def shortened(
    rows: NDArray[np.float64], labels: NDArray[Any], images: NDArray[Any], noise: Noise
) -> NDArray[np.float64]:
    """Rows of `unit_rows`, those of an image multiplied by what lets it move the sums by μ.

    `labels`: which row of the sums each is added to. Its count moves them too, by as many samples
    as an image may have.
    """
    assert noise.rows is not None
    out = rows.copy()
    for image in np.unique(images):
        own = np.flatnonzero(images == image)
        if len(own) > noise.rows:
            raise HeadstartError(
                f"rows: expected images of at most {noise.rows} samples, got {len(own)}"
            )
        whole = np.rint(LEVELS * rows[own])
        kept, scale, margin = whole, 1.0, _ABOVE
        while (fits := noise.fitting(kept, labels[own])) < 1:
            scale *= fits * max(0.0, 1 - margin)
            kept, margin = np.trunc(scale * whole), 4 * margin  # truncated sums may be longer
        out[own] = kept / LEVELS
    return out


def steps_of(part: str) -> int:
    """How far one sample of unit length reaches in a part, in steps of the lattice."""
    return LEVELS ** (2 if part == "gram" else 1)


@dataclass(frozen=True)
class Noise:
    """The noise of one sum: of each part its variance, in steps of the lattice.

    That of `gram` is the diagonal's. `mu`: how far one unit moves the sum; where the unit is a
    client (`clip`), its numbers are scaled down until it does. `colluding`: of the members of a
    masked group, how many may tell the server their share of the noise; None: not in shares.
    `rows`: where the unit is an image, the most samples of one; they are `shortened`.
    """

    variances: Mapping[str, int]
    mu: float
    clip: bool = False
    colluding: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        known = {"counts", "sums"} <= set(self.variances) <= {"counts", "sums", "gram"}
        if not known or not 0 < self.mu < math.inf:
            raise Abort("noise", "noise: expected variances of counts, sums and perhaps gram")
        for part, variance in self.variances.items():
            if type(variance) is not int or variance < LEAST:
                raise Abort("noise", f"{part}: expected a variance from {LEAST}, got {variance!r}")
        if self.rows is not None and not self.room > 0:
            raise Abort("noise", f"counts: expected noise for images of {self.rows} samples")

    @classmethod
    def plan(
        cls,
        mu: float,
        shares: Mapping[str, float],
        *,
        reach: float = 1.0,
        clip: bool = False,
        colluding: int | None = None,
        rows: int | None = None,
    ) -> Noise:
        """Of a release of this μ, whose square the parts share.

        `reach`: what a unit may count for, in samples. All samples of an image are counted.
        """
        most = {part: float(rows if rows and part == "counts" else reach) for part in shares}
        variances = {
            part: math.ceil((steps_of(part) * most[part]) ** 2 / (share * mu**2) * (1 + _ROUNDED))
            + LOST
            for part, share in shares.items()
        }
        return cls(variances, mu, clip, colluding, rows)

    @property
    def unit_mu(self) -> float:
        """How far one unit really moves the sum, by the variances: what a client checks."""
        if self.clip or self.rows is not None:
            return self.mu
        return math.sqrt(sum(steps_of(p) ** 2 / (v - LOST) for p, v in self.variances.items()))

    @property
    def room(self) -> float:
        """What the count of an image leaves to its other sums of μ²; 0 if that takes all."""
        counted = (LEVELS * (self.rows or 1)) ** 2 / (self.variances["counts"] - LOST)
        return max(0.0, self.mu**2 - counted) * (1 - _ABOVE)

    def fitting(self, whole: NDArray[np.float64], labels: NDArray[Any]) -> float:
        """The t ≤ 1 by which an image's samples (whole numbers) are to be multiplied.

        Of t·q B has t times as much and A t²: t²·b + t⁴·a is to be the room that there is.
        """
        b = sum(
            float((whole[labels == label].sum(axis=0) ** 2).sum()) for label in np.unique(labels)
        ) / (self.variances["sums"] - LOST)
        a = 0.0
        if "gram" in self.variances:  # ‖QᵀQ‖ = ‖QQᵀ‖: the smaller of the two
            wide = whole.shape[1] > len(whole)
            product = whole @ whole.T if wide else whole.T @ whole
            a = float((product**2).sum()) / (self.variances["gram"] - LOST)
        if b + a <= self.room:
            return 1.0
        return math.sqrt(2 * self.room / (b + math.sqrt(b * b + 4 * a * self.room)))

    def same_size(self, other: Noise) -> bool:
        """Whether what hides in one hides in the other."""
        mine, theirs = ((dict(n.variances), n.mu, n.rows) for n in (self, other))
        return mine == theirs

    def sigma(self, part: str) -> float:
        """The deviation in the features' own units."""
        return math.sqrt(self.variances[part]) / steps_of(part)

    def check(self, layout: Layout) -> None:
        """Refuse a layout whose numbers this noise is not made for."""
        parts = {"counts", "sums", *(["gram"] if layout.gram else [])}
        if set(self.variances) != parts or layout.squares or not layout.sums:
            raise Abort("noise", f"noise: expected that of {', '.join(sorted(parts))}")
        if layout.bound != BOUND:
            raise Abort("noise", f"bound: expected unit length (1), got {layout.bound:g}")

    # -- what a client, or a trusted server, does ----------------------------------------------

    def vector(self, layout: Layout, statistic: Any) -> Whole:
        """The numbers of a statistic, counts in steps of the lattice; of a client, clipped."""
        numbers = layout.flatten(statistic).view(np.int64).copy()
        numbers[: len(layout.classes)] *= LEVELS
        if not self.clip:
            return numbers
        length = self._length(layout, numbers)
        if length <= self.mu * (1 - _ABOVE):
            return numbers
        return np.trunc(numbers * (self.mu * (1 - _ABOVE) / length)).astype(np.int64)

    def _length(self, layout: Layout, numbers: Whole) -> float:
        """How far these numbers move the sum, in deviations."""
        squares = (
            float((numbers[at].astype(np.float64) ** 2).sum()) / (variance - LOST)
            for at, variance in self._places(layout)
        )
        return math.sqrt(sum(squares))

    def added(
        self,
        layout: Layout,
        numbers: Whole,
        entropy: Entropy = secrets.token_bytes,
        shares: int = 1,
    ) -> Whole:
        """The numbers with the noise of one of `shares`: so many together have all of it."""
        self.check(layout)
        noisy = numbers.copy()
        for at, variance in self._places(layout):
            own = -(-variance // shares)
            noisy[at] += discrete_gaussian(own, len(numbers[at]), entropy)
        return noisy

    def _places(self, layout: Layout) -> Iterator[tuple[Any, int]]:
        """Which numbers of the vector have which variance."""
        end = 0
        for name, shape in layout.parts.items():
            start, end = end, end + math.prod(shape)
            if name != "a":
                yield slice(start, end), self.variances["counts" if name == "counts" else "sums"]
                continue
            d, diagonal = layout.dimension, np.zeros(end - start, bool)
            diagonal[np.cumsum([0, *range(d, 1, -1)])] = True
            whole = self.variances["gram"]
            yield start + np.flatnonzero(diagonal), whole
            yield start + np.flatnonzero(~diagonal), -(-(whole - LOST) // 2) + LOST

    def check_room(self, copies: float) -> None:
        """Refuse noise that could leave 63 bits when so many copies of it are added."""
        if REACH**2 * max(self.variances.values()) * copies > _ROOM**2:
            raise Abort(
                "overflow", "noise: expected sums and noise within 63 bits; give a larger ε"
            )

    # -- what comes out ------------------------------------------------------------------------

    def restored(self, layout: Layout, numbers: Whole, copies: float = 1.0) -> NoisySums:
        """The statistic of a noisy vector; `copies` of the noise are in it."""
        tables, end = {}, 0
        for name, shape in layout.parts.items():
            start, end = end, end + math.prod(shape)
            tables[{"a": "gram", "b": "sums"}.get(name, name)] = numbers[start:end].reshape(shape)
        variances = {part: variance * copies for part, variance in self.variances.items()}
        return NoisySums(layout.dimension, layout.classes, tables, variances)

    # -- as data -------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        plain = {"variances": dict(self.variances), "mu": self.mu, "clip": self.clip}
        some = {"colluding": self.colluding, "rows": self.rows}
        return plain | {name: value for name, value in some.items() if value is not None}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Noise:
        """The inverse of `to_plain`; refused when it is something else."""
        try:
            variances = {str(part): value for part, value in plain["variances"].items()}
            colluding, rows = plain.get("colluding"), plain.get("rows")
            for number, least in ((colluding, 0), (rows, 1)):
                if number is not None and (type(number) is not int or number < least):
                    raise ValueError(number)
            return cls(variances, float(plain["mu"]), bool(plain["clip"]), colluding, rows)
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            if isinstance(error, WireError):
                raise
            raise Abort("noise", "noise: expected variances, mu and clip") from None

    def to_text(self) -> bytes:
        return json.dumps(self.to_plain(), sort_keys=True).encode()

    @classmethod
    def from_text(cls, text: bytes) -> Noise:
        try:
            return cls.from_plain(json.loads(text))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
            raise Abort("noise", "noise: expected JSON") from None


def check_classes(labels: Any, classes: Any) -> None:
    """Refuse samples of a class that is not on the public list, without naming it."""
    if not np.isin(labels, classes).all():
        raise HeadstartError(
            f"classes: expected samples of the {len(classes)} classes agreed beforehand, got others"
        )

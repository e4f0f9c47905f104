"""The residual ridge: what the global head W* leaves unexplained of a client's own samples.

    min_V ‖R − ZV‖² + μ‖V‖²,  R = Y − s·ZW*:   V = Zᵀ(ZZᵀ + μI)⁻¹R,  e_i = (R − ZV)_i/(1 − h_ii)

One eigendecomposition, n×n or d×d, whichever is smaller, serves every μ; e_i are the residuals of
leaving each sample out. The new head is W* + V/s, with the local prior on its scores.

- Only differences of a sample's scores decide: the rows of Y and of ZW* are centred over the
  client's classes, and s is the one number that then brings ZW* nearest to Y. So heads of any
  scale (unit columns, class means, discriminants) meet one-hot labels in their own units.
- Z and R are centred over samples. That leaves class offsets to the prior, which knows how often a
  class occurs; V then explains where a client's classes lie (uncentred, they count twice).
- W* was solved from these samples too and knows their labels; its `Leverage` takes them out of its
  scores. Without it a head of high leverage seems to need no correction at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError
from headstart.heads.leverage import Leverage
from headstart.heads.linear import LinearHead

Array = NDArray[np.float64]
GRID = np.logspace(4, -2, 13)  # of μ, in units of the samples' mean squared norm; largest first
_AGREES = 0.1  # a head that contradicts a client (s ≤ 0) is kept, but V may overrule it
_ZERO = 1e-12  # of the largest eigenvalue: what is below is a direction no sample has


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Centred features Z = P·Qᵀ, PᵀP = diag(values): for every μ at once."""

    mean: Array
    basis: Array  # Q, d×r, orthonormal
    coordinates: Array  # P, n×r
    values: Array  # r, above 0

    @property
    def unit(self) -> float:
        """The mean squared norm of a centred sample; 0 when samples do not differ."""
        return float(self.values.sum() / len(self.coordinates))

    def weights(self, residual: Array, mu: float) -> Array:
        """V, d×C. The residual need not be centred: P is orthogonal to constants."""
        return self.basis @ ((self.coordinates.T @ residual) / (self.values + mu)[:, None])

    def left_out(self, residual: Array, mu: float) -> Array:
        """What V and a class offset, fitted without sample i, leave of its residual."""
        shrunk = 1.0 / (self.values + mu)
        centred = residual - residual.mean(axis=0)
        fit = self.coordinates @ ((self.coordinates.T @ centred) * shrunk[:, None])
        hat = (self.coordinates**2) @ shrunk + 1.0 / len(residual)
        return np.asarray((centred - fit) / (1.0 - hat)[:, None])


def spectrum(features: Array) -> Spectrum:
    """From the Gram matrix of samples, or of dimensions where they are fewer."""
    mean = features.mean(axis=0)
    z = features - mean
    few = len(z) <= z.shape[1]
    values, vectors = scipy.linalg.eigh(
        z @ z.T if few else z.T @ z, check_finite=False, driver="evd"
    )
    kept = values > _ZERO * max(float(values[-1]), np.finfo(np.float64).tiny)
    values, vectors = values[kept], vectors[:, kept]
    roots = np.sqrt(values)
    if few:
        return Spectrum(mean, z.T @ (vectors / roots), vectors * roots, values)
    return Spectrum(mean, vectors, z @ vectors, values)


@dataclass(frozen=True)
class Choice:
    """A μ, infinite for no change, and how it does with each sample left out."""

    mu: float
    hits: int
    loss: float


def choose(candidates: list[Choice]) -> Choice:
    """The most hits, then the lowest loss, then the largest μ (they come largest first).

    Accuracy is the goal, but a client's few samples leave it tied between several μ, often
    with no change, which stays the choice unless a sample or the loss speaks against it. Compared
    on training parts split once more (CIFAR-100, PACS, digits), not on any test: hits alone gain
    as much or less everywhere, as ties keep the old head; cross-entropy alone gains less on
    CIFAR-100 and two points less on PACS by domain (but more where its domains are cut into small
    clients); squared error hurts more clients; a bar of two standard errors of the gain leaves
    nearly every CIFAR-100 client as it was.
    """
    return min(candidates, key=lambda candidate: (-candidate.hits, candidate.loss, -candidate.mu))


@dataclass(frozen=True, eq=False)
class Problem:
    """One client's regression: the head with prior, and what the head without leaves over."""

    head: LinearHead
    spectrum: Spectrum
    scores: Array  # with prior, of the client's samples, as if each had been left out of W*
    truth: NDArray[np.intp]
    residual: Array
    scale: float  # s; 0: there is nothing to regress

    def candidates(self) -> list[Choice]:
        """No change, and every μ of the grid."""
        candidates = [self._score(np.inf, self.scores)]
        if self.scale > 0:
            candidates += [self._score(mu, self._left_out(mu)) for mu in GRID * self.spectrum.unit]
        return candidates

    def with_mu(self, mu: float) -> LinearHead:
        """W* + V/s with the prior; of an infinite μ, the head with prior itself."""
        if not np.isfinite(mu):
            return self.head
        change = self.spectrum.weights(self.residual, mu) / self.scale
        return replace(
            self.head,
            weights=self.head.weights + change.T,
            bias=self.head.bias - self.spectrum.mean @ change,
        )

    def _left_out(self, mu: float) -> Array:
        """Scores with V of the others: R_i − e_i less the others' mean residual, their offset."""
        n, r = len(self.residual), self.residual
        offset = (r.sum(axis=0) - r) / (n - 1)
        # e is R_i less offset and V of the others: what V alone adds is R − e − offset.
        return self.scores + (r - self.spectrum.left_out(r, mu) - offset) / self.scale

    def _score(self, mu: float, scores: Array) -> Choice:
        hits = int((scores.argmax(axis=1) == self.truth).sum())
        logs = scipy.special.log_softmax(scores / (self.head.temperature or 1.0), axis=1)
        return Choice(float(mu), hits, -float(logs[np.arange(len(logs)), self.truth].sum()))


def problem(
    start: LinearHead, prior: LinearHead, features: ArrayLike, labels: ArrayLike, leverage: Leverage
) -> Problem:
    """`own`: the head restricted to the client's classes; `prior`: the same with its prior."""
    z, y = np.asarray(features), np.asarray(labels)
    scores = start.scores(z)  # which checks the features
    if len(y) != len(scores) or not np.isin(y, start.classes).all():
        raise DataError(
            f"labels: expected one per sample ({len(scores)}), of the head's {len(start.classes)} "
            f"classes, got {len(y)}"
        )
    truth = np.searchsorted(start.classes, y)
    plain = leverage.left_out(scores, truth)
    mapped = np.asarray(start.feature_map(z) if start.feature_map else z, np.float64)
    wanted = _rows(np.eye(len(start.classes))[truth])
    given = _rows(plain)
    scale = _scale(wanted, given)
    return Problem(
        prior,
        spectrum(mapped),
        plain + (prior.bias - start.bias),
        truth,
        wanted - scale * given,
        scale if len(start.classes) > 1 and len(y) > 1 else 0.0,
    )


def _scale(wanted: Array, given: Array) -> float:
    """s = ⟨Y, S⟩/⟨S, S⟩ = cos(Y, S)·‖Y‖/‖S‖, the cosine of at least _AGREES; 0 where S is 0."""
    y, s = float(np.linalg.norm(wanted)), float(np.linalg.norm(given))
    if not (y > 0 and s > 0):
        return 0.0
    return max(float((wanted * given).sum()) / (y * s), _AGREES) * y / s


def _rows(scores: Array) -> Array:
    return scores - scores.mean(axis=1, keepdims=True)

"""The two shapes of second moments: a triangular factor (few samples) and a Gram matrix (many)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from headstart.errors import DataError, WireError
from headstart.labels import Labels
from headstart.statistics import exact as lattices
from headstart.statistics import wire
from headstart.statistics.base import Slots, cast, remaining, row_scale
from headstart.statistics.exact import Lattice
from headstart.statistics.rotation import haar, seed_of, triangular

Array = NDArray[Any]
BUFFER_BYTES = 2**25
_SINGULAR = 1e-9  # of a pivot, in units of A_ii: below float32, for which roots are made


@dataclass(frozen=True)
class Factor:
    """One client's R: `z` its trapezoid (packed, or whole int8 rows), `scale` a factor a row."""

    dimension: int
    classes: Labels
    counts: NDArray[np.int64]
    z: Array
    y: Array
    scale: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __bool__(self) -> bool:
        return True  # without rows too

    def unpack(self, out: NDArray[np.float64]) -> None:
        """R_z, as float64, into `out`."""
        n, d, z = len(self), self.dimension, self.z
        if z.ndim == 2:
            out[:] = z
        else:
            out[:, :n] = 0.0
            end = 0
            for i in range(n):
                start, end = end, end + d - i
                out[i, i:] = z[start:end]
        if self.scale is not None:
            out *= self.scale[:, None]

    def rows(self) -> NDArray[np.float64]:
        out = np.empty((len(self), self.dimension))
        self.unpack(out)
        return out

    def labels(self) -> NDArray[np.float64]:
        return self.y.astype(np.float64)


@dataclass(frozen=True)
class Gram:
    """A (upper triangle valid), B and g, in float64, or in int64 on a lattice."""

    classes: Labels
    counts: NDArray[np.int64]
    a: Array
    b: Array

    @property
    def dimension(self) -> int:
        return len(self.a)


def whole(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Nearest whole numbers; far from them means that a factor was not one of lattice points."""
    rounded = np.rint(values)
    np.subtract(values, rounded, out=values)
    if max(values.max(initial=0.0), -values.min(initial=0.0)) > 0.25:
        raise WireError("integral", "exact factor: its products are not whole numbers")
    return rounded


def _one_hot(y: Labels) -> tuple[Labels, NDArray[np.int64], NDArray[np.intp]]:
    classes, inverse, counts = np.unique(y, return_inverse=True, return_counts=True)
    return classes, counts.astype(np.int64), inverse.reshape(-1)


def factor_of(
    z: NDArray[np.floating], y: Labels, lattice: Lattice | None, secret: bytes | None
) -> Factor:
    """R of the rotated samples. Sorted first: the order of a client's samples leaves no trace."""
    rows = lattice.quantize(z) if lattice else z.astype(np.float64)
    rows += 0.0  # −0 and 0 are one value
    classes, counts, inverse = _one_hot(y)
    order = sorted(range(len(rows)), key=lambda i: (inverse[i], rows[i].tobytes()))
    rows, inverse = rows[order], inverse[order]
    hot = np.zeros((len(rows), len(classes)))
    hot[np.arange(len(rows)), inverse] = 1.0
    key = seed_of(secrets.token_bytes(32) if secret is None else secret, (rows, inverse))
    rz, ry = triangular(rows, hot, key)
    return Factor(z.shape[1], classes, counts, _packed(rz), ry)


def gram_of(
    z: NDArray[np.floating], y: Labels, lattice: Lattice | None, change: Callable[[Array], Array]
) -> Gram:
    """A and B by one SYRK and one sorted sum a chunk."""
    d = change(z[:1]).shape[1]
    classes, counts, inverse = _one_hot(y)
    a, b = np.zeros((d, d)), np.zeros((len(classes), d))
    chunk = max(1024, min(BUFFER_BYTES // (8 * d), lattices.CHUNK))
    total = np.zeros((d, d), np.int64)
    for start in range(0, len(z), chunk):
        rows = change(z[start : start + chunk])
        rows = lattice.quantize(rows) if lattice else np.ascontiguousarray(rows, np.float64)
        scipy.linalg.blas.dsyrk(1.0, rows.T, beta=1.0, c=a.T, lower=1, overwrite_c=1)
        hot = np.ones(len(rows)), inverse[start : start + chunk], np.arange(len(rows) + 1)
        b += np.asarray(scipy.sparse.csr_array(hot, shape=(len(rows), len(classes))).T @ rows)
        if lattice:
            total += a.astype(np.int64)
            a[:] = 0.0
    if lattice:
        lattices.check_total(len(z))
        return Gram(classes, counts, total, b.astype(np.int64))
    return Gram(classes, counts, a, b)


def _packed(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The trapezoid row by row, without its zeros."""
    if not len(rows):
        return np.zeros(0)
    return np.concatenate([row[i:] for i, row in enumerate(rows)])


def joined(dimension: int, factors: list[Factor]) -> Factor:
    """One factor for few small clients. Its rotation is keyed by the rows, which stay here."""
    fold = Slots()
    slots = [fold.places(f.classes) for f in factors]
    classes, order = fold.sorted()
    rows = np.concatenate([f.rows() for f in factors] or [np.zeros((0, dimension))])
    hot, counts = np.zeros((len(rows), len(fold))), np.zeros(len(fold), np.int64)
    at = 0
    for factor, place in zip(factors, slots, strict=True):
        hot[at : at + len(factor), place] = factor.labels()
        counts[place] += factor.counts
        at += len(factor)
    rz, ry = triangular(rows, hot[:, order], seed_of(b"joined", (rows,)))
    return Factor(dimension, classes, counts[order], _packed(rz), ry)


def root(gram: Gram) -> Factor:
    """A factor of A: a function of (A, B, g) alone.

    A = LLᵀ without the features that are always zero; pivoted, when A is singular otherwise. (In
    units of A_ii, so that no feature's scale decides about another.)
    """
    order = np.flatnonzero(np.diagonal(gram.a))
    rank, n, a = len(order), int(gram.counts.sum()), gram.a.T.astype(np.float64)
    size = np.sqrt(np.diagonal(a)[order])
    lower, failed = scipy.linalg.lapack.dpotrf(a[np.ix_(order, order)], lower=1)
    if failed or rank > n or not (np.diagonal(lower) > np.sqrt(_SINGULAR) * size).all():
        return _pivoted_root(gram, a[np.ix_(order, order)] / size / size[:, None], order, size)
    rz = np.zeros((rank, gram.dimension))
    rz[:, order] = lower.T
    b = gram.b.T[order].astype(np.float64)
    ry = scipy.linalg.solve_triangular(lower, b, lower=True)
    return Factor(gram.dimension, gram.classes, gram.counts, _packed(rz), _shrunk(ry, gram.counts))


def _pivoted_root(
    gram: Gram, scaled: Array, order: NDArray[np.intp], size: NDArray[np.float64]
) -> Factor:
    lower, pivot, rank, _ = scipy.linalg.lapack.dpstrf(scaled, tol=_SINGULAR, lower=1)
    rank, pivot = min(int(rank), int(gram.counts.sum())), pivot - 1
    lower = np.tril(lower)[:, :rank]
    rz = np.zeros((rank, gram.dimension))
    rz[:, order[pivot]] = lower.T * size[pivot]
    b = gram.b.T[order[pivot[:rank]]].astype(np.float64) / size[pivot[:rank], None]
    ry = scipy.linalg.solve_triangular(lower[:rank], b, lower=True)
    q, r = np.linalg.qr(rz)  # back to a trapezoid in the features' own order
    sign = np.where(np.diagonal(r) < 0, -1.0, 1.0)
    rz, ry = r * sign[:, None], (q * sign).T @ ry
    return Factor(gram.dimension, gram.classes, gram.counts, _packed(rz), _shrunk(ry, gram.counts))


def _shrunk(ry: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """R_y with R_yᵀR_y ≤ diag g, which the rounding of a nearly singular A can have broken."""
    size = np.sqrt(counts)
    y = ry / size
    gap = np.eye(min(y.shape)) - (y @ y.T if len(y) < len(counts) else y.T @ y)
    if positive(gap, 1e-10):
        return ry
    u, s, v = np.linalg.svd(y, full_matrices=False)
    return np.asarray((u * np.minimum(s, 1.0)) @ v * size)


def positive(lower: NDArray[np.float64], shift: float) -> bool:
    """Whether the symmetric matrix of this lower triangle plus a small shift is positive."""
    shifted = lower.copy()
    shifted[np.diag_indices_from(shifted)] += shift
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return False
    return True


def difference(total: Gram, part: Gram) -> Gram:
    """total − part; a class whose count returns to zero leaves."""
    slots, counts = remaining(total.classes, total.counts, part.classes, part.counts)
    b, a = total.b.copy(), total.a - part.a
    b[slots] -= part.b
    left = counts > 0
    squares = np.diagonal(a)
    strange = b[~left].any() or (squares < 0).any() or (squares.any() and not left.any())
    if a.dtype.kind == "i" and strange:
        raise DataError("subtract: expected a part of this sum, got other samples than it has")
    return Gram(total.classes[left], counts[left], a, b[left])


def gram_arrays(gram: Gram) -> dict[str, Array]:
    """Return the arrays of a Gram matrix's message; A is packed by its upper triangle."""
    packed = np.concatenate([row[i:] for i, row in enumerate(gram.a)])
    return {
        "classes": wire.pack_labels(gram.classes),
        "counts": gram.counts,
        "a": packed,
        "b": gram.b,
    }


def factor_arrays(factor: Factor, precision: str) -> dict[str, Array]:
    """Return the arrays of a factor's message, at this precision."""
    arrays: dict[str, Array] = {
        "classes": wire.pack_labels(factor.classes),
        "counts": factor.counts,
    }
    whole_rows = factor.z.ndim == 2
    if factor.scale is not None and (precision != "int8" or whole_rows):
        # A coarse factor travels on as it came: more digits would be invented.
        z = {"rows" if whole_rows else "z": factor.z}
        return arrays | z | {"scale": factor.scale, "y": factor.y}
    if precision in ("float64", "float32"):
        return arrays | {"z": cast("z", factor.z, precision), "y": cast("y", factor.y, precision)}
    rows, labels = factor.rows(), factor.labels()
    if precision == "int8" and len(rows):  # rotated rows have equal norms: one byte suits them all
        q = haar(seed_of(b"int8", (rows,)), len(rows))
        rows, labels = q @ rows, q @ labels
    scale = row_scale(rows, precision)
    arrays |= {"scale": scale, "y": labels.astype(np.float16)}
    rows /= scale[:, None]
    if precision == "int8":
        return arrays | {"rows": np.rint(rows).clip(-127, 127).astype(np.int8)}
    return arrays | {"z": _packed(rows).astype(np.float16)}

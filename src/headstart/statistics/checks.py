"""What a receiver checks: an upload that no dataset can have produced is refused, with a code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import WireError
from headstart.labels import Labels
from headstart.statistics.base import check_norms, check_scales, lattice_norm, rounding
from headstart.statistics.exact import LEVELS, Lattice
from headstart.statistics.parts import Factor, Gram, positive, whole
from headstart.statistics.wire import CLASSES, Arrays, Field, Limits, Schema

Array = NDArray[Any]

SCHEMAS: dict[str, Schema] = {
    "factor": {
        "dimension": Field(("I64",), ()),
        "classes": CLASSES,
        "counts": Field(("I64",), ("C",)),
        "z": Field(("F64", "F32", "F16"), ("Z",), optional=True),
        "rows": Field(("I8",), ("r", "d"), optional=True),
        "scale": Field(("F32",), ("r",), optional=True),
        "y": Field(("F64", "F32", "F16"), ("r", "C")),
        "bound": Field(("F64",), (), optional=True),
    },
    "gram": {
        "dimension": Field(("I64",), ()),
        "classes": CLASSES,
        "counts": Field(("I64",), ("C",)),
        "a": Field(("F64", "I64"), ("A",)),
        "b": Field(("F64", "I64"), ("C", "d")),
        "bound": Field(("F64",), (), optional=True),
    },
}
_LARGEST = 1e150  # squares of larger numbers leave float64
_SMALLEST = 1e-290  # of a sum of squares: below it, rounding is no longer relative
_U = 2.0**-53
_UNITS = {8: _U, 4: 2.0**-24, 2: 2.0**-11}  # of rounding, by the bytes of a number
_BOUND = 1 + 1e-6  # float32's rounding of the largest feature, and of a sum of many
# How many directions more than samples an ill-conditioned A can seem to have, through float32.
_RANK = 1e-3


def read_factor(
    dimension: int, classes: Labels, counts: NDArray[np.int64], arrays: Arrays
) -> Factor:
    """Return the factor in a message's arrays; refuse shapes and dtypes that do not fit."""
    y = arrays["y"]
    r, n = len(y), int(counts.sum())
    if dimension < 1 or r > min(n, dimension):
        raise WireError("shape", f"factor: expected at most {min(n, dimension)} rows, got {r}")
    if ("z" in arrays) == ("rows" in arrays):
        raise WireError("arrays", "factor: expected either z or rows")
    z = arrays["z"] if "z" in arrays else arrays["rows"]
    expected = (r * dimension - r * (r - 1) // 2,) if z.ndim == 1 else (r, dimension)
    if z.shape != expected or y.shape != (r, len(classes)):
        raise WireError("shape", f"factor: expected {expected} numbers, got {z.shape}")
    low = z.dtype.itemsize < 4
    if low != ("scale" in arrays) or (low and y.dtype != np.float16):
        raise WireError("arrays", "factor: float16 and int8 rows come with a scale, others without")
    if (not low and y.dtype != z.dtype) or ("bound" in arrays and z.dtype != np.float64):
        raise WireError("dtype", f"factor: z is {z.dtype}, y is {y.dtype}")
    scale = arrays.get("scale")
    if scale is not None and not (scale > 0).all():
        raise WireError("impossible", "scale: expected positive numbers")
    return Factor(dimension, classes, counts, z, y, scale)


def check_factor(factor: Factor, lattice: Lattice | None, limits: Limits) -> None:
    """[A Bᵀ; B diag g] = RᵀR + (0 ⊕ diag g − R_yᵀR_y): only the last part can be impossible.

    Nothing here is more than r times the work of reading the message; A is never formed.
    """
    for name, array in (("z", factor.z), ("y", factor.y)):
        if max(float(array.max(initial=0)), -float(array.min(initial=0))) > _LARGEST:
            raise WireError("impossible", f"{name}: numbers whose squares are not finite")
    loose = limits.total and not lattice
    if not loose:
        _check_rows(factor, lattice)
        _check_scales(factor)
    if not _fits(factor, loose):
        raise WireError("impossible", "factor: its label part does not fit the counts")
    if lattice or limits.bound is not None or limits.norm is not None:
        _check_factor_bounds(factor, lattice, limits)


def _check_rows(factor: Factor, lattice: Lattice | None) -> None:
    """A client of n ≤ d samples sends n rows; one of more sends its Gram matrix if that is exact.

    (Few rows for many samples would let each of them be larger than any sample.)
    """
    r, n, d = len(factor), int(factor.counts.sum()), factor.dimension
    if r != n and (n <= d or lattice):
        raise WireError("shape", f"factor: expected {n} rows for {n} samples, got {r}")


def _check_scales(factor: Factor) -> None:
    """A scale fits the largest number of its row: a larger one would only widen the rounding."""
    if factor.scale is not None and len(factor):
        check_scales("scale", _largest(factor), factor.z.dtype, factor.scale)


def _largest(factor: Factor) -> Array:
    """The largest number of each row, as it was sent."""
    if factor.z.ndim == 2:
        return np.abs(factor.z.astype(np.int16)).max(axis=1)
    lengths = factor.dimension - np.arange(len(factor))
    starts = np.cumsum(lengths) - lengths
    return np.asarray(np.maximum.reduceat(np.abs(factor.z.astype(np.float32)), starts))


def _fits(factor: Factor, loose: bool) -> bool:
    """Whether R_yᵀR_y is diag g (n ≤ d), or below it by a matrix of rank n − r at most.

    In units of √(g_c·g_c'), in which a number's rounding u moves an entry by 2u and eigenvalues by
    2u√m; on the smaller side of R_y, since diag g − R_yᵀR_y has the eigenvalues of I − ỸỸᵀ.
    """
    y = factor.labels() / np.sqrt(factor.counts)
    r, classes = y.shape
    n, m = int(factor.counts.sum()), min(y.shape)
    unit = _UNITS[2] if loose else _UNITS[factor.y.dtype.itemsize]
    error = 2.5 * unit + 64 * (r + 8) * _U
    gap = np.eye(m) - (y @ y.T if r < classes else y.T @ y)
    if r == n:
        return bool((np.abs(gap) <= error).all())  # n ≥ classes: m is their number
    error *= np.sqrt(m)
    needed = classes + r - n  # directions in which the labels are all within the features
    if loose or needed <= 0:
        return positive(gap, error)
    eigenvalues = np.linalg.eigvalsh(gap)
    return bool(eigenvalues[0] >= -error and eigenvalues[needed - 1] <= _RANK)


def _check_factor_bounds(factor: Factor, lattice: Lattice | None, limits: Limits) -> None:
    rows, y, d = factor.rows(), factor.labels(), factor.dimension
    b, squares = y.T @ rows, np.einsum("ij,ij->j", rows, rows)
    if lattice:
        diagonal, sums = _whole(squares), _whole(b)
        _check_bounds(diagonal, sums, factor.counts, LEVELS)
        _check_parity(diagonal, sums.sum(axis=0))
        _check_norm(diagonal, sums, factor.counts, lattice_norm(lattice, d, limits))
        return
    # What a coarse precision may have added (Cauchy and Schwarz over the rows); a row of zeros was
    # not rounded, whatever its scale.
    moved = 0.0
    if factor.scale is not None and len(factor):
        moved = float(np.linalg.norm(rounding(factor.z, factor.scale)[_largest(factor) > 0]))
    label = 0.0 if factor.scale is None else _UNITS[2]
    slack = np.sqrt(factor.counts)[:, None] * (moved + label * np.sqrt(squares))
    least = np.maximum(np.sqrt(squares) - moved, 0.0) ** 2
    if limits.bound is not None:
        _check_bounds(
            least, np.maximum(np.abs(b) - slack, 0.0), factor.counts, limits.bound * _BOUND
        )
    _check_norm(least, np.maximum(np.abs(b) - slack, 0.0), factor.counts, _scaled(limits.norm))


def read_gram(
    dimension: int,
    classes: Labels,
    counts: NDArray[np.int64],
    arrays: Arrays,
    lattice: Lattice | None,
) -> Gram:
    """Return the Gram matrix in a message's arrays; refuse shapes and dtypes that do not fit."""
    a, b = arrays["a"], arrays["b"]
    if dimension < 1 or a.shape != (dimension * (dimension + 1) // 2,):
        raise WireError(
            "shape", f"a: expected the triangle of dimension {dimension}, got {a.shape}"
        )
    if b.shape != (len(classes), dimension):
        raise WireError("shape", f"b: expected {(len(classes), dimension)}, got {b.shape}")
    if {a.dtype.kind, b.dtype.kind} != {"i" if lattice else "f"}:
        raise WireError("dtype", f"gram: a is {a.dtype}, b is {b.dtype}, exact: {bool(lattice)}")
    dense = np.zeros((dimension, dimension), a.dtype)
    at = 0
    for i in range(dimension):
        dense[i, i:] = a[at : at + dimension - i]
        at += dimension - i
    return Gram(classes, counts, dense, np.array(b))


def check_gram(gram: Gram, lattice: Lattice | None, limits: Limits) -> None:
    """The joint Gram [A Bᵀ; B diag g] is positive and of rank n at most.

    So is A − Σ B_cB_cᵀ/g_c, of rank n − C. Judged in units of √(A_ii·A_jj), which no sender can
    choose: no feature hides behind a larger one.
    """
    diagonal, d = np.diagonal(gram.a), gram.dimension
    if diagonal.min() < 0 or diagonal.max() > _LARGEST**2:
        raise WireError("impossible", "gram: a negative or endless sum of squares")
    if lattice:
        _check_bounds(diagonal, gram.b, gram.counts, LEVELS)
        _check_parity(diagonal, gram.b.sum(axis=0))
        _check_norm(diagonal, gram.b, gram.counts, lattice_norm(lattice, d, limits))
    else:
        if limits.bound is not None:
            _check_bounds(diagonal, gram.b, gram.counts, limits.bound * _BOUND)
        _check_norm(diagonal, gram.b, gram.counts, _scaled(limits.norm))
    n, classes = int(gram.counts.sum()), len(gram.counts)
    # Sums of n products, or of none (whole numbers); of C squares; and the Cholesky's own rounding.
    summed = 0 if lattice else n
    error = (2 * d * (summed + classes + 8) + 4 * d * d) * _U
    rest, scaled = _within(gram)
    if not (np.isfinite(rest).all() and _schwarz(gram, scaled, 8 + summed)):
        raise WireError("impossible", "gram: products larger than the squares allow")
    loose = limits.total and not lattice
    if loose:  # S = R_zᵀ(I − R_y diag(g)⁻¹R_yᵀ)R_z: off by a part of A
        rest += (2.5 * _UNITS[2] * np.sqrt(min(classes, d))) * scaled
    if loose or n >= d + classes:
        sound = positive(rest, error)
    else:
        eigenvalues = np.linalg.eigvalsh(rest, UPLO="L")
        sound = n >= classes and eigenvalues[0] >= -error
        sound = sound and eigenvalues[::-1][n - classes] <= error
    if not sound:
        raise WireError("impossible", "gram: not the moments of any samples")


def _within(gram: Gram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A − Σ B_cB_cᵀ/g_c and A, both in units of √(A_ii·A_jj); lower triangles."""
    size = np.sqrt(np.maximum(np.diagonal(gram.a).astype(np.float64), _SMALLEST))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = gram.a.T / size / size[:, None]
        means = gram.b / size / np.sqrt(gram.counts)[:, None]
        return scaled - np.tril(means.T @ means), scaled


def _schwarz(gram: Gram, scaled: NDArray[np.float64], sums: int) -> bool:
    """|A_ij|² ≤ A_ii·A_jj; nothing at all where a feature has no squares."""
    if max(float(scaled.max()), -float(scaled.min())) > 1 + sums * 2 * _U:
        return False
    zero = np.diagonal(gram.a) == 0
    if gram.a.dtype.kind == "f" or not zero.any():
        return True
    return not (gram.a[zero].any() or gram.a[:, zero].any() or gram.b[:, zero].any())


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    if np.abs(values).max(initial=0.0) > 2.0**62:
        raise WireError("bound", "exact factor: its products leave 62 bits")
    try:
        return whole(values.copy()).astype(np.int64)
    except WireError:
        raise WireError("integral", "exact factor: its products are not whole numbers") from None


def _check_parity(diagonal: Array, sums: Array) -> None:
    """x² ≡ x (mod 2), so diag(A) ≡ Σ_c B_c; a check that survives sums and masks."""
    if ((diagonal - sums) & 1).any():
        raise WireError("parity", "exact statistics: diag(A) and Σ B differ modulo 2")


def _check_bounds(diagonal: Array, b: Array, counts: NDArray[np.int64], bound: float) -> None:
    """A_jj ≤ nρ² for every feature, and |B_cj| ≤ g_cρ. (Without `abs`: −2⁶³ has none.)"""
    n = int(counts.sum())
    if (diagonal > n * bound**2).any():
        raise WireError("bound", f"A: squares beyond those of {n} samples within ±{bound:g}")
    most = counts[:, None] * bound
    if (b > most).any() or (b < -most).any():
        raise WireError("bound", f"B: a class sum is beyond its samples within ±{bound:g}")


def _check_norm(diagonal: Array, b: Array, counts: NDArray[np.int64], norm: float | None) -> None:
    """trace(A) ≤ nρ₂² and ‖B_c‖ ≤ g_cρ₂."""
    if norm is None:
        return
    n = int(counts.sum())
    if float(diagonal.sum(dtype=np.float64)) > n * norm**2:
        raise WireError("bound", f"A: its trace is beyond {n} samples of norm {norm:g}")
    check_norms("B", b, counts, norm)


def _scaled(norm: float | None) -> float | None:
    return None if norm is None else norm * _BOUND

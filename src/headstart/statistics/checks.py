"""What a receiver checks: an upload that no dataset can have produced is refused, with a code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import WireError
from headstart.labels import Labels
from headstart.statistics.base import rounding
from headstart.statistics.exact import LEVELS, Lattice
from headstart.statistics.parts import Factor, Gram, whole
from headstart.statistics.wire import CLASSES, Arrays, Field, Schema

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
# How far rounding can have moved R_yᵀR_y, relative to the counts: of a message at float16, of a sum
# of such messages (2⁻¹⁰), and on a lattice (not at all).
_COARSE, _SUM, _EXACT = 2e-2, 2e-3, 1e-6
_LARGEST = 1e150  # squares of larger numbers leave float64


def read_factor(
    dimension: int, classes: Labels, counts: NDArray[np.int64], arrays: Arrays
) -> Factor:
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


def check_factor(factor: Factor, lattice: Lattice | None, bound: float | None) -> None:
    """R_yᵀR_y is diag g (or below it, once residual rows are gone); no cubic work in d."""
    y, g = factor.labels(), factor.counts.astype(np.float64)
    for name, array in (("z", factor.z), ("y", factor.y)):
        if max(float(array.max(initial=0)), -float(array.min(initial=0))) > _LARGEST:
            raise WireError("impossible", f"{name}: numbers whose squares are not finite")
    relative = _EXACT if lattice else _SUM if factor.scale is None else _COARSE
    tolerance = relative * (1.0 + g.max(initial=0.0))
    gap = np.diag(g) - y.T @ y
    if len(factor) == int(factor.counts.sum()):
        sound = bool((np.abs(gap) <= tolerance).all())
    else:
        sound = _positive(gap, tolerance)
    if not sound:
        raise WireError("impossible", "factor: its label part does not fit the counts")
    if lattice is None and bound is None:
        return
    rows = factor.rows()
    b = y.T @ rows
    squares = np.einsum("ij,ij->j", rows, rows)
    if lattice:
        _check_whole(squares, b)
    trace, d = float(squares.sum()), factor.dimension
    # What a coarse precision may have added (Cauchy and Schwarz over the rows).
    moved = float(np.linalg.norm(rounding(factor.z, factor.scale)))
    label = 0.0 if factor.scale is None else 2.0**-11
    more_b = np.sqrt(g)[:, None] * (moved + label * np.sqrt(squares))
    more_trace = 2 * moved * np.sqrt(d * trace) + d * moved**2
    largest = LEVELS if lattice else bound or 0.0
    sums = np.maximum(np.abs(b) - more_b, 0.0)
    _check_bound(trace - more_trace, sums, factor.counts, largest)


def read_gram(
    dimension: int,
    classes: Labels,
    counts: NDArray[np.int64],
    arrays: Arrays,
    lattice: Lattice | None,
) -> Gram:
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


def check_gram(gram: Gram, lattice: Lattice | None, bound: float | None) -> None:
    """The joint Gram [A Bᵀ; B diag g] is positive: so is A − Σ B_cB_cᵀ/g_c (up to rounding)."""
    shown = gram.counts > 0
    if gram.b[~shown].any():
        raise WireError("impossible", "gram: sums for a class without samples")
    squares = np.diagonal(gram.a).astype(np.float64)
    if (squares < 0).any() or (squares > _LARGEST**2).any():
        raise WireError("impossible", "gram: a negative or endless sum of squares")
    if lattice:
        _check_parity(np.diagonal(gram.a), gram.b.sum(axis=0))
        _check_bound(float(squares.sum()), gram.b, gram.counts, LEVELS)
    elif bound is not None:
        _check_bound(float(squares.sum()), gram.b, gram.counts, bound)
    with np.errstate(over="ignore", invalid="ignore"):
        means = gram.b[shown].astype(np.float64) / np.sqrt(gram.counts[shown])[:, None]
        rest = gram.a.T.astype(np.float64) - np.tril(means.T @ means)
        slack = (1e-9 if lattice else _SUM) * float(squares.sum())
    if not _positive(rest, slack + np.finfo(float).tiny):
        raise WireError("impossible", "gram: not the moments of any samples")


def _check_whole(squares: NDArray[np.float64], b: NDArray[np.float64]) -> None:
    try:
        diagonal, sums = whole(squares.copy()), whole(b.copy())
    except WireError:
        raise WireError("integral", "exact factor: its products are not whole numbers") from None
    _check_parity(diagonal.astype(np.int64), sums.sum(axis=0).astype(np.int64))


def _check_parity(diagonal: Array, sums: Array) -> None:
    """x² ≡ x (mod 2), so diag(A) ≡ Σ_c B_c; a check that survives sums and masks."""
    if ((diagonal - sums) & 1).any():
        raise WireError("parity", "exact statistics: diag(A) and Σ B differ modulo 2")


def _check_bound(trace: float, b: Array, counts: NDArray[np.int64], bound: float) -> None:
    slack = 1 + 1e-6
    n = int(counts.sum())
    if trace > n * b.shape[1] * bound**2 * slack:
        raise WireError("bound", f"A: its trace is beyond {n} samples within ±{bound:g}")
    if (np.abs(b) > counts[:, None] * bound * slack + 1e-9).any():
        raise WireError("bound", f"B: a class sum is beyond its samples within ±{bound:g}")


def _positive(lower: NDArray[np.float64], shift: float) -> bool:
    """Whether the symmetric matrix of this lower triangle plus a small shift is positive."""
    shifted = lower.copy()
    shifted[np.diag_indices_from(shifted)] += shift
    if not np.isfinite(shifted).all():
        return False
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return False
    return True

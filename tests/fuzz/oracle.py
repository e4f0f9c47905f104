"""Whether some samples could have given a message, decided without the checks under test.

Numbers are taken from the bytes by the safetensors library and turned into fractions; nothing of
`headstart` is used. A message is possible if

  [A Bᵀ; B diag g]  is positive, and of rank n at most (LDLᵀ in fractions),
  A_jj ≤ nρ², |B_cj| ≤ g_cρ; with a norm, tr A ≤ nρ₂² and ‖B_c‖ ≤ g_cρ₂,

which for real numbers is also sufficient but for the bounds. Exact messages are held to it as they
stand, the products of a factor rounded to whole numbers first; a float of any size is a fraction.
Floats get the rounding that their precision excuses, stated here and nowhere else:

  PSD    R_yᵀR_y ≤ (1 + ε)diag g for a factor, A − Σ B_cB_cᵀ/g_c ≥ −τ·diag A for a Gram matrix,
  rank   n directions have all but a part `RANK` of the joint Gram (in units of its diagonal),
  bounds a part `BOUND` more, and what half a unit of a coarse row can add.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import safetensors.numpy

EPSILON = {"float64": 1e-11, "float32": 1e-6, "float16": 5e-3}  # of numbers of the labels' type
TAU, RANK, BOUND = 1e-12, 2e-3, 1e-5
LEVELS = 2**15 - 1


def why_impossible(message: bytes, bound: float | None, norm: float | None) -> str:
    """What no samples can have; "" if some can have sent this. `bound` and `norm` as agreed."""
    arrays = safetensors.numpy.load(message)
    if "means" in arrays:
        return _means(arrays, bound, norm)
    if "a" in arrays or "y" in arrays:
        return _moments(arrays, bound, norm)
    return _sums(arrays, bound, norm)


# -- second moments ------------------------------------------------------------------------------


def _moments(arrays: dict[str, Any], bound: float | None, norm: float | None) -> str:
    counts = [int(c) for c in arrays["counts"]]
    if any(c < 1 for c in counts):
        return "a class without samples"
    exact = "bound" in arrays
    d, n = int(arrays["dimension"]), sum(counts)
    if "a" in arrays:
        a, b = _packed(arrays["a"], d), _fractions(arrays["b"])
        coarse = 0.0
    else:
        rows, y, coarse = _factor(arrays, d)
        a, b = _product(rows, rows, d, d), _product(y, rows, len(counts), d)
        labels = _product(y, y, len(counts), len(counts))
        if exact:
            a, b = _rounded(a), _rounded(b)
        gap = [
            [g * (i == j) - labels[i][j] for j, _ in enumerate(counts)]
            for i, g in enumerate(counts)
        ]
        slack = EPSILON[str(arrays["y"].dtype)]
        problem = _label_part(gap, counts, len(rows), n, slack)
        if problem:
            return problem
    if exact:
        joint = _joint(a, b, counts)
        rank = _rank(joint)
        if rank is None:
            return "not positive"
        if rank > n:
            return f"rank {rank} of {n} samples"
        if any(a[j][j] % 2 != sum(row[j] for row in b) % 2 for j in range(d)):
            return "parity"
    elif "a" in arrays:
        problem = _nearly(a, b, counts, n)
        if problem:
            return problem
    return _bounds(a, b, counts, arrays, bound, norm, coarse)


def _label_part(gap: list[list[Fraction]], counts: list[int], r: int, n: int, slack: float) -> str:
    """diag g − R_yᵀR_y ≥ 0, of rank n − r: with r = n it is nothing at all."""
    loose = [list(row) for row in gap]
    for i, g in enumerate(counts):
        loose[i][i] += Fraction(slack) * g * len(counts)
    if _rank(loose) is None:
        return "labels larger than the counts"
    unit = np.array([[float(x) for x in row] for row in gap]) / np.sqrt(np.outer(counts, counts))
    left = np.linalg.eigvalsh(unit)[::-1] if counts else np.zeros(0)
    beyond = left[n - r :] if n >= r else left
    if len(beyond) and beyond.max() > (slack * len(counts) if r == n else RANK):
        return "more directions than samples"
    return ""


def _nearly(a: list[list[Fraction]], b: list[list[Fraction]], counts: list[int], n: int) -> str:
    """The same for floats: in units of A_jj, with the stated slack."""
    d = len(a)
    rest = [
        [
            a[i][j] - sum(row[i] * row[j] / g for row, g in zip(b, counts, strict=True))
            for j in range(d)
        ]
        for i in range(d)
    ]
    if any(a[j][j] < 0 for j in range(d)):
        return "negative squares"
    size = np.sqrt([max(float(a[j][j]), 1e-290) for j in range(d)])
    unit = np.array([[float(x) for x in row] for row in rest]) / np.outer(size, size)
    left = np.sort(np.linalg.eigvalsh(unit))[::-1]
    for j in range(d):
        rest[j][j] += Fraction(TAU) * n * a[j][j] + Fraction(1e-280)
    if _rank(rest) is None:
        return "not positive"
    spare = n - len(counts)
    if spare < 0 or (spare < d and left[spare] > 1e-10 * n):
        return "more directions than samples"
    return ""


def _bounds(
    a: list[list[Fraction]],
    b: list[list[Fraction]],
    counts: list[int],
    arrays: dict[str, Any],
    bound: float | None,
    norm: float | None,
    coarse: float,
) -> str:
    d, n, exact = len(a), sum(counts), "bound" in arrays
    step = float(arrays["bound"]) / LEVELS if exact else 1.0
    half = [(coarse + 2.0**-11 * float(a[j][j]) ** 0.5) if coarse else 0.0 for j in range(d)]
    for j in range(d):
        sums = [(abs(row[j]), g) for row, g in zip(b, counts, strict=True)]
        if exact and (a[j][j] > n * LEVELS**2 or any(s > g * LEVELS for s, g in sums)):
            return f"feature {j} beyond the lattice"
        if exact or bound is None:
            continue
        most = bound * (1 + BOUND)
        if float(a[j][j]) ** 0.5 > n**0.5 * most + coarse + 1e-12:
            return f"squares of feature {j} beyond the bound"
        if any(float(s) > g * most + g**0.5 * half[j] + 1e-12 for s, g in sums):
            return f"sums of feature {j} beyond the bound"
    if norm is not None:
        most = norm / step * (1 + BOUND) + (d**0.5 / 2 if exact else 0.0)
        wide = coarse * d**0.5
        if float(sum(a[j][j] for j in range(d))) ** 0.5 > n**0.5 * most + wide + 1e-9:
            return "norm"
        for row, g in zip(b, counts, strict=True):
            room = g**0.5 * sum(x * x for x in half) ** 0.5
            if float(sum(x * x for x in row)) ** 0.5 > g * most + room + 1e-9:
                return "norm of a class sum"
    return ""


def _factor(arrays: dict[str, Any], d: int) -> tuple[Any, Any, float]:
    y = _fractions(arrays["y"])
    r = len(y)
    scale = arrays.get("scale")
    scales = [Fraction(float(s)) for s in scale] if scale is not None else [Fraction(1)] * r
    if "rows" in arrays:
        rows = [
            [Fraction(int(x)) * s for x in row]
            for row, s in zip(arrays["rows"], scales, strict=True)
        ]
        half = [float(s) / 2 for s in scales]
    else:
        rows, at = [], 0
        for i in range(r):
            own = arrays["z"][at : at + d - i]
            rows.append([Fraction(0)] * i + [Fraction(float(x)) * scales[i] for x in own])
            at += d - i
        half = [float(s) * 2.0**-11 for s in scales] if scale is not None else [0.0] * r
    return rows, y, float(np.linalg.norm(half))


# -- first moments -------------------------------------------------------------------------------


def _sums(arrays: dict[str, Any], bound: float | None, norm: float | None) -> str:
    counts, exact = [int(c) for c in arrays["counts"]], "bound" in arrays
    if any(c < 1 for c in counts):
        return "a class without samples"
    d = int(arrays["dimension"])
    sums, half = _rows(arrays, "sums", len(counts))
    squares = _fractions(arrays["squares"]) if "squares" in arrays else [[] for _ in counts]
    slack = Fraction(0 if exact else BOUND)
    step = float(arrays["bound"]) / LEVELS if exact else 1.0
    largest = (
        Fraction(LEVELS) if exact else (None if bound is None else Fraction(bound) * (1 + slack))
    )
    most = None if norm is None else norm / step * (1 + BOUND) + (d**0.5 / 2 if exact else 0.0)
    for g, s, q, h in zip(counts, sums, squares, half, strict=True):
        if any(x < 0 for x in q):
            return "negative squares"
        if largest is not None and any(abs(x) > g * largest for x in s):
            return "sums beyond the bound"
        if largest is not None and any(x > g * largest**2 * (d if len(q) < d else 1) for x in q):
            return "squares beyond the bound"
        if most is not None and float(sum(x * x for x in s)) ** 0.5 > g * most + h * d**0.5 + 1e-9:
            return "norm of a sum"
        if most is not None and float(sum(q)) ** 0.5 > g**0.5 * most + 1e-9:
            return "norm of squares"
        if s and q:
            low = [max(abs(x) - Fraction(h), Fraction(0)) ** 2 for x in s]
            high = [(abs(x) + Fraction(h)) ** 2 for x in s]
            if len(q) < d:
                low, high = [sum(low)], [sum(high)]
            tiny = Fraction(0 if exact else 1e-36)
            if any(x > g * (v * (1 + slack) + tiny) for x, v in zip(low, q, strict=True)):
                return "squares smaller than the sums allow"
            if g == 1 and any(v > x * (1 + slack) + tiny for x, v in zip(high, q, strict=True)):
                return "squares of one sample"
    return ""


def _means(arrays: dict[str, Any], bound: float | None, norm: float | None) -> str:
    means, half = _rows(arrays, "means", len(arrays["counts"]))
    exact = "bound" in arrays
    if not (arrays["counts"] > 0).all():
        return "a mean of no samples"
    largest = float(arrays["bound"]) if exact else bound
    if largest is not None and any(abs(x) > largest * (1 + BOUND) for row in means for x in row):
        return "means beyond the bound"
    d = int(arrays["dimension"])
    room = d**0.5 * float(arrays["bound"]) / LEVELS / 2 if exact else 0.0
    if norm is not None:
        for row, h in zip(means, half, strict=True):
            most = (norm + room) * (1 + BOUND) + h * d**0.5
            if float(sum(x * x for x in row)) ** 0.5 > most:
                return "norm of a mean"
    return ""


def _rows(arrays: dict[str, Any], name: str, many: int) -> tuple[list[list[Fraction]], list[float]]:
    if name not in arrays:
        return [[] for _ in range(many)], [0.0] * many
    table, scale = arrays[name], arrays.get(f"{name}_scale")
    if scale is None:
        return _fractions(table), [0.0] * len(table)
    half = 0.5 if table.dtype.kind == "i" else 2.0**-11
    rows = [
        [Fraction(float(x)) * Fraction(float(s)) for x in row]
        for row, s in zip(table, scale, strict=True)
    ]
    return rows, [float(s) * half for s in scale]


# -- matrices of fractions -----------------------------------------------------------------------


def _fractions(table: Any) -> list[list[Fraction]]:
    whole = table.dtype.kind == "i"
    return [[Fraction(int(x) if whole else float(x)) for x in row] for row in table]


def _packed(a: Any, d: int) -> list[list[Fraction]]:
    full = [[Fraction(0)] * d for _ in range(d)]
    at = 0
    for i in range(d):
        for j in range(i, d):
            value = Fraction(int(a[at]) if a.dtype.kind == "i" else float(a[at]))
            full[i][j] = full[j][i] = value
            at += 1
    return full


def _product(
    left: list[list[Fraction]], right: list[list[Fraction]], height: int, width: int
) -> list[list[Fraction]]:
    """leftᵀ·right of matrices given by rows; of no rows, zeros."""
    if not left:
        return [[Fraction(0)] * width for _ in range(height)]
    columns = list(zip(*right, strict=True))
    return [
        [sum((x * y for x, y in zip(one, other, strict=True)), Fraction(0)) for other in columns]
        for one in zip(*left, strict=True)
    ]


def _rounded(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    return [[Fraction(round(x)) for x in row] for row in matrix]


def _diagonal(counts: list[int]) -> list[list[Fraction]]:
    return [[Fraction(g * (i == j)) for j in range(len(counts))] for i, g in enumerate(counts)]


def _joint(
    a: list[list[Fraction]], b: list[list[Fraction]], counts: list[int]
) -> list[list[Fraction]]:
    top = [row + [b[c][j] for c in range(len(counts))] for j, row in enumerate(a)]
    return top + [b[c] + row for c, row in enumerate(_diagonal(counts))]


def _rank(matrix: list[list[Fraction]]) -> int | None:
    """By LDLᵀ; None if the matrix is not positive (semidefinite)."""
    left, rank = [list(row) for row in matrix], 0
    while left:
        at = max(range(len(left)), key=lambda i: left[i][i])
        pivot = left[at][at]
        if pivot < 0 or any(left[i][i] < 0 for i in range(len(left))):
            return None
        if pivot == 0:
            return rank if not any(any(row) for row in left) else None
        rank += 1
        row = left[at]
        kept = [i for i in range(len(left)) if i != at]
        left = [[left[i][j] - left[i][at] * row[j] / pivot for j in kept] for i in kept]
    return rank

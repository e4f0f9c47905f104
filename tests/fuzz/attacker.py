"""An attacker who knows the schema: messages with fitting checksums, shapes and types, and numbers
that are nearly right, through admission; what is let in is judged by `oracle`, in fractions.

    python tests/fuzz/attacker.py [--messages N] [--seed S]

It begins with an honest client's statistic (every kind, precision and mode; few and many samples,
one to three classes, features of unlike scales) and changes what a liar would: more squares, more
samples, fewer rows, other labels, one unit in one product, a scale of one's own, numbers at the
bound and just beyond, −2⁶³. Exit code 1: something impossible was let in.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from oracle import why_impossible

import headstart as hs
from headstart.deploy.admission import Contract, UploadRejected, UploadValidator
from headstart.errors import WireError
from headstart.federation import steps
from headstart.statistics import wire
from headstart.statistics.checks import SCHEMAS

BOUND, NORM, ROUND, CAP = 4.0, 6.0, "fuzz", 1000
HEADS = {
    "moments": hs.Fed3R(),
    "sums": hs.FedNCM(),
    "diagonal": hs.SharedVariances(),
    "spherical": hs.SharedVariances(kind="spherical"),
    "means": hs.FedCOF(means=2),
}
PRECISIONS = ("float64", "float32", "float16", "int8")
Arrays = dict[str, Any]


@dataclass
class Figures:
    """What came of an attack."""

    messages: int = 0
    decoded: int = 0
    accepted: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    impossible: list[tuple[str, bytes]] = field(default_factory=list)

    def __str__(self) -> str:
        codes = ", ".join(f"{code} {times:,}" for code, times in self.codes.most_common())
        return (
            f"{self.messages:,} messages, {self.decoded:,} past the decoder, {self.accepted:,} "
            f"accepted, {len(self.impossible)} of them impossible; refused: {codes}"
        )


@functools.lru_cache(maxsize=512)
def validator(kind: str, exact: bool, d: int, normed: bool) -> UploadValidator:
    step = steps.measure(HEADS[kind], exact=exact, bound=BOUND)
    about = {"largest": None if exact else BOUND, "norm": NORM if normed else None}
    return UploadValidator(
        Contract(ROUND, step.params, d, samples=CAP, classes=8, attempts=None, **about)
    )


def honest(rng: np.random.Generator, kind: str, exact: bool, d: int, normed: bool) -> Arrays:
    """The arrays of an honest client's message."""
    n, classes = int(rng.integers(1, 13)), int(rng.integers(1, 4))
    z = rng.normal(size=(n, d)) * 10.0 ** -rng.integers(0, 4, size=d)
    form = rng.random()
    if form < 0.2:
        z = np.sign(z) * BOUND
    elif form < 0.35:
        z = np.tile(z[:1], (n, 1))
    elif form < 0.5:
        z = np.rint(z)
    z = np.clip(z, -BOUND, BOUND)
    if normed:
        z *= np.minimum(1.0, NORM / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-9))
    y = rng.integers(0, classes, n)
    stat = HEADS[kind].measure(z, y, exact=exact, bound=BOUND, secret=rng.bytes(4))
    precision = "float64" if exact else str(rng.choice(PRECISIONS))
    return {name: np.array(array) for name, array in stat.to_arrays(precision).items()}


# -- lies ----------------------------------------------------------------------------------------


def _numbers(rng: np.random.Generator, arrays: Arrays) -> str:
    """A name of an array of numbers, mostly not of the counts."""
    names = [n for n in arrays if arrays[n].size and n not in ("classes", "dimension", "bound")]
    return str(rng.choice(names))


def scaled(rng: np.random.Generator, arrays: Arrays) -> None:
    """A whole array, a little or a lot larger or smaller."""
    name = _numbers(rng, arrays)
    factor = 1 + float(rng.choice([-1, 1])) * 10.0 ** rng.uniform(-16, 1.5)
    _put(arrays, name, arrays[name] * factor)


def nudged(rng: np.random.Generator, arrays: Arrays) -> None:
    """One number by one or two units, or by a part of itself."""
    name = _numbers(rng, arrays)
    array = (
        arrays[name].astype(np.float64) if arrays[name].dtype.kind == "f" else arrays[name].copy()
    )
    at = int(rng.integers(array.size))
    if array.dtype.kind == "i":
        array.flat[at] += int(rng.choice([-2, -1, 1, 2]))
    else:
        array.flat[at] *= 1 + float(rng.choice([-1, 1])) * 10.0 ** rng.uniform(-16, 1)
    _put(arrays, name, array)


def extreme(rng: np.random.Generator, arrays: Arrays) -> None:
    """One number that is as far out as its type has any."""
    name = _numbers(rng, arrays)
    array = arrays[name].copy()
    odd = {"i": [-(2**63), 2**63 - 1, 2**62, -1, 0], "f": [0.0, -0.0, 1e-300, 1e30, -1e300, 6e4]}
    array.flat[int(rng.integers(array.size))] = 0
    value = rng.choice(odd[array.dtype.kind])
    with np.errstate(all="ignore"):
        limits = np.iinfo(array.dtype) if array.dtype.kind == "i" else np.finfo(array.dtype)
        array.flat[int(rng.integers(array.size))] = min(max(value, limits.min), limits.max)
    arrays[name] = array


def claimed(rng: np.random.Generator, arrays: Arrays) -> None:
    """More samples, or fewer, or another class's."""
    counts = arrays["counts"].copy()
    at = int(rng.integers(len(counts))) if len(counts) else 0
    if not len(counts):
        return
    counts[at] += rng.choice([-1, 1, 2, 10, 900])
    if rng.random() < 0.4:
        counts[int(rng.integers(len(counts)))] -= 1
    arrays["counts"] = counts


def at_the_bound(rng: np.random.Generator, arrays: Arrays) -> None:
    """A feature's squares and sums at what n samples can have, or just beyond."""
    d, n = int(arrays["dimension"]), int(np.clip(arrays["counts"].sum(), 0, 2**30))
    exact = "bound" in arrays
    largest = 2**15 - 1 if exact else BOUND
    over = int(rng.integers(-2, 3)) if exact else 10.0 ** rng.uniform(-9, 0) * rng.choice([-1, 1])
    j = int(rng.integers(d))
    if "a" in arrays:
        a = arrays["a"].copy()
        a[_place(j, j, d)] = n * largest**2 + over
        arrays["a"] = a
        if rng.random() < 0.5:
            b = arrays["b"].copy()
            b[:, j] = (arrays["counts"] * largest).astype(b.dtype)
            arrays["b"] = b
    for name, power in (("sums", 1), ("squares", 2)):
        if name in arrays and arrays[name].dtype.itemsize == 8:
            table = arrays[name].copy()
            table[:, j % table.shape[1]] = arrays["counts"] * largest**power + over
            arrays[name] = table
    if "means" in arrays and arrays["means"].dtype.itemsize == 8:
        means = arrays["means"].copy()
        means[:, j] = BOUND * (1 + 10.0 ** rng.uniform(-9, 0) * rng.choice([-1, 1]))
        arrays["means"] = means


def correlated(rng: np.random.Generator, arrays: Arrays) -> None:
    """A product at what its squares allow, or one unit beyond."""
    d = int(arrays["dimension"])
    if "a" not in arrays or d < 2:
        return scaled(rng, arrays)
    a = arrays["a"].copy()
    i, j = sorted(rng.choice(d, 2, replace=False).tolist())
    most = np.sqrt(abs(float(a[_place(i, i, d)]) * float(a[_place(j, j, d)])))
    most = min(most, 2.0**62)
    value = most * rng.choice([-1, 1]) * rng.choice([1.0, 0.999, 0.5])
    step = rng.integers(-2, 3) if a.dtype.kind == "i" else most * 10.0 ** rng.uniform(-15, -1)
    a[_place(i, j, d)] = np.rint(value) + step if a.dtype.kind == "i" else value + step
    arrays["a"] = a
    return None


def of_rank_one(rng: np.random.Generator, arrays: Arrays) -> None:
    """A direction more, or one less, than the samples have."""
    d = int(arrays["dimension"])
    if "a" not in arrays:
        return dropped(rng, arrays)
    v = rng.normal(size=d) * 10.0 ** rng.uniform(-5, 5)
    v = np.rint(v) if arrays["a"].dtype.kind == "i" else v
    more = np.concatenate([np.outer(v, v)[i, i:] for i in range(d)]) * rng.choice([-1, 1, 2])
    arrays["a"] = (arrays["a"] + more).astype(arrays["a"].dtype)
    return None


def dropped(rng: np.random.Generator, arrays: Arrays) -> None:
    """A row of a factor less; its samples are claimed all the same, or not."""
    if "y" not in arrays or not len(arrays["y"]):
        return scaled(rng, arrays)
    d, r = int(arrays["dimension"]), len(arrays["y"])
    arrays["y"] = arrays["y"][:-1]
    if "rows" in arrays:
        arrays["rows"] = arrays["rows"][:-1]
    else:
        arrays["z"] = arrays["z"][: (r - 1) * d - (r - 1) * (r - 2) // 2]
    if "scale" in arrays:
        arrays["scale"] = arrays["scale"][:-1]
    if rng.random() < 0.5:
        counts = arrays["counts"].copy()
        counts[int(rng.integers(len(counts)))] -= 1
        arrays["counts"] = counts
    return None


def relabelled(rng: np.random.Generator, arrays: Arrays) -> None:
    """Sums of one class as those of another."""
    for name in ("b", "sums", "squares", "means"):
        if name in arrays and len(arrays[name]) > 1:
            arrays[name] = arrays[name][rng.permutation(len(arrays[name]))]
    if "y" in arrays and arrays["y"].shape[1] > 1:
        arrays["y"] = arrays["y"][:, rng.permutation(arrays["y"].shape[1])]


def rescaled(rng: np.random.Generator, arrays: Arrays) -> None:
    """A coarse row with a scale that is not its own."""
    names = [name for name in arrays if name.endswith("scale")]
    if not names:
        return scaled(rng, arrays)
    name = str(rng.choice(names))
    factor = float(rng.choice([2, 64, 100, 0.5, 1.001]))
    arrays[name] = (arrays[name] * factor).astype(np.float32)
    rows = {"scale": "rows" if "rows" in arrays else "z"}.get(name, name.removesuffix("_scale"))
    if rng.random() < 0.5 and rows in arrays:
        _put(arrays, rows, arrays[rows] / factor)
    return None


LIES = (scaled, nudged, extreme, claimed, at_the_bound, correlated, of_rank_one, dropped)
LIES += (relabelled, rescaled)


def _place(i: int, j: int, d: int) -> int:
    return i * d - i * (i - 1) // 2 + j - i


def _put(arrays: Arrays, name: str, values: Any) -> None:
    dtype = arrays[name].dtype
    if dtype.kind == "i":
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, min(limits.max, 2**62))
    with np.errstate(all="ignore"):
        arrays[name] = np.asarray(values).astype(dtype)


# -- the attack ----------------------------------------------------------------------------------


def attack(messages: int, seed: int = 0, lies: tuple[Any, ...] = LIES) -> Figures:
    """So many messages through admission; what was let in goes before the oracle."""
    rng, figures = np.random.default_rng(seed), Figures()
    while figures.messages < messages:
        kind = str(rng.choice(list(HEADS), p=[0.6, 0.08, 0.12, 0.12, 0.08]))
        exact, d, normed = (
            bool(rng.random() < 0.5),
            int(rng.integers(1, 6)),
            bool(rng.random() < 0.3),
        )
        arrays = honest(rng, kind, exact, d, normed)
        many = int(rng.choice([0, 1, 2, 3], p=[0.02, 0.58, 0.3, 0.1])) if lies else 0
        with np.errstate(all="ignore"):
            for _ in range(many):
                lies[int(rng.integers(len(lies)))](rng, arrays)
        try_one(figures, validator(kind, exact, d, normed), arrays, NORM if normed else None)
    return figures


def try_one(figures: Figures, door: UploadValidator, arrays: Arrays, norm: float | None) -> None:
    name = {"a": "gram", "y": "factor", "means": "client-means"}
    kind = next((name[key] for key in name if key in arrays), "class-sums")
    message = wire.encode(kind, arrays)
    figures.messages += 1
    if kind in SCHEMAS:
        try:
            wire.decode(message, SCHEMAS, door.contract.limits("a"))
        except WireError:
            figures.codes["not decoded"] += 1
            return
    figures.decoded += 1
    try:
        door.check("a", ROUND, message)
    except UploadRejected as refused:
        figures.codes[refused.code] += 1
        return
    figures.accepted += 1
    reason = why_impossible(message, None if door.contract.exact else BOUND, norm)
    if reason:
        figures.impossible.append((reason, message))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.perf_counter()
    figures = attack(options.messages, options.seed)
    print(f"seed {options.seed}: {figures} ({time.perf_counter() - began:.0f} s)")
    for reason, message in figures.impossible[:5]:
        print(reason, message.hex(), file=sys.stderr)
    return 1 if figures.impossible else 0


if __name__ == "__main__":
    sys.exit(main())

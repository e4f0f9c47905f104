"""What files promise, and which inputs are refused."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from headstart.errors import DataError, HeadstartError
from headstart.heads import make, name_of
from headstart.heads.base import Head
from headstart.heads.base import settings as settings_of
from headstart.heads.linear import LinearHead
from headstart.statistics.base import total
from headstart.testing.heads.comparing import (
    each_mode,
    make_clients,
    measure,
)
from headstart.testing.require import refuses, require


def saved_heads(head: Head) -> None:
    """A saved head is the head, and says by which method, settings and total it was made."""
    name, z = name_of(head), np.random.default_rng(0).normal(size=(20, 12))
    require(make(name, settings_of(head)) == head, "expected the same head of name and settings")
    for mode, how in each_mode():
        stat = total(measure(head, make_clients(), **how))
        model = head.solve(stat)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "head.safetensors"
            model.save(path)
            loaded = LinearHead.load(path)
            require(list(Path(folder).iterdir()) == [path], f"{mode}: expected one file")
        require(np.array_equal(loaded.scores(z), model.scores(z)), f"{mode}: scores differ")
        require(loaded.classes.tolist() == model.classes.tolist(), f"{mode}: classes differ")
        require(loaded.temperature == model.temperature, f"{mode}: temperatures differ")
        require(loaded.provenance == model.provenance, f"{mode}: provenances differ")
        expected = {
            "method": name,
            "settings": settings_of(head),
            "total": stat.digest(),
            "exact": how["exact"],
            "samples": stat.samples,
        }
        for key, value in expected.items():
            actual = loaded.provenance.get(key)
            require(
                actual == value, f"{mode}: provenance: {key}: expected {value!r}, got {actual!r}"
            )


GOOD = np.arange(12.0).reshape(4, 3)
BAD: dict[str, tuple[Any, Any, str]] = {
    "nan": (np.where(GOOD == 5, np.nan, GOOD), [0, 1, 0, 1], "features"),
    "inf": (np.where(GOOD == 5, np.inf, GOOD), [0, 1, 0, 1], "features"),
    "too few labels": (GOOD, [0, 1, 0], "labels"),
    "too many labels": (GOOD, [0, 1, 0, 1, 1], "labels"),
    "one axis": (GOOD[0], [0, 1, 0], "features"),
    "three axes": (GOOD[None], [0], "features"),
    "no features": (GOOD[:, :0], [0, 1, 0, 1], "features"),
    "complex": (GOOD + 1j, [0, 1, 0, 1], "features"),
    "text features": (GOOD.astype(str), [0, 1, 0, 1], "features"),
    "object features": (GOOD.astype(object), [0, 1, 0, 1], "features"),
    "ragged features": ([[1.0, 2.0], [3.0]], [0, 1], "features"),
    "float labels": (GOOD, [0.0, 1.0, 0.0, 1.0], "labels"),
    "bool labels": (GOOD, [True, False, True, False], "labels"),
    "two axes of labels": (GOOD, [[0], [1], [0], [1]], "labels"),
    "mixed objects": (GOOD, np.array([0, "a", 0, "a"], dtype=object), "labels"),
    "missing labels": (GOOD, [0, None, 0, 1], "labels"),
    "a label of a thousand letters": (GOOD, ["a" * 1000, "b", "b", "b"], "labels"),
}


def bad_inputs(head: Head) -> None:
    """Bad features and labels are refused, and the error names the argument."""
    for name, (features, labels, argument) in BAD.items():
        for mode, how in each_mode():
            work = functools.partial(head.measure, features, labels, **how)
            refuses(work, HeadstartError, f"{name}, {mode}", argument)


def features_beyond_the_bound(head: Head) -> None:
    """In exact mode features beyond the bound are refused, and so is a bound that is none."""
    for bound in (10.0, -1.0):
        work = functools.partial(head.measure, GOOD, [0, 1, 0, 1], exact=True, bound=bound)
        refuses(work, DataError, f"features up to 11, bound {bound:g}", "bound")

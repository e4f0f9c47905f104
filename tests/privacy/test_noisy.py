"""Noisy sums: they add, and their range and shape are checked."""

import math

import numpy as np
import pytest

from headstart import HeadstartError
from headstart.errors import WireError
from headstart.statistics.noisy import NoisySums

from .private_runs import FED3R, private


def test_noisy_sums_add_and_do_not_subtract():
    one, two = (private(seeded=name).total(FED3R).statistic for name in ("a", "b"))
    two = NoisySums(two.dimension, two.classes, two.tables, two.variances, one.direction)
    both = one + two
    assert both.sigma("gram") == pytest.approx(math.sqrt(2) * one.sigma("gram"))
    assert np.array_equal(both.tables["sums"], one.tables["sums"] + two.tables["sums"])
    assert not hasattr(one, "__sub__")
    assert not both.statement
    with pytest.raises(HeadstartError, match="those of one release"):
        _ = one + private().total(FED3R).statistic  # another direction
    again = NoisySums.from_bytes(one.to_bytes())
    assert again.digest() == one.digest()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"sums": np.full((10, 64), 2**62 + 1)}, "bound"),
        ({"gram": np.zeros(7, np.int64)}, "shape"),
        ({"variances": np.array([1.0, 1.0])}, "shape"),
        ({"variances": np.array([1.0, 1.0, -1.0])}, "shape"),
        ({"counts": np.zeros(9, np.int64)}, "shape"),
        ({"direction": np.full(64, np.nan)}, "nonfinite"),
        ({"projection": np.zeros((70, 63))}, "shape"),
        ({"correction": np.zeros((9, 64))}, "shape"),
        ({"correction": np.full((10, 64), np.inf)}, "nonfinite"),
        ({"more": np.zeros(1)}, "arrays"),
    ],
)
def test_only_range_and_shape_of_noisy_sums_are_checked(change, code):
    arrays = private().total(FED3R).statistic.to_arrays()
    assert NoisySums.from_arrays(arrays).samples
    with pytest.raises(WireError) as refused:
        NoisySums.from_arrays({**arrays, **change})
    assert refused.value.code == code

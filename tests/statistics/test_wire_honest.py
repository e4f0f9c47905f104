"""Honest uploads always pass, and numbers that do not fit are refused by their sender."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import ClassSums, ClientMeans, DataError, Moments
from headstart.statistics.base import PRECISIONS
from headstart.statistics.wire import Limits


@st.composite
def honest(draw):
    """Datasets of awkward shape and scale: few or many samples, low rank, repeats, zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, d = draw(st.integers(0, 30)), draw(st.integers(1, 9))
    rank = draw(st.integers(0, d))
    z = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    z += draw(st.sampled_from([0.0, 1.0, 30.0]))
    z *= 10.0 ** rng.integers(0, draw(st.integers(1, 7)), size=d)  # features of unlike scales
    if draw(st.booleans()):
        z = np.sign(z)
    if draw(st.booleans()) and n:
        z = z[rng.integers(n, size=n)]
    z *= draw(st.sampled_from([1.0, 1e6, 1e-6]))
    y = rng.integers(draw(st.integers(1, 5)), size=n)
    return z, y


@settings(max_examples=250, deadline=None)
@given(honest(), st.sampled_from(list(PRECISIONS)), st.booleans())
def test_honest_uploads_always_pass(sample, precision, bounded):
    z, y = sample
    peak = float(np.abs(z).max(initial=0.0))
    limits = Limits(bound=peak or 1.0) if bounded else Limits()
    stats = [
        Moments.measure(z, y, secret=b"s"),
        ClassSums.measure(z, y, squares="diagonal"),
        ClassSums.measure(z, y, squares="spherical"),
        ClassSums.measure(z, y, sums=False),
        ClientMeans.measure(z, y, means=2, secret=b"s"),
    ]
    for stat in stats:
        received = type(stat).from_bytes(stat.to_bytes(precision), limits)
        assert received.samples == stat.samples


@settings(max_examples=100, deadline=None)
@given(honest(), st.booleans())
def test_honest_exact_uploads_always_pass(sample, bounded):
    z, y = sample
    bound = float(np.abs(z).max(initial=0.0)) or 1.0
    how = {"exact": True, "bound": bound, "secret": b"s"}
    limits = Limits(bound=bound) if bounded else Limits()
    stats = [
        Moments.measure(z, y, **how),
        ClassSums.measure(z, y, squares="diagonal", **how),
        ClassSums.measure(z, y, squares="spherical", **how),
        ClientMeans.measure(z, y, means=2, **how),
    ]
    for stat in stats:
        assert type(stat).from_bytes(stat.to_bytes(), limits).digest() == stat.digest()


def test_numbers_that_do_not_fit_are_refused_by_the_sender():
    stat = ClassSums.measure(np.full((2, 3), 1e30), [0, 0], squares="diagonal")
    with pytest.raises(DataError, match="precision"):
        stat.to_bytes("float32")
    with pytest.raises(DataError, match="precision"):
        Moments.measure(np.full((2, 3), 1e39), [0, 0]).to_bytes("float32")

"""The masked vector: exact integers at agreed places, and nothing else gets in."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.costs import sync_bytes
from headstart.privacy.layout import MOST_NUMBERS, Layout
from headstart.privacy.refusals import Abort
from headstart.statistics.tally import Tally
from headstart.statistics.vectors import Vectors

HEADS = {
    "fed3r": hs.Fed3R(),
    "lda": hs.LDA(),
    "fedncm": hs.FedNCM(),
    "diagonal": hs.SharedVariances(),
    "spherical": hs.SharedVariances(kind="spherical"),
    "etf": hs.ETF(),
    "random features": hs.Fed3RRandomFeatures(dimension=9, bandwidth=1.0),
}


def federation(sizes, d, names, seed):
    rng = np.random.default_rng(seed)
    return [(rng.uniform(-16, 16, size=(n, d)), rng.choice(names, n)) for n in sizes]


@settings(max_examples=60, deadline=None)
@given(
    head=st.sampled_from(sorted(HEADS)),
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    d=st.integers(1, 5),
    names=st.sampled_from([(0, 1, 2), (-5, 7), ("ant", "bee", "cat")]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_sum_of_vectors_is_the_sum_of_statistics(head, sizes, d, names, seed):
    parts = [HEADS[head].measure(z, y, exact=True) for z, y in federation(sizes, d, names, seed)]
    layout = Layout.of(parts[0], [*names, *names])
    vector = np.zeros(layout.size, np.uint64)
    for part in parts:
        vector += layout.flatten(part)
    assert layout.restore(vector, 100).digest() == hs.total(parts).digest()


def test_its_size_is_what_the_costs_say_and_does_not_depend_on_the_data():
    layout = Layout(1280, np.arange(1203), 16.0)
    assert 8 * layout.size == sync_bytes(1280, 1203)
    few = hs.Fed3R().measure(np.ones((1, 3)), [1], exact=True)
    many = hs.Fed3R().measure(np.ones((50, 3)), np.arange(50) % 5, exact=True)
    agreed = Layout.of(few, range(5))
    assert len(agreed.flatten(few)) == len(agreed.flatten(many)) == agreed.size


def test_negative_sums_come_back_negative():
    part = hs.FedNCM().measure(np.full((3, 2), -16.0), [0, 0, 0], exact=True)
    layout = Layout.of(part, [0])
    found = layout.restore(layout.flatten(part) + layout.flatten(part), 6)
    assert found.class_sums().tolist() == [[-96.0, -96.0]]


Z, Y = np.ones((3, 2)), np.array([0, 1, 1])


@pytest.mark.parametrize(
    ("statistic", "code"),
    [
        (hs.FedCOF().measure(Z, Y, exact=True), "rows"),
        (hs.ClientMeans, "rows"),
        (hs.Fed3R().measure(Z, Y), "inexact"),
        (hs.FedNCM().measure(Z, Y), "inexact"),
        (Tally(np.zeros(2)), "inexact"),
        (Vectors(np.zeros((1, 2)), np.zeros(1)), "inexact"),
        ("a text", "inexact"),
        (hs.Fed3R().measure(np.ones((3, 3)), Y, exact=True), "layout"),
        (hs.Fed3R().measure(Z, Y, exact=True, bound=8.0), "layout"),
        (hs.Fed3R().measure(Z, [0, 1, 5], exact=True), "layout"),
        (hs.Fed3R().measure(Z, ["0", "1", "1"], exact=True), "layout"),
        (hs.FedNCM().measure(Z, Y, exact=True), "layout"),
        (hs.ETF().measure(Z, Y, exact=True), "layout"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(statistic, code):
    layout = Layout.of(hs.Fed3R().measure(Z, Y, exact=True), [0, 1])
    with pytest.raises(Abort) as refused:
        layout.flatten(statistic)
    assert refused.value.code == code
    assert "\n" not in str(refused.value)


def test_sums_could_overflow_sooner_where_all_squares_meet():
    one = hs.SharedVariances(kind="spherical").measure(np.ones((2, 8)), [0, 0], exact=True)
    assert Layout.of(one, [0]).most_samples == 2**32 // 8
    assert Layout.of(hs.Fed3R().measure(Z, Y, exact=True), [0]).most_samples == 2**32


def test_the_largest_allowed_sum_keeps_its_sign():
    """n · 2^(2b−2) at the cap: 2^62 in a uint64 is still itself as int64."""
    top = np.array([2**62, 2**64 - 2**62], np.uint64).view(np.int64)
    assert top.tolist() == [2**62, -(2**62)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimension": 0},
        {"dimension": MOST_NUMBERS},
        {"squares": 2, "dimension": 3},
        {"sums": False},
        {"squares": -1},
    ],
)
def test_a_layout_that_cannot_be_is_refused_before_any_allocation(wrong):
    right = {"dimension": 4, "classes": np.arange(3), "bound": 16.0}
    with pytest.raises(Abort) as refused:
        Layout(**{**right, **wrong})
    assert refused.value.code == "layout"


@pytest.mark.parametrize(
    "wrong",
    [
        {"tables": np.array([1, 1])},
        {"tables": np.array([2, 1, 0])},
        {"bound": np.array(-1.0)},
        {"classes": np.array([1, 0])},
    ],
)
def test_a_layout_from_arrays_is_checked(wrong):
    arrays = Layout(4, np.arange(3), 16.0).to_arrays()
    assert Layout.from_arrays(arrays).parts == Layout(4, np.arange(3), 16.0).parts
    with pytest.raises(hs.WireError):
        Layout.from_arrays({**arrays, **wrong})


def test_a_sum_that_no_data_can_give_is_refused():
    part = hs.Fed3R().measure(Z, Y, exact=True)
    layout = Layout.of(part, [0, 1])
    vector = layout.flatten(part)
    vector[2] += np.uint64(1)  # one unit of one square: the parity breaks
    with pytest.raises(hs.WireError) as refused:
        layout.restore(vector, 10)
    assert refused.value.code == "parity"
    with pytest.raises(hs.WireError) as refused:
        layout.restore(layout.flatten(part), 2)
    assert refused.value.code == "counts"

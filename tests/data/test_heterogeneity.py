"""The measures against their definitions, and the coupon collector against the thesis."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data import heterogeneity
from headstart.data.heterogeneity import describe, rounds_to_see
from headstart.data.partition import Partition, dirichlet, iid
from headstart.errors import DataError

quick = settings(max_examples=40, deadline=None)

# Thesis, table 3.6: K, κ -> mean ± deviation of 1000 simulations for 25, 50, 75 and 100%.
TABLE_3_6 = {
    (9275, 10): ((267, 2), (643, 5), (1286, 12), (9020, 1189)),
    (9275, 20): ((134, 1), (322, 3), (643, 6), (4494, 596)),
    (9275, 50): ((54, 1), (129, 1), (257, 2), (1809, 247)),
    (1262, 10): ((37, 1), (88, 2), (175, 4), (970, 155)),
    (1262, 20): ((19, 1), (44, 1), (87, 2), (483, 79)),
    (1262, 50): ((8, 0), (18, 1), (35, 1), (191, 32)),
    (100, 10): ((3, 0), (7, 1), (14, 1), (50, 12)),
    (100, 20): ((2, 0), (4, 0), (7, 1), (24, 5)),
    (100, 50): ((1, 0), (1, 0), None, (8, 2)),  # 75% prints 3; the expectation is 2.42
}


def brute_jaccard(partition, labels):
    held = [set(labels[index]) for index in partition.indices if len(index)]
    pairs = itertools.product(held, held)
    return sum(len(a & b) / len(a | b) for a, b in pairs) / len(held) ** 2


@pytest.mark.parametrize("dense_gain", [0, 1e9], ids=["sparse", "dense"])
@pytest.mark.parametrize("block", [1, 7, 10**6])
@settings(max_examples=15, deadline=None)
@given(
    labels=st.lists(st.integers(-3, 9), min_size=1, max_size=60).map(np.array),
    clients=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_jaccard_is_its_definition(dense_gain, block, labels, clients, seed):
    partition = dirichlet(labels, clients, alpha=0.5, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heterogeneity, "_DENSE_GAIN", dense_gain)
        patch.setattr(heterogeneity, "_BLOCK", block)
        measured = describe(partition, labels).jaccard
    assert measured == pytest.approx(brute_jaccard(partition, labels), abs=1e-12)


def test_the_extremes_of_jaccard():
    labels = np.tile(np.arange(10), 10)
    assert describe(Partition(("a", "b"), (np.arange(10), np.arange(10, 20))), labels).jaccard == 1
    alone = Partition(tuple("abcde"), tuple(np.array([k]) for k in range(5)))
    assert describe(alone, labels).jaccard == pytest.approx(1 / 5)


def test_counts_of_a_partition():
    labels = np.array(["x", "x", "y", "z", "y", "unseen"])
    empty = np.zeros(0, dtype=np.int64)
    found = describe(
        Partition(("a", "b", "c"), (np.array([0, 1, 2]), np.array([3, 4]), empty)), labels
    )
    assert (found.clients, found.samples, found.classes) == (3, 5, 4)
    assert found.clients_per_class.tolist() == [0, 1, 2, 1]
    assert found.classes_per_client.tolist() == [2, 2, 0]
    assert found.sizes.tolist() == [3, 2, 0]
    assert found.jaccard == pytest.approx((2 + 2 / 3) / 4)
    summary = found.summary()
    assert summary["size_max"] == 3
    assert summary["classes_per_client_mean"] == pytest.approx(4 / 3)
    assert all(type(value) in (int, float) for value in summary.values())
    with pytest.raises(DataError, match="at least one assigned sample"):
        describe(Partition(("a",), (empty,)), labels)


def test_many_clients_are_compared_in_little_time():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 1203, 60_000)
    found = describe(iid(60_000, 10_000), labels)
    assert found.classes_per_client.mean() == pytest.approx(6, abs=0.1)
    dense = describe(iid(1_000_000, 1000), np.arange(1_000_000) % 1000)
    assert 0.4 < dense.jaccard < 0.6


@pytest.mark.parametrize(("clients", "per_round"), TABLE_3_6)
def test_rounds_to_see_agree_with_the_thesis(clients, per_round):
    for rounds, cell in zip(
        rounds_to_see(clients, per_round), TABLE_3_6[clients, per_round], strict=True
    ):
        if cell is not None:
            mean, deviation = cell
            # both numbers are rounded; four standard errors of 1000 simulations
            assert abs(rounds - mean) <= 0.5 + 4 * (deviation + 0.5) / 1000**0.5


def test_the_misprinted_cell():
    assert rounds_to_see(100, 50)[2] == pytest.approx(2.42, abs=0.005)


def test_one_a_round_is_the_coupon_collector():
    harmonic = sum(30 / unseen for unseen in range(1, 31))
    assert rounds_to_see(30, 1, [1.0]) == pytest.approx([harmonic])


@quick
@given(clients=st.integers(1, 7), data=st.data())
def test_rounds_to_see_follow_from_counting_cohorts(clients, data):
    per_round = data.draw(st.integers(1, clients))
    target = data.draw(st.integers(1, clients))
    cohorts = list(itertools.combinations(range(clients), per_round))

    def expected(seen):
        if seen >= target:
            return 0.0
        new = [sum(member >= seen for member in cohort) for cohort in cohorts]
        moved = [expected(seen + count) for count in new if count]
        return (len(cohorts) + sum(moved)) / len(moved)

    assert rounds_to_see(clients, per_round, [target / clients]) == pytest.approx([expected(0)])


def test_the_target_is_rounded_up_but_not_by_float_noise():
    assert rounds_to_see(30, 1, [0.1]) == rounds_to_see(30, 1, [3 / 30])
    assert rounds_to_see(10, 1, [0.25]) == rounds_to_see(10, 1, [0.3])
    assert rounds_to_see(5, 5) == [1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "clients: expected a positive integer"),
        ((3, 4), "per_round: expected at most 3"),
        ((3, 1, [0.0]), "fractions: expected each above 0"),
        ((3, 1, [1.5]), "fractions: expected each above 0"),
    ],
)
def test_a_mistake_is_named(arguments, message):
    with pytest.raises(DataError, match=message):
        rounds_to_see(*arguments)

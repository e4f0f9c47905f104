"""Every partitioner deals each sample to one client, the same way for the same seed."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data import apportion
from headstart.data.partition import (
    PARTITIONERS,
    Partition,
    dirichlet,
    dirichlet_client,
    domain,
    iid,
    imbalance,
    matched,
    natural,
    personal_split,
    quantity,
    read_sizes,
    shards,
    sizes,
)
from headstart.errors import DataError

label_lists = st.lists(st.integers(0, 5), min_size=1, max_size=60).map(np.array)
seeds = st.integers(0, 2**32)
quick = settings(max_examples=40, deadline=None)

# Each deals `labels` to `clients`, or refuses when there are more clients than samples.
BY_CLIENTS = {
    "dirichlet": lambda labels, clients, seed: dirichlet(labels, clients, alpha=0.3, seed=seed),
    "dirichlet_sharp": lambda y, clients, seed: dirichlet(y, clients, alpha=1e-9, seed=seed),
    "dirichlet_client": lambda y, k, seed: dirichlet_client(y, k, alpha=0.5, seed=seed),
    "dirichlet_client_sharp": lambda y, k, seed: dirichlet_client(y, k, alpha=1e-9, seed=seed),
    "dirichlet_client_zero": lambda y, k, seed: dirichlet_client(y, k, alpha=0, seed=seed),
    "shards": lambda y, k, seed: shards(y, k, shards_per_client=1, seed=seed),
    "quantity": lambda y, k, seed: quantity(len(y), k, alpha=0.3, seed=seed),
    "sizes": lambda y, k, seed: sizes(len(y), list(range(1, k + 1)), seed=seed),
    "imbalance": lambda y, k, seed: imbalance(y, k, seed=seed),
    "iid": lambda y, k, seed: iid(len(y), k, seed=seed),
}
MAY_BE_EMPTY = [name for name in BY_CLIENTS if name.startswith("dirichlet")]


def same(left, right):
    return left.names == right.names and all(
        np.array_equal(a, b) for a, b in zip(left.indices, right.indices, strict=True)
    )


def covers(partition, n):
    return sorted(partition.flat()[0].tolist()) == list(range(n))


@pytest.mark.parametrize("name", BY_CLIENTS)
@quick
@given(labels=label_lists, clients=st.integers(1, 20), seed=seeds)
def test_every_sample_has_one_client(name, labels, clients, seed):
    deal = BY_CLIENTS[name]
    if clients > len(labels) and name not in MAY_BE_EMPTY:
        with pytest.raises(DataError, match=r"clients|sizes|shards"):
            deal(labels, clients, seed)
        return
    partition = deal(labels, clients, seed)
    assert len(partition) == clients
    assert covers(partition, len(labels))
    assert same(partition, deal(labels, clients, seed))
    if name not in MAY_BE_EMPTY:
        assert partition.sizes().min() >= 1


@pytest.mark.parametrize("name", BY_CLIENTS)
def test_another_seed_deals_otherwise(name):
    labels = np.arange(200) % 5
    assert not same(BY_CLIENTS[name](labels, 10, 0), BY_CLIENTS[name](labels, 10, 1))


def test_the_registry_names_and_describes_every_partitioner():
    assert sorted(PARTITIONERS) == sorted(
        [
            "dirichlet",
            "dirichlet_client",
            "domain",
            "iid",
            "imbalance",
            "natural",
            "quantity",
            "runs",
            "shards",
            "sizes",
        ]
    )
    assert all((function.__doc__ or "").split("\n")[0] for function in PARTITIONERS.values())


@quick
@given(labels=label_lists, clients=st.integers(1, 20), least=st.integers(0, 8), seed=seeds)
def test_dirichlet_gives_the_minimum_or_says_it_cannot(labels, clients, least, seed):
    if least * clients > len(labels):
        with pytest.raises(DataError, match="min_samples"):
            dirichlet(labels, clients, alpha=0.01, min_samples=least, seed=seed)
        return
    partition = dirichlet(labels, clients, alpha=0.01, min_samples=least, seed=seed)
    assert covers(partition, len(labels))
    assert partition.sizes().min() >= least


def test_dirichlet_follows_alpha():
    labels = np.repeat(np.arange(10), 1000)
    _, flat = dirichlet(labels, 10, alpha=1e6).counts(labels)
    _, sharp = dirichlet(labels, 10, alpha=1e-3).counts(labels)
    assert abs(flat - 100).max() <= 2
    assert (sharp.max(axis=0) > 900).mean() >= 0.8


@pytest.mark.parametrize("scale", [0.02, 1.0, 30.0])
def test_proportions_have_the_moments_of_a_dirichlet(scale):
    rng = np.random.default_rng(0)
    a = scale * np.array([0.5, 1.0, 2.5])
    draws = np.array([apportion.softmax(apportion.log_gammas(a, rng)) for _ in range(20_000)])
    mean = a / a.sum()
    variance = mean * (1 - mean) / (a.sum() + 1)
    assert draws.mean(axis=0) == pytest.approx(mean, abs=5 * (variance.max() / 20_000) ** 0.5)
    assert draws.var(axis=0) == pytest.approx(variance, rel=0.06)


def test_dirichlet_shares_average_out():
    labels = np.zeros(7, dtype=int)
    sums = sum(dirichlet(labels, 4, alpha=2.0, seed=seed).sizes() for seed in range(2000))
    assert abs(sums / 2000 - 7 / 4).max() < 0.12


@quick
@given(labels=label_lists, clients=st.integers(1, 80), alpha=st.sampled_from([1e-300, 0.1, 1e9]))
def test_dirichlet_by_client_has_equal_sizes(labels, clients, alpha):
    amounts = dirichlet_client(labels, clients, alpha=alpha).sizes()
    assert amounts.max() - amounts.min() <= 1


def test_dirichlet_by_client_follows_alpha():
    labels = np.repeat(np.arange(10), 500)
    _, flat = dirichlet_client(labels, 10, alpha=1e6).counts(labels)
    _, sharp = dirichlet_client(labels, 10, alpha=1e-6).counts(labels)
    assert abs(flat - 50).max() < 35
    assert (sharp == 500).sum() >= 5


@pytest.mark.parametrize(("clients", "expected"), [(3, 1), (7, 1), (2, 2)])
def test_dirichlet_by_client_with_alpha_zero_gives_single_classes(clients, expected):
    labels = np.repeat(["a", "b", "c"], 20)
    _, counts = dirichlet_client(labels, clients, alpha=0).counts(labels)
    assert ((counts > 0).sum(axis=1) <= expected).all()
    assert counts.sum() == 60
    if clients == 7:  # clients 0, 3 and 6 share the class a
        assert counts[[0, 3, 6], 0].tolist() == [7, 7, 6]


@quick
@given(classes=st.integers(1, 5), clients=st.integers(1, 6), each=st.integers(1, 3), seed=seeds)
def test_a_client_of_equal_shards_has_few_classes(classes, clients, each, seed):
    labels = np.repeat(np.arange(classes), clients * each)
    _, counts = shards(labels, clients, shards_per_client=each, seed=seed).counts(labels)
    assert ((counts > 0).sum(axis=1) <= each * classes).all()
    assert (counts.sum(axis=1) == classes * each).all()


def test_shards_of_one_class_each():
    labels = np.tile(np.arange(10), 20)
    _, counts = shards(labels, 10, shards_per_client=2).counts(labels)
    assert ((counts > 0).sum(axis=1) <= 2).all()


def test_natural_clients_keep_their_names():
    partition = natural(["u2", "u10", "u2"])
    assert partition.names == ("u10", "u2")
    assert [index.tolist() for index in partition.indices] == [[1], [0, 2]]
    assert natural(np.array([10, 2, 10])).names == ("2", "10")
    with pytest.raises(DataError, match="ids: expected all integers or all strings"):
        natural([0.5])


def test_a_domain_a_client_or_several_clients_a_domain():
    domains = np.repeat(["art", "photo"], [5, 8])
    assert domain(domains).names == ("art", "photo")
    parts = domain(domains, 5)
    assert parts.names == ("art/0", "art/1", "photo/0", "photo/1", "photo/2")
    assert parts.sizes().tolist() == [3, 2, 3, 3, 2]
    assert covers(parts, 13)
    assert all(len(set(domains[index])) == 1 for index in parts.indices)
    with pytest.raises(DataError, match="at least 2, one a domain, got 1"):
        domain(domains, 1)
    with pytest.raises(DataError, match="'art' has 5 samples and cannot be cut into 6 parts"):
        domain(domains, 12)


def test_quantity_skew_is_skewed():
    assert quantity(1000, 10, alpha=0.1).sizes().max() > 300
    even = quantity(1000, 10, alpha=1e9).sizes()
    assert even.max() - even.min() <= 1
    assert quantity(1000, 10, alpha=0.01, min_samples=50).sizes().min() == 50


@quick
@given(
    wanted=st.lists(st.integers(1, 50), min_size=1, max_size=20),
    n=st.integers(20, 200),
    least=st.integers(0, 1),
)
def test_apportionment_is_proportional(wanted, n, least):
    amounts = apportion.apportion(n, np.array(wanted), least)
    assert amounts.sum() == n
    assert amounts.min() >= least
    if least == 0:
        assert abs(amounts - n * np.array(wanted) / sum(wanted)).max() < 1


def test_given_sizes_are_kept_or_scaled(tmp_path):
    assert sizes(6, [3, 2, 1]).sizes().tolist() == [3, 2, 1]
    assert sizes(12, [3, 2, 1]).sizes().tolist() == [6, 4, 2]
    assert sizes(5, [100, 1, 1]).sizes().tolist() == [3, 1, 1]
    (tmp_path / "sizes.csv").write_text("num_images\n4\n\n1\n")
    assert sizes(5, tmp_path / "sizes.csv").sizes().tolist() == [4, 1]
    assert imbalance([0] * 5, sizes=str(tmp_path / "sizes.csv")).sizes().tolist() == [4, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_images\n4\n-1\n", "line 3: expected a positive integer, got '-1'"),
        ("4\n1.5\n", "line 2: expected a positive integer, got '1.5'"),
        ("12x\n", "line 1: expected a positive integer, got '12x'"),
        ("num_images\n", "expected one client size a line, got none"),
    ],
)
def test_a_bad_sizes_file_is_refused(tmp_path, text, message):
    path = tmp_path / "sizes.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_sizes(path)
    with pytest.raises(DataError, match="cannot read"):
        read_sizes(tmp_path / "absent.csv")


def test_imbalance_empties_the_rarest_class_first():
    labels = np.array([0] * 2 + [1] * 3 + [2] * 5)
    _, counts = imbalance(labels, sizes=[4, 4, 2]).counts(labels)
    assert counts.tolist() == [[2, 2, 0], [0, 1, 3], [0, 0, 2]]


def test_imbalance_of_images_that_show_several_classes():
    shown = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 0]], dtype=bool)
    first, second = imbalance(shown, 2).indices
    assert 2 in first  # the only image of the rarest class, then one of the class 1
    assert set(first) & {0, 3}
    assert sorted([*first, *second]) == [0, 1, 2, 3]
    with pytest.raises(DataError, match="got none in sample 1"):
        imbalance(np.array([[True], [False]]), 2)


@quick
@given(
    labels=st.lists(st.integers(0, 4), min_size=12, max_size=80).map(np.array),
    clients=st.integers(1, 8),
    fraction=st.sampled_from([0.0, 0.2, 0.45, 0.9]),
    seed=seeds,
)
def test_personal_split_tests_only_classes_it_trains(labels, clients, fraction, seed):
    whole = dirichlet(labels, clients, alpha=0.5, seed=seed)
    minimum = min(10, int(whole.sizes().max()))
    train, test = personal_split(whole, labels, fraction, minimum, seed)
    kept = [(name, index) for name, index in whole.items() if len(index) >= minimum]
    assert train.names == test.names == tuple(name for name, _ in kept)
    for fit, held, (_, index) in zip(train.indices, test.indices, kept, strict=True):
        assert sorted([*fit, *held]) == index.tolist()
        assert set(labels[held]) <= set(labels[fit])
        room = len(index) - len(set(labels[index]))
        assert len(held) == min(room, int(fraction * len(index) + 0.5))


def test_personal_split_is_stratified():
    labels = np.repeat([0, 1, 2], [40, 20, 1])
    _, test = personal_split(iid(61, 1), labels)
    assert np.bincount(labels[test.indices[0]]).tolist() == [18, 9]
    with pytest.raises(DataError, match="at least 62 samples, but the largest has 61"):
        personal_split(iid(61, 1), labels, minimum=62)


def test_a_partition_must_be_disjoint():
    with pytest.raises(DataError, match="got 3 twice"):
        Partition(("a", "b"), (np.array([1, 3]), np.array([3])))
    with pytest.raises(DataError, match="got 'a' twice"):
        Partition(("a", "a"), (np.array([1]), np.array([2])))
    with pytest.raises(DataError, match="one array per client"):
        Partition(("a",), ())
    with pytest.raises(DataError, match="labels: expected a label for sample 4"):
        iid(5, 2).counts([0, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iid(3, 4), "clients: expected at most one per sample"),
        (lambda: iid(3, 0), "clients: expected a positive integer, got 0"),
        (lambda: iid(3, 2, seed=-1), "seed: expected a non-negative integer, got -1"),
        (lambda: dirichlet([0, 1], 2, alpha=0), "alpha: expected a finite number above 0, got 0"),
        (lambda: dirichlet([], 2, alpha=1), "labels: expected at least one sample"),
        (lambda: dirichlet_client([0, 1], 2, alpha=-1), "alpha: expected a finite number above 0"),
        (lambda: dirichlet([0.5], 1, alpha=1), "labels: expected all integers or all strings"),
        (lambda: shards([0, 1, 2], 2), "expected at most 3 shards, one per sample, got 4"),
        (lambda: sizes(3, [1, 0]), "sizes: expected a list of positive integers"),
        (lambda: imbalance([0, 1]), "either clients or sizes"),
        (lambda: imbalance([0, 1], 1, sizes=[2]), "either clients or sizes"),
        (lambda: personal_split(iid(9, 1), [0] * 9, held_out=1), "held_out: expected a number"),
    ],
)
def test_a_mistake_is_named(call, message):
    with pytest.raises(DataError, match=message):
        call()


@pytest.mark.parametrize("name", [*BY_CLIENTS, "natural", "domain"])
def test_ten_thousand_clients_do_not_take_minutes(name):
    """About a second each on an idle machine; a quadratic loop would be noticed."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 100, 120_000)
    if name in BY_CLIENTS:
        partition = BY_CLIENTS[name](labels, 10_000, 0)
    elif name == "natural":
        partition = natural(rng.permutation(np.arange(120_000) % 10_000))
    else:
        partition = domain(labels % 6, 10_000)
    assert len(partition) == 10_000
    assert partition.sizes().sum() == 120_000


def test_the_published_client_sizes():
    folder = Path(os.environ.get("HEADSTART_DATA", "../shared/data")) / "client_sizes"
    if not folder.is_dir():
        pytest.skip("client_sizes not found: set HEADSTART_DATA")
    users, geo = (
        read_sizes(folder / f"inaturalist_{split}.csv") for split in ("user_120k", "geo_100")
    )
    assert len(users) == 9275
    assert (sizes(int(users.sum()), users).sizes() == users).all()
    train, _ = personal_split(sizes(int(geo.sum()), geo), np.zeros(geo.sum(), dtype=int))
    assert len(train) == 2714  # Pers-Geo-100


# -- tests like a client's own samples -------------------------------------------------------------


def test_matched_tests_of_shards_are_disjoint_and_of_the_same_classes():
    train, test = np.repeat(np.arange(10), 50), np.repeat(np.arange(10), 10)
    split = shards(train, 10, shards_per_client=2, seed=3)
    parts = matched(split, train, test, seed=1)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(100))
    for own, part in zip(split.counts(train)[1], parts, strict=True):
        assert np.array_equal(own / own.sum(), np.bincount(test[part], minlength=10) / len(part))


@given(st.integers(0, 2**32), st.floats(0.05, 5))
def test_matched_tests_follow_the_clients_frequencies(seed, alpha):
    rng = np.random.default_rng(seed)
    train, test = rng.integers(6, size=300), rng.integers(6, size=90)
    split = dirichlet(train, 7, alpha=alpha, seed=seed)
    parts = matched(split, train, test, seed=seed)
    assert len(parts) == 7
    room = np.bincount(test, minlength=6)
    for own, part in zip(split.counts(train)[1], parts, strict=True):
        found = np.bincount(test[part], minlength=6)
        assert len(set(part.tolist())) == len(part)
        assert not found[own == 0].any()  # never a class that the client lacks
        exact = len(test) * own / len(train)
        free = exact < room - 1  # what the test set has enough of
        assert (np.abs(found - exact)[free] <= 1.5).all() or own.sum() < 4
    again = matched(split, train, test, seed=seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_matched_tests_of_a_class_without_test_samples():
    split = Partition(("a", "b"), (np.arange(3), np.arange(3, 6)))
    parts = matched(split, [0, 0, 0, 1, 1, 2], [1, 1, 2])
    assert [len(part) for part in parts] == [0, 2]

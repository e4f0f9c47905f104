"""Second moments: factors, folding, exact recovery, sizes."""

import functools
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headstart import ClassSums, DataError, Moments, total
from headstart.statistics import exact, moments, parts
from headstart.statistics.exact import LEVELS, Lattice
from headstart.statistics.moments import Fold

quick = settings(max_examples=60, deadline=None)


def one_hot(y, classes):
    return (np.asarray(y)[:, None] == np.asarray(classes)).astype(float)


def assert_moments(stat, z, y, rtol=1e-12):
    """A, B and g are those of these samples."""
    hot = one_hot(y, stat.classes)
    assert stat.counts.tolist() == hot.sum(axis=0).tolist()
    scale = (z**2).sum() + 1e-300
    np.testing.assert_allclose(stat.gram(), z.T @ z, atol=rtol * scale, rtol=0)
    np.testing.assert_allclose(
        stat.class_sums(), hot.T @ z, atol=rtol * np.sqrt(scale * len(z)), rtol=0
    )


def pooled(clients):
    return np.concatenate([z for z, _ in clients]), np.concatenate([y for _, y in clients])


small_floats = st.floats(-4, 4, allow_subnormal=False, width=32)
datasets = st.tuples(st.integers(0, 12), st.integers(1, 6)).flatmap(
    lambda shape: st.tuples(
        hnp.arrays(np.float64, shape, elements=small_floats),
        hnp.arrays(np.int64, shape[0], elements=st.integers(-2, 2)),
    )
)


@quick
@given(datasets)
def test_measuring_gives_the_moments(sample):
    z, y = sample
    stat = Moments.measure(z, y)
    assert stat.classes.tolist() == sorted(set(y.tolist()))
    assert_moments(stat, z, y)
    assert np.array_equal(stat.gram(), stat.gram().T)


@quick
@given(datasets)
def test_exact_moments_are_the_integer_ones(sample):
    z, y = sample
    stat = Moments.measure(z, y, exact=True, bound=4.0)
    q = np.rint(z / Lattice(4.0).step).astype(np.int64)
    assert np.array_equal(np.triu(stat._gram.a), np.triu(q.T @ q))
    assert np.array_equal(stat._gram.b, one_hot(y, stat.classes).astype(np.int64).T @ q)


@quick
@given(datasets, st.data())
def test_a_cut_anywhere_adds_up(sample, data):
    z, y = sample
    cut = data.draw(st.integers(0, len(y)))
    halves = [(z[:cut], y[:cut]), (z[cut:], y[cut:])]
    whole = Moments.measure(z, y, exact=True)
    left, right = (Moments.measure(*half, exact=True) for half in halves)
    assert (left + right).digest() == (right + left).digest() == whole.digest()
    assert (whole - right).digest() == left.digest()
    assert_moments(sum(Moments.measure(*half) for half in halves), z, y)


@pytest.mark.parametrize("exact_mode", [False, True])
@pytest.mark.parametrize("small", [False, True])
def test_total_sum_and_reduce_agree(make_clients, monkeypatch, exact_mode, small):
    """With tiny buffers every client flushes, and factors are larger than the buffer."""
    if small:
        monkeypatch.setattr(moments, "BUFFER_BYTES", 1)
        monkeypatch.setattr(moments, "_WAITING", 50)
    rng = np.random.default_rng(0)
    sizes = [*rng.integers(0, 12, size=80), 70, 79, 80, 81, 200, 300]
    rng.shuffle(sizes)
    clients = make_clients(sizes=sizes, d=80, classes=9)
    z, y = pooled(clients)
    stats = [Moments.measure(*client, exact=exact_mode, bound=8.0) for client in clients]
    totals = [Moments.total(stats), sum(stats), functools.reduce(operator.add, stats)]
    if exact_mode:
        assert {t.digest() for t in totals} == {
            Moments.measure(z, y, exact=True, bound=8.0).digest()
        }
    else:
        for result in totals:
            assert_moments(result, z, y)


@pytest.mark.parametrize("rows", [65, 100, 130])
def test_a_factor_larger_than_the_buffer_folds_whole(monkeypatch, rows):
    monkeypatch.setattr(moments, "BUFFER_BYTES", 1)
    rng = np.random.default_rng(1)
    z, y = rng.normal(size=(rows, 130)), rng.integers(3, size=rows)
    few = Moments.measure(z[:5], y[:5], exact=True)
    many = Moments.measure(z, y, exact=True)
    digest = Moments.measure(
        np.concatenate([z[:5], z, z[:5], z]), np.concatenate([y[:5], y, y[:5], y]), exact=True
    ).digest()
    assert total([few, many, few, many]).digest() == digest


def test_adding_does_not_change_the_parts(make_clients):
    stats = [Moments.measure(z, y, secret=b"s") for z, y in make_clients()]
    before = [s.to_bytes() for s in stats]
    result = sum(stats)
    result.gram()
    _ = result + stats[0], result - stats[0]
    assert [s.to_bytes() for s in stats] == before


def test_adding_to_a_solved_total_starts_from_it(make_clients):
    clients = make_clients()
    z, y = pooled(clients)
    running = Moments.measure(*clients[0])
    for client in clients[1:]:
        running.gram()
        running = running + Moments.measure(*client)
        _ = running.classes, running.samples
    assert_moments(running, z, y)


def worst_cases(n, d):
    rng = np.random.default_rng(n * 1000 + d)
    yield np.full((n, d), 16.0)
    yield rng.choice([-16.0, 16.0], size=(n, d))
    yield rng.uniform(-16, 16, size=(n, d))
    yield rng.choice([-16.0, 0.0, 16.0 / LEVELS], size=(n, d)) * (np.arange(d) > d // 3)


@pytest.mark.parametrize(("n", "d"), [(1, 256), (2, 3), (64, 64), (256, 256)])
def test_the_integer_gram_comes_back_from_the_factor(n, d):
    """Even with every feature at the bound."""
    for z in worst_cases(n, d):
        y = np.arange(n) % 7
        stat = Moments.measure(z, y, exact=True, secret=b"s")
        assert "z" in stat.to_arrays()
        q = np.rint(z / Lattice(16.0).step).astype(np.int64)
        received = Moments.from_bytes(stat.to_bytes())
        for result in (received, total([received] * 3) - total([stat] * 2)):
            assert np.array_equal(np.triu(result._gram.a), np.triu(q.T @ q))
            assert np.array_equal(result._gram.b, one_hot(y, result.classes).astype(int).T @ q)


def test_many_small_clients_at_the_bound_stay_exact():
    """Rounding grows with the rows of one product: 500,000 of them were off by 8."""
    rng = np.random.default_rng(2)
    n, d, clients = 7, 8, 40_000
    z = np.where(rng.random((n, d)) < 0.9, 16.0, -16.0)
    few = [Moments.measure(z, [0] * n, exact=True, secret=b"%d" % k) for k in range(16)]
    fold = Fold(d, few[0].lattice)
    for k in range(clients):
        fold.add(few[k % 16]._parts[0])
    q = np.rint(z / Lattice(16.0).step).astype(np.int64)
    gram = fold.result()
    assert np.array_equal(np.triu(gram.a), np.triu(q.T @ q) * clients)
    assert np.array_equal(gram.b, q.sum(axis=0, keepdims=True) * clients)


def test_many_samples_stay_exact_in_every_statistic(monkeypatch):
    """Squares of a large client leave 53 bits long before its sums do: 2^23 of them at most."""
    monkeypatch.setattr(exact, "CHUNK", 1000)
    z = np.full((9_000, 1000), 16.0)
    y = np.zeros(9_000, int)
    squares = ClassSums.measure(z, y, exact=True, squares="spherical").tables["squares"]
    assert int(squares[0, 0]) == 9_000 * 1000 * LEVELS**2


def test_too_many_samples_for_62_bits_are_refused(make_clients, monkeypatch):
    ((z, y),) = make_clients(sizes=(6,))
    for cls in (Moments, ClassSums):
        stats = [cls.measure(z, y, exact=True) for _ in range(4)]
        with monkeypatch.context() as patch:
            patch.setattr(exact, "MOST_SAMPLES", 20)
            assert total(stats[:3]).samples == 18
            with pytest.raises(DataError, match="exact total"):
                total(stats)
            with pytest.raises(DataError, match="exact total"):
                sum(stats).digest()
            with pytest.raises(DataError, match="exact total"):
                cls.measure(np.tile(z, (4, 1)), np.tile(y, 4), exact=True)
        assert total(stats).samples == 24


def test_the_limit_of_samples_is_that_of_62_bits():
    assert exact.MOST_SAMPLES * 2 ** (2 * exact.BITS - 2) == 2**62
    assert exact.CHUNK * LEVELS**2 < 2**53


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("n", [0, 1, 4, 10, 11, 40])
def test_the_message_has_as_many_numbers_as_promised(n, classes):
    d = 10
    rng = np.random.default_rng(3)
    y = np.arange(n) % classes
    c, r = len(set(y)), min(n, d)
    for precision, exact_mode in (("float64", True), ("float32", False), ("float16", False)):
        stat = Moments.measure(rng.normal(size=(n, d)), y, exact=exact_mode)
        arrays = stat.to_arrays(precision)
        numbers = sum(
            arrays[name].size for name in ("z", "y", "a", "b", "counts") if name in arrays
        )
        factor = r * (d + c) - r * (r - 1) // 2 + c
        packed = d * (d + 1) // 2 + d * c + c
        if n > d and exact_mode:
            assert numbers == packed
        else:
            assert numbers == factor <= packed
    rows = stat.to_arrays("int8")["rows"]
    assert rows.shape == (r, d)
    assert rows.dtype == np.int8


def test_messages_shrink_with_the_precision():
    rng = np.random.default_rng(4)
    stat = Moments.measure(rng.normal(size=(13, 200)), np.arange(13) % 3)
    sizes = [len(stat.to_bytes(p)) for p in ("float64", "float32", "float16", "int8")]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[1] < 4 * (13 * 203) + 1200


@pytest.mark.parametrize(("precision", "tolerance"), [("float16", 1e-3), ("int8", 1e-2)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_coarse_messages_keep_the_moments(digits, precision, tolerance, scale):
    """Relative to the trace, on real features, at any scale."""
    z, y = digits[0][:40] * scale, digits[1][:40]
    received = Moments.from_bytes(Moments.measure(z, y, secret=b"s").to_bytes(precision))
    assert_moments(received, z, y, rtol=tolerance)


def test_huge_clients_are_measured_in_chunks(monkeypatch):
    rng = np.random.default_rng(5)
    z, y = rng.normal(size=(5000, 4)), rng.integers(3, size=5000)
    whole = Moments.measure(z, y, exact=True)
    monkeypatch.setattr(parts, "BUFFER_BYTES", 1)
    assert Moments.measure(z, y, exact=True).digest() == whole.digest()
    assert_moments(Moments.measure(z, y), z, y)


def test_features_of_any_number_type_are_the_same_numbers():
    z = np.arange(12).reshape(4, 3)
    digests = {
        Moments.measure(z.astype(dtype), [0, 1, 0, 1], exact=True).digest()
        for dtype in (np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64)
    }
    digests.add(Moments.measure(z.tolist(), np.array([0, 1, 0, 1], np.uint8), exact=True).digest())
    assert len(digests) == 1


def test_measuring_leaves_the_features_alone():
    z = np.array([[-0.0, 1.0], [2.0, -0.0]])
    before = z.tobytes()
    z.setflags(write=False)
    for cls in (Moments, ClassSums):
        for exact_mode in (False, True):
            cls.measure(z, [0, 1], exact=exact_mode)
    assert z.tobytes() == before


def test_class_sums_of_different_tables_do_not_meet():
    rng = np.random.default_rng(6)
    z, y = rng.normal(size=(8, 3)), np.arange(8) % 2
    kinds = [ClassSums.measure(z, y, squares=kind) for kind in ("none", "diagonal", "spherical")]
    kinds.append(ClassSums.measure(z, y, sums=False))
    for i, one in enumerate(kinds):
        for j, other in enumerate(kinds):
            if i != j:
                with pytest.raises(DataError, match="class sums"):
                    total([one, other])
                with pytest.raises(DataError, match="class sums"):
                    _ = one - other


@pytest.mark.parametrize("n", [3, 40])
def test_what_is_returned_cannot_change_the_sum(n):
    rng = np.random.default_rng(0)
    stat = Moments.measure(rng.normal(size=(n, 8)), rng.integers(0, 3, n), exact=True)
    for stat in (stat, stat + stat):  # noqa: B020
        before = stat.digest()
        for array in (stat.counts, stat.classes, *stat.to_arrays().values()):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = array
        stat.gram()[:] = 0.0
        stat.class_sums()[:] = 0.0
        assert stat.digest() == before


@pytest.mark.parametrize("bound", [8, np.float32(8), np.int64(8)])
def test_a_bound_is_one_number_however_it_is_written(bound):
    z, y = np.ones((3, 2)), [0, 1, 1]
    stat = Moments.measure(z, y, exact=True, bound=bound)
    assert stat.digest() == Moments.measure(z, y, exact=True, bound=8.0).digest()
    assert stat.digest() == Moments.from_bytes(stat.to_bytes()).digest()


@pytest.mark.parametrize("bound", ["8", None, float("nan"), 0])
def test_a_bound_is_a_number(bound):
    with pytest.raises(DataError, match="bound: expected a number"):
        Moments.measure(np.ones((3, 2)), [0, 1, 1], exact=True, bound=bound)


@pytest.mark.parametrize("n", [2, 9])
def test_features_whose_squares_are_endless_are_refused(n):
    with pytest.raises(DataError, match="features: expected numbers up to"):
        Moments.measure(np.full((n, 3), 1e200), np.zeros(n, int))


def test_a_total_is_of_statistics():
    with pytest.raises(DataError, match="expected statistics, got int"):
        total([1, 2])

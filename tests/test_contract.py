"""What every head of the catalogue promises. A new file in heads/ is tested by being there."""

import functools
import operator

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from headstart import DataError, HeadstartError, LinearHead, SolveError, total
from headstart.heads import HEADS, make
from headstart.heads.base import settings as settings_of
from headstart.statistics.base import PRECISIONS

VARIANTS = {
    "fed3r": [
        {},
        {"ridge": "gcv"},
        {"bias": True},
        {"scatter": "within"},
        {"rebalance": 0.8, "normalize": False},
    ],
    "fed3r-rf": [{"dimension": 20, "bandwidth": 4.0}],
    "fedcof": [{"means": 1}, {"means": 3}],
    "shared-variances": [{"kind": "diagonal"}, {"kind": "spherical"}],
    "lda": [{"covariance": "within"}, {"covariance": "total"}],
}
CASES = [(name, variant) for name in HEADS for variant in VARIANTS.get(name, [{}])]
IDS = [name + "".join(f"-{key}={value}" for key, value in v.items()) for name, v in CASES]
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "int8": 5e-2}
EXACT = pytest.mark.parametrize("exact", [False, True], ids=["float", "exact"])

every_head = pytest.mark.parametrize("head", [make(*case) for case in CASES], ids=IDS)
SUMS = [make(*case) for case in CASES if make(*case).statistic.is_sum]
every_sum = pytest.mark.parametrize(
    "head", SUMS, ids=[i for i, case in zip(IDS, CASES, strict=True) if make(*case) in SUMS]
)


def measure(head, clients, **how):
    return [head.measure(z, y, secret=b"client %d" % k, **how) for k, (z, y) in enumerate(clients)]


def values(stat):
    """The numbers a statistic stands for, in comparable form."""
    if hasattr(stat, "gram"):
        return {"a": stat.gram(), "b": stat.class_sums(), "g": stat.counts}
    if hasattr(stat, "tables"):
        return {"g": stat.counts, **stat.tables}
    if hasattr(stat, "means"):
        return {"g": stat.counts, "means": stat.means}
    return stat.to_arrays()


def assert_close(left, right, tolerance):
    assert left.classes.tolist() == right.classes.tolist()
    mine, theirs = values(left), values(right)
    assert set(mine) == set(theirs)
    for name, array in mine.items():
        largest = np.abs(array).max(initial=0.0)
        assert np.abs(array - theirs[name]).max(initial=0.0) <= tolerance * largest, name


def assert_same_rows(left, right, tolerance):
    """Client means, whose rows may change places when rounded: each has its like in the other."""
    kinds = [sorted(zip(s.labels, s.counts, strict=True)) for s in (left, right)]
    assert kinds[0] == kinds[1]
    for label in left.classes:
        one, two = left.means[left.labels == label], right.means[right.labels == label]
        gaps = np.abs(one[:, None] - two[None, :]).max(axis=2)
        allowed = tolerance * np.abs(left.means).max()
        assert max(gaps.min(axis=0).max(), gaps.min(axis=1).max()) <= allowed


def pooled(clients):
    return np.concatenate([z for z, _ in clients]), np.concatenate([y for _, y in clients])


def solve(head, stat):
    """A head, or None where the method says it cannot (never a NaN, never another exception)."""
    try:
        solved = head.solve(stat)
    except SolveError:
        return None
    assert np.isfinite(solved.weights).all()
    assert np.isfinite(solved.bias).all()
    assert np.isfinite(solved.scores(np.ones((3, INPUTS[head.name](head, stat))))).all()
    return solved


INPUTS = {name: lambda head, stat: stat.dimension for name in HEADS}
INPUTS["fed3r-rf"] = lambda head, stat: 6


# -- sums ----------------------------------------------------------------------------------------


@every_head
def test_the_order_of_clients_does_not_move_a_bit_of_an_exact_total(head, make_clients):
    stats = measure(head, make_clients(), exact=True)
    digest = total(stats).digest()
    rng = np.random.default_rng(1)
    for _ in range(4):
        shuffled = [stats[i] for i in rng.permutation(len(stats))]
        assert total(shuffled).digest() == digest
        assert sum(shuffled).digest() == digest
        assert functools.reduce(operator.add, shuffled).digest() == digest


@every_head
def test_the_order_of_clients_does_not_move_a_float_head(head, make_clients):
    clients = make_clients()
    stats, (z, _) = measure(head, clients), pooled(clients)
    scores = head.solve(total(stats)).scores(z)
    np.testing.assert_allclose(head.solve(total(stats[::-1])).scores(z), scores, atol=1e-7)


@every_sum
def test_any_split_gives_the_pooled_bits_in_exact_mode(head, make_clients):
    z, y = pooled(make_clients(d=10))
    rng = np.random.default_rng(2)
    digest = head.measure(z, y, exact=True).digest()
    for threads in (1, 2):
        with threadpool_limits(threads):
            assert head.measure(z, y, exact=True).digest() == digest
            for _ in range(3):
                of = rng.integers(rng.integers(1, 20), size=len(y)) * 2  # the odd ones are empty
                parts = [(z[of == k], y[of == k]) for k in rng.permutation(of.max() + 2)]
                sent = [stat.to_bytes() for stat in measure(head, parts, exact=True)]
                received = [head.statistic.from_bytes(message) for message in sent]
                assert total(received).digest() == digest


@every_sum
def test_any_split_solves_to_the_pooled_head(head, make_clients):
    z, y = pooled(make_clients())
    expected = head.solve(head.measure(z, y))
    rng = np.random.default_rng(3)
    for _ in range(3):
        of = rng.integers(15, size=len(y)) * 2
        parts = [(z[of == k], y[of == k]) for k in range(of.max() + 2)]
        solved = head.solve(total(measure(head, parts)))
        assert solved.classes.tolist() == expected.classes.tolist()
        np.testing.assert_allclose(solved.weights, expected.weights, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(solved.bias, expected.bias, rtol=1e-6, atol=1e-6)


@every_sum
def test_a_client_taken_out_is_a_client_never_joined(head, make_clients):
    clients = make_clients()
    clients.append((clients[-1][0][:3], np.array([9, 9, 9])))  # a class only it has
    stats = measure(head, clients, exact=True)
    for k in range(len(stats)):
        rest = total(stats[:k] + stats[k + 1 :])
        assert (total(stats) - stats[k]).digest() == rest.digest()
    assert 9 not in (total(stats) - stats[-1]).classes
    floats = measure(head, clients)
    assert_close(total(floats) - floats[3], total(floats[:3] + floats[4:]), 1e-12)


@every_sum
@pytest.mark.parametrize("kind", [int, str])
def test_everybody_taken_out_is_a_total_of_empty_clients(head, make_clients, kind):
    clients = [(z, y.astype(kind)) for z, y in make_clients(sizes=(0, 3, 20))]
    empty, *others = measure(head, clients, exact=True)
    left = total([empty, *others])
    for stat in others:
        left = left - stat
    never = head.measure(np.zeros((0, 12)), [], exact=True)
    assert left.digest() == empty.digest() == never.digest()
    assert (left - never).digest() == never.digest()


@every_sum
def test_an_empty_client_can_be_taken_out_of_any_total(head, make_clients):
    z, y = pooled(make_clients())
    whole = head.measure(z, y.astype(str), exact=True)
    assert (whole - head.measure(np.zeros((0, 12)), [], exact=True)).digest() == whole.digest()


@every_sum
def test_only_a_part_of_the_sum_can_be_subtracted(head, make_clients):
    z, y = pooled(make_clients())
    whole = head.measure(z, y, exact=True)
    strangers = {
        "another class": head.measure(z[:3], [7, 8, 9], exact=True),
        "too many": head.measure(np.tile(z, (2, 1)), np.tile(y, 2), exact=True),
        "text": head.measure(z[:1], ["a"], exact=True),
    }
    for stranger in strangers.values():
        with pytest.raises(DataError, match="subtract"):
            _ = whole - stranger


@every_sum
def test_other_samples_in_the_same_numbers_are_no_part(head, make_clients):
    z, y = pooled(make_clients())
    whole = head.measure(z, y, exact=True)
    if not (set(values(whole)) - {"g"}):
        pytest.skip("counts alone cannot tell samples apart")
    with pytest.raises(DataError, match="subtract"):
        _ = whole - head.measure(z + 1.0, y, exact=True)


@every_head
def test_unlike_statistics_do_not_add(head, make_clients):
    ((z, y),) = make_clients(sizes=(9,))
    mine = head.measure(z, y, exact=True)
    floats = head.measure(z, y)
    others = [floats, head.measure(z, y.astype(str), exact=True)]
    if head.name != "fed3r-rf":  # its lattice and dimension are the map's own
        others += [
            head.measure(z, y, exact=True, bound=17.0),
            head.measure(z[:, :-1], y, exact=True),
        ]
    for other in others:
        for refuse in (lambda a, b: (a + b).digest(), lambda a, b: total([a, b])):
            with pytest.raises(DataError):
                refuse(mine, other)


def test_statistics_of_different_types_do_not_meet(make_clients):
    ((z, y),) = make_clients(sizes=(9,))
    stats = {type(s): s for s in (make(name).measure(z, y) for name in HEADS)}
    assert len(stats) > 1
    for one in stats.values():
        for other in stats.values():
            if one is not other:
                with pytest.raises(DataError, match="total"):
                    total([one, other])
                with pytest.raises(TypeError):
                    _ = one + other


# -- messages ------------------------------------------------------------------------------------


@every_head
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("n", [0, 1, 5, 11, 60])
def test_a_message_keeps_its_precision(head, make_clients, precision, n):
    ((z, y),) = make_clients(sizes=(n,))
    stat = head.measure(z, y, secret=b"s")
    for copy in (
        head.statistic.from_bytes(stat.to_bytes(precision)),
        head.statistic.from_arrays(stat.to_arrays(precision)),
    ):
        same = assert_same_rows if hasattr(stat, "means") else assert_close
        same(stat, copy, TOLERANCE[precision])


@every_head
def test_a_message_can_be_sent_on_at_any_precision(head, make_clients):
    """A relay decodes at one precision and encodes at another: the coarser one's error, no more."""
    for n in (5, 60):
        ((z, y),) = make_clients(sizes=(n,))
        stat = head.measure(z, y, secret=b"s")
        same = assert_same_rows if hasattr(stat, "means") else assert_close
        for first in PRECISIONS:
            for second in PRECISIONS:
                copy = head.statistic.from_bytes(stat.to_bytes(first))
                again = head.statistic.from_bytes(copy.to_bytes(second))
                same(stat, again, TOLERANCE[first] + TOLERANCE[second])


@every_head
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["clients", "digits", "constant", "low rank"])
def test_a_total_of_uploads_can_be_saved_and_read(head, make_clients, digits, precision, name):
    """Sums of rounded uploads are not quite those of any dataset: the checks must know."""
    rng = np.random.default_rng(9)
    clients = {
        "clients": make_clients(),
        "digits": [(digits[0][k * 7 : k * 7 + 7], digits[1][k * 7 : k * 7 + 7]) for k in range(30)],
        "constant": [(np.full((n, 9), 5.0), np.zeros(n, int)) for n in (3, 1, 20, 50)],
        "low rank": [
            (rng.normal(size=(n, 2)) @ rng.normal(size=(2, 9)), np.arange(n) % 2)
            for n in (3, 1, 5, 20, 50)
        ],
    }[name]
    uploads = [stat.to_bytes(precision) for stat in measure(head, clients)]
    received = total(head.statistic.from_bytes(message) for message in uploads)
    for stored in ("float64", "float32"):
        again = head.statistic.from_bytes(received.to_bytes(stored))
        assert again.samples == received.samples
    if hasattr(received, "means"):
        return
    left = received - head.statistic.from_bytes(uploads[-1])
    assert head.statistic.from_bytes(left.to_bytes("float64")).samples == left.samples


@every_head
@pytest.mark.parametrize("n", [0, 1, 5, 12, 60])
def test_an_exact_message_loses_nothing(head, make_clients, n):
    ((z, y),) = make_clients(sizes=(n,))
    stat = head.measure(z, y, exact=True, secret=b"s")
    cls, digest = head.statistic, stat.digest()
    assert cls.from_bytes(stat.to_bytes()).digest() == digest
    assert cls.from_arrays(stat.to_arrays()).digest() == digest
    for precision in ("float32", "float16", "int8"):
        with pytest.raises(DataError, match="precision"):
            stat.to_bytes(precision)


@every_head
@EXACT
@pytest.mark.parametrize("n", [4, 60])
def test_a_retry_sends_the_same_bytes(head, make_clients, exact, n):
    ((z, y),) = make_clients(sizes=(n,))
    first = head.measure(z, y, exact=exact, secret=b"mine")
    second = head.measure(z, y, exact=exact, secret=b"mine")
    for precision in ["float64"] if exact else PRECISIONS:
        assert first.to_bytes(precision) == second.to_bytes(precision)


@every_head
@EXACT
@pytest.mark.parametrize("n", [4, 60])
def test_looking_at_a_statistic_does_not_change_its_message(head, make_clients, exact, n):
    ((z, y),) = make_clients(sizes=(n,))
    stat = head.measure(z, y, exact=exact, secret=b"mine")
    before = stat.to_bytes()
    stat.digest()
    repr(stat)
    solve(head, stat)
    assert stat.to_bytes() == before


@every_head
@EXACT
def test_the_order_of_samples_does_not_move_a_byte(head, exact):
    """With always-zero leading features and zeros of both signs; few samples, or exact ones."""
    rng = np.random.default_rng(5)
    n, d = (40, 10) if exact else (6, 10)
    z, y = rng.normal(size=(n, d)).round(1), rng.integers(3, size=n)
    z[:, :3] = 0.0
    z[rng.random(z.shape) < 0.2] = 0.0
    if head.statistic.__name__ == "ClassSums":
        z = z.round() if not exact else z  # float sums of few whole numbers are exact as well
    message = head.measure(z, y, exact=exact, secret=b"s").to_bytes()
    for _ in range(4):
        order = rng.permutation(n)
        signed = np.where((z == 0) & (rng.random(z.shape) < 0.5), -0.0, z)
        assert head.measure(signed[order], y[order], exact=exact, secret=b"s").to_bytes() == message


# -- awkward clients -----------------------------------------------------------------------------


@every_head
@EXACT
def test_awkward_clients_add_up(head, exact):
    """Empty, one sample, one class, and a class that appears later; text labels."""
    rng = np.random.default_rng(6)
    labels = [[], ["a"], ["b"] * 5, ["c", "a"], [], ["a", "b", "c"] * 9]
    clients = [(rng.normal(size=(len(y), 6)), np.array(y, dtype=str)) for y in labels]
    running = total(measure(head, clients, exact=exact))
    assert running.classes.tolist() == ["a", "b", "c"]
    late = head.measure(rng.normal(size=(4, 6)), ["", "d", "zz", "é"], exact=exact)
    grown = running + late
    assert grown.classes.tolist() == ["", "a", "b", "c", "d", "zz", "é"]
    assert grown.samples == running.samples + 4
    solved = solve(head, grown)
    if not getattr(head, "blind", False):  # a frame needs as many dimensions as classes
        assert solved.classes.tolist() == grown.classes.tolist()
        assert set(solved.predict(rng.normal(size=(9, 6)))) <= set(grown.classes)


@every_head
def test_one_class_in_all_is_no_crash(head):
    rng = np.random.default_rng(7)
    stat = total(measure(head, [(rng.normal(size=(5, 6)), [3] * 5)] * 2))
    solved = solve(head, stat)
    assert solved is None or solved.predict(rng.normal(size=(4, 6))).tolist() == [3] * 4


def degenerate():
    rng = np.random.default_rng(8)
    z, y = rng.normal(size=(30, 6)), np.arange(30) % 3
    zero_features = z * (np.arange(6) > 2)
    return {
        "constant zero features": (zero_features, y),
        "all features zero": (z * 0, y),
        "a class all zero": (z * (y > 0)[:, None], y),
        "duplicates": (np.tile(z[:1], (30, 1)), y),
        "d > n": (z[:4], y[:4]),
        "a sample a class": (z[:3], y[:3]),
        "one sample": (z[:1], y[:1]),
        "collinear": (z[:, :1] @ np.arange(1.0, 7.0)[None, :], y),
        "tiny": (z * 1e-6, y),
        "huge": (z * 1e6, y),
        "constant": (np.ones_like(z), y),
    }


@every_head
@EXACT
@pytest.mark.parametrize("name", degenerate())
def test_no_nan_from_degenerate_features(head, exact, name):
    z, y = degenerate()[name]
    how = {"exact": True, "bound": max(1.0, float(np.abs(z).max()))} if exact else {}
    halves = [(z[::2], y[::2]), (z[1::2], y[1::2])]
    stat = total(measure(head, halves, **how))
    solve(head, stat)
    solve(head, head.statistic.from_bytes(stat.to_bytes()))
    solve(head, head.measure(z, y, **how))


@every_head
@EXACT
def test_nothing_can_be_solved_from_nothing(head, exact):
    stat = head.measure(np.zeros((0, 6)), [], exact=exact)
    assert stat.samples == 0
    with pytest.raises(SolveError):
        head.solve(stat)
    with pytest.raises(SolveError):
        head.solve(total([stat, stat]))


def test_a_total_of_nobody_is_an_error():
    with pytest.raises(DataError, match="total"):
        total([])
    for head in HEADS.values():
        with pytest.raises(DataError, match="total"):
            make(head.name).statistic.total([])


# -- files and bad inputs ------------------------------------------------------------------------


@every_head
@EXACT
def test_a_saved_head_is_the_head(head, make_clients, tmp_path, exact):
    stat = total(measure(head, make_clients(), exact=exact))
    solved = head.solve(stat)
    path = tmp_path / "head.safetensors"
    solved.save(path)
    loaded = LinearHead.load(path)
    z = np.random.default_rng(0).normal(size=(20, 12))
    assert np.array_equal(loaded.scores(z), solved.scores(z))
    assert loaded.classes.tolist() == solved.classes.tolist()
    assert loaded.temperature == solved.temperature
    assert loaded.provenance == solved.provenance
    assert loaded.provenance["method"] == head.name
    assert loaded.provenance["settings"] == settings_of(head)
    assert make(head.name, loaded.provenance["settings"]) == head
    assert loaded.provenance["total"] == stat.digest()
    assert loaded.provenance["exact"] is exact
    assert loaded.provenance["samples"] == stat.samples
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


GOOD = np.arange(12.0).reshape(4, 3)
BAD = {
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


@every_head
@EXACT
@pytest.mark.parametrize("case", BAD)
def test_bad_inputs_are_named(head, case, exact):
    features, labels, argument = BAD[case]
    with pytest.raises(HeadstartError, match=argument):
        head.measure(features, labels, exact=exact)


# NumPy would make one type of each of these before anybody looks
@pytest.mark.parametrize(
    "labels", [[0, "a", 0, "a"], [True, 2, 3, 4], [2**70, 1, 1, 1], ["a\0", "a", "a", "b"]]
)
def test_mixed_lists_of_labels_are_refused(labels):
    with pytest.raises(DataError, match="labels"):
        make("fedncm").measure(GOOD, labels)


@every_head
def test_features_beyond_the_bound_are_named(head):
    with pytest.raises(DataError, match="bound"):
        head.measure(GOOD, [0, 1, 0, 1], exact=True, bound=10.0)
    with pytest.raises(DataError, match="bound"):
        head.measure(GOOD, [0, 1, 0, 1], exact=True, bound=-1.0)


@pytest.mark.parametrize(
    ("name", "settings", "argument"),
    [
        ("nonsense", {}, "head"),
        ("fed3r", {"rigde": 1.0}, "rigde"),
        ("fed3r", {"ridge": -1.0}, "ridge"),
        ("fed3r", {"ridge": float("nan")}, "ridge"),
        ("fed3r", {"ridge": "auto"}, "ridge"),
        ("fed3r", {"ridge": True}, "ridge"),
        ("fed3r", {"scatter": "between"}, "scatter"),
        ("fed3r", {"rebalance": 0.8}, "rebalance"),
        ("fed3r-rf", {"bandwidth": 0.0}, "bandwidth"),
        ("fed3r-rf", {"dimension": 0}, "dimension"),
        ("fedcof", {"means": 0}, "means"),
        ("fedcof", {"shrinkage": float("inf")}, "shrinkage"),
        ("lda", {"shrinkage": 1.5}, "shrinkage"),
        ("lda", {"covariance": "none"}, "covariance"),
        ("shared-variances", {"kind": "full"}, "kind"),
    ],
)
def test_bad_settings_are_named(name, settings, argument):
    with pytest.raises(HeadstartError, match=argument):
        make(name, settings)

"""Statistics that no samples can give, made by somebody who knows the checks: each is refused.

What the attacks have in common: a bound that the sender could loosen (by claiming samples, by a
large feature next to a small one, by its own scale), or work that a small message could ask for.
"""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart import ClassSums, ClientMeans, Moments, WireError
from headstart.statistics import wire
from headstart.statistics.exact import LEVELS
from headstart.statistics.wire import Limits

RNG = np.random.default_rng(0)
D = 6
MOST = 100_000  # samples that one client may claim


def code_of(call, *args):
    with pytest.raises(WireError) as caught:
        call(*args)
    return caught.value.code


def changed(stat, precision=None, **changes):
    """A message with other arrays, and a checksum that fits them."""
    arrays = {name: np.array(array) for name, array in stat.to_arrays(precision).items()}
    arrays |= {name: np.asarray(array) for name, array in changes.items()}
    kinds = {Moments: "gram" if "a" in arrays else "factor"}
    kind = kinds.get(
        type(stat), {ClassSums: "class-sums", ClientMeans: "client-means"}.get(type(stat))
    )
    return wire.encode(kind, arrays)


def exact_gram(n=40, d=D, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, d))
    return Moments.measure(z, np.arange(n) % classes, exact=True, bound=8.0)


def place(i, j, d=D):
    """Of A_ij in a packed triangle."""
    return i * d - i * (i - 1) // 2 + j - i


LIMITS = Limits(samples=MOST, bound=8.0, dimension=D, classes=100)


# -- work that a small message asks for ----------------------------------------------------------


@pytest.mark.parametrize("classes", [5_000, 300_000])
@pytest.mark.parametrize("limits", [None, Limits(), LIMITS], ids=["own", "any", "contract"])
def test_many_empty_classes_cost_no_more_than_they_weigh(classes, limits):
    arrays = {
        "dimension": np.array(D),
        "classes": np.arange(classes),
        "counts": np.zeros(classes, np.int64),
        "z": np.zeros(0),
        "y": np.zeros((0, classes)),
    }
    message = wire.encode("factor", arrays)
    tracemalloc.start()
    try:
        code = code_of(Moments.from_bytes, message, limits)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert code in ("classes", "counts")
    assert peak < 8 * len(message) + 2**20


def test_classes_are_counted_before_they_are_read():
    text = np.array(["a", "b", "c"])[np.arange(40) % 3]
    for kind, y in ((Moments, text), (ClassSums, text), (ClientMeans, np.arange(40) % 3)):
        message = kind.measure(RNG.normal(size=(40, D)), y).to_bytes()
        assert code_of(kind.from_bytes, message, Limits(classes=2)) == "classes"
        kind.from_bytes(message, Limits(classes=3))
    flood = np.frombuffer(b"[" + b"[]," * 50_000 + b"[]]", np.uint8)
    message = changed(Moments.measure(RNG.normal(size=(40, D)), text), "float64", classes=flood)
    assert code_of(Moments.from_bytes, message, LIMITS) == "classes"


def test_a_factor_of_many_classes_is_judged_on_its_small_side():
    """2,000 classes of 3,000 samples in 12 dimensions: 12×12 numbers, not 2,000×2,000."""
    rng = np.random.default_rng(1)
    y = np.concatenate([np.arange(2_000), rng.integers(0, 2_000, 1_000)])
    message = Moments.measure(rng.normal(size=(3_000, 12)), y).to_bytes()
    tracemalloc.start()
    try:
        Moments.from_bytes(message, Limits())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**23


# -- whole numbers ---------------------------------------------------------------------------------


def test_the_lowest_whole_number_has_no_absolute_value():
    stat = ClassSums.measure(RNG.normal(size=(10, D)), np.zeros(10, int), exact=True, bound=8.0)
    sums = stat.tables["sums"].copy()
    sums[0, 0] = -(2**63)
    assert code_of(ClassSums.from_bytes, changed(stat, sums=sums), LIMITS) == "bound"
    gram = exact_gram()
    arrays = gram.to_arrays()
    for name in ("a", "b"):
        wrong = arrays[name].copy()
        wrong.flat[1] = -(2**63)
        assert code_of(Moments.from_bytes, changed(gram, **{name: wrong}), LIMITS) in (
            "bound",
            "impossible",
        )


def test_no_feature_has_more_squares_than_its_samples():
    """n·d·ρ² in one place kept the trace, and 68 clients of it left 63 bits."""
    gram = exact_gram()
    a = gram.to_arrays()["a"].copy()
    a[0] += 2 * (40 * LEVELS**2 // 2)
    assert code_of(Moments.from_bytes, changed(gram, a=a), LIMITS) == "bound"
    rows = np.zeros((40, D))
    rows[:, 0] = 8.0
    full = Moments.measure(rows, np.zeros(40, int), exact=True, bound=8.0)
    Moments.from_bytes(full.to_bytes(), LIMITS)  # the very bound is legal


def test_an_exact_factor_has_a_row_per_sample():
    """Four rows for a hundred thousand samples: products beyond 2⁵³, other bits in every order."""
    arrays = {
        "dimension": np.array(D),
        "classes": np.array([0]),
        "counts": np.array([MOST]),
        "z": np.concatenate([np.full(D - i, 2.0**22) for i in range(4)]),
        "y": np.zeros((4, 1)),
        "bound": np.array(8.0),
    }
    assert code_of(Moments.from_bytes, wire.encode("factor", arrays), LIMITS) == "shape"
    assert code_of(Moments.from_bytes, wire.encode("factor", arrays)) == "shape"


@given(st.integers(0, 2**32), st.integers(1, 12), st.sampled_from([1.0, 0.999, 0.01]))
@settings(max_examples=40, deadline=None)
def test_factors_at_the_bound_add_to_the_same_bits_in_every_order(seed, clients, scale):
    rng = np.random.default_rng(seed)
    sent = []
    for _ in range(clients):
        n = int(rng.integers(1, D + 1))
        z = scale * 8.0 * rng.choice([rng.choice([-1.0, 1.0], (n, D)), np.ones((n, D))])
        one = Moments.measure(z, rng.integers(0, 2, n), exact=True, bound=8.0)
        sent.append(Moments.from_bytes(one.to_bytes(), LIMITS))
    digests = {hs.total([sent[k] for k in rng.permutation(clients)]).digest() for _ in range(4)}
    assert len(digests) == 1
    if clients > 1:
        rest = hs.total(sent[1:])
        assert (hs.total(sent) - sent[0]).digest() == rest.digest()


def test_sums_of_whole_numbers_have_the_squares_that_whole_numbers_can_have():
    z = np.array([[1.0], [1.0], [0.0]])
    stat = ClassSums.measure(z, [0, 0, 0], exact=True, bound=float(LEVELS), squares="diagonal")
    assert stat.tables["squares"].tolist() == [[2]]
    ClassSums.from_bytes(changed(stat, squares=np.array([[4]])), Limits(bound=float(LEVELS)))
    one = ClassSums.measure(z[:1] * 4, [0], exact=True, bound=float(LEVELS), squares="diagonal")
    limits = Limits(bound=float(LEVELS))
    for squares in (14, 18):
        message = changed(one, squares=np.array([[squares]]))
        assert code_of(ClassSums.from_bytes, message, limits) == "impossible"


# -- positivity, whatever the other features are -------------------------------------------------


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float64"])
def test_a_large_feature_hides_no_impossible_one(exact):
    """Relative to the trace, features 1 and 2 may be anything next to feature 0."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=(40, D)) * np.array([2.0, *[1e-2] * (D - 1)])
    stat = Moments.measure(z, np.arange(40) % 3, exact=exact, bound=16.0)
    a = stat.to_arrays("float64")["a"].copy()
    a[place(1, 2)] = a[place(1, 1)] + a[place(2, 2)]
    message = changed(stat, "float64", a=a)
    assert code_of(Moments.from_bytes, message, Limits()) == "impossible"
    assert code_of(Moments.from_bytes, message) == "impossible"


def test_products_are_within_their_squares_where_a_feature_is_always_zero():
    z = RNG.normal(size=(40, D))
    z[:, 3] = 0.0
    stat = Moments.measure(z, np.arange(40) % 3, exact=True, bound=8.0)
    a = stat.to_arrays()["a"].copy()
    a[place(0, 3)] = 1
    assert code_of(Moments.from_bytes, changed(stat, a=a), LIMITS) == "impossible"


def test_a_client_gets_the_rounding_of_its_own_precision():
    """A thousandth off is float16's rounding: a float64 message has no such excuse, a sum has."""
    stat = Moments.measure(RNG.normal(size=(5, D)), [0, 0, 0, 1, 1], secret=b"s")
    y = stat.to_arrays("float64")["y"] * (1 + 2e-4)
    message = changed(stat, "float64", y=y)
    assert code_of(Moments.from_bytes, message, Limits()) == "impossible"
    Moments.from_bytes(message, Limits(total=True))
    sums = ClassSums.measure(np.ones((9, D)), np.zeros(9, int), squares="diagonal")
    message = changed(sums, "float64", squares=sums.tables["squares"] * (1 - 1e-3))
    assert code_of(ClassSums.from_bytes, message, Limits()) == "impossible"
    ClassSums.from_bytes(message, Limits(total=True))


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_a_scale_fits_its_row(precision):
    """A scale of its own choice would let the sender widen its rounding, and so the bound."""
    stat = Moments.measure(RNG.normal(size=(5, D)), [0, 0, 0, 1, 1], secret=b"s")
    arrays = stat.to_arrays(precision)
    name = "rows" if precision == "int8" else "z"
    coarser = (arrays[name] / 64).astype(arrays[name].dtype)
    message = changed(stat, precision, scale=arrays["scale"] * 64, **{name: coarser})
    assert code_of(Moments.from_bytes, message, Limits()) == "impossible"
    sums = ClassSums.measure(RNG.normal(size=(9, D)), np.zeros(9, int))
    arrays = sums.to_arrays(precision)
    coarser = (arrays["sums"] / 64).astype(arrays["sums"].dtype)
    message = changed(sums, precision, sums_scale=arrays["sums_scale"] * 64, sums=coarser)
    assert code_of(ClassSums.from_bytes, message, Limits()) == "impossible"


def test_no_more_directions_than_samples():
    """Of 8 samples in 6 dimensions and 3 classes the joint Gram has rank 8, not 9."""
    for exact in (True, False):
        stat = Moments.measure(RNG.normal(size=(8, D)), np.arange(8) % 3, exact=exact)
        Moments.from_bytes(stat.to_bytes("float64"), Limits())
        a = stat.to_arrays("float64")["a"].copy()
        for j in range(D):
            a[place(j, j)] += 2 * (a[place(j, j)] // 8) if exact else a[place(j, j)] / 8
        message = changed(stat, "float64", a=a)
        assert code_of(Moments.from_bytes, message, Limits()) == "impossible"
    stat = Moments.measure(RNG.normal(size=(8, D)), np.arange(8) % 3)
    message = changed(stat, "float32", y=stat.to_arrays("float32")["y"] * np.float32(0.9))
    assert code_of(Moments.from_bytes, message, Limits()) == "impossible"


# -- the norm of a sample ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Moments, ClassSums, ClientMeans])
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float"])
@pytest.mark.parametrize("n", [5, 40])
def test_samples_of_a_known_norm(kind, exact, n):
    z = RNG.normal(size=(n, D))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    for precision in ["float64"] if exact else ["float64", "float32", "float16", "int8"]:
        limits = Limits(bound=1.0, norm=1.0)
        message = kind.measure(z, np.zeros(n, int), exact=exact, bound=1.0).to_bytes(precision)
        kind.from_bytes(message, limits)
        long = np.full((n, D), 0.9)  # within the bound of every feature
        message = kind.measure(long, np.zeros(n, int), exact=exact, bound=1.0).to_bytes(precision)
        assert code_of(kind.from_bytes, message, limits) == "bound"


# -- rows of zeros, rounding, and numbers that would end as none -----------------------------------


@pytest.mark.parametrize("scale", [1.0, 1e12])
@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_the_scale_of_a_row_of_zeros_loosens_no_bound(precision, scale):
    """Rounding is what a scale allows a row to have moved; a row of zeros has not moved."""
    d = 4
    arrays = {
        "dimension": np.array(d),
        "classes": np.array([0, 1]),
        "counts": np.array([1, 1]),
        "y": np.eye(2, dtype=np.float16),
    }
    if precision == "int8":
        rows = np.zeros((2, d), np.int8)
        rows[0] = 127
        arrays |= {"rows": rows, "scale": np.array([0.4 / 127, scale], np.float32)}
    else:
        z = np.zeros(2 * d - 1, np.float16)
        z[:d] = 1
        arrays |= {"z": z, "scale": np.array([0.4, scale], np.float32)}
    message = wire.encode("factor", arrays)
    for limits in (Limits(bound=1e-3), Limits(norm=1e-3)):
        assert code_of(Moments.from_bytes, message, limits) in ("bound", "impossible")


@pytest.mark.parametrize("precision", ["float64", "float32", "float16", "int8"])
@pytest.mark.parametrize("kind", [ClassSums, ClientMeans])
def test_honest_samples_of_the_agreed_norm_are_let_in_at_every_precision(kind, precision):
    rng = np.random.default_rng(1)
    for _ in range(50):
        z = rng.normal(size=(20, 64))
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        stat = kind.measure(z, rng.integers(0, 12, 20))
        kind.from_bytes(stat.to_bytes(precision), Limits(norm=1.0))


def test_sums_that_would_leave_the_numbers_are_refused():
    """Two of them would be infinite, and a head of them none."""
    stat = ClassSums.measure(np.ones((2, D)), [0, 1])
    message = changed(stat, "float64", sums=np.full((2, D), 1.7e308))
    assert code_of(ClassSums.from_bytes, message, Limits()) == "bound"
    means = ClientMeans.measure(np.ones((2, D)), [0, 1])
    message = changed(means, "float64", means=np.full((2, D), 1.7e308))
    assert code_of(ClientMeans.from_bytes, message, Limits()) == "bound"

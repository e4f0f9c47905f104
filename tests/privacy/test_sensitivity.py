"""One sample, or one client, never moves a sum by more than μ: in whole numbers, for any data."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart.privacy.sensitivity as module
from headstart import HeadstartError
from headstart.privacy.layout import Layout
from headstart.privacy.noise import LOST
from headstart.privacy.refusals import Abort
from headstart.privacy.sensitivity import BOUND, Noise, along, shortened, unit_rows
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.exact import LEVELS
from headstart.statistics.moments import Moments

from .parties import entropy

CLASSES = np.arange(3)
SHARES = {"counts": 0.01, "sums": 0.79, "gram": 0.20}


def rows(kind, n, d, rng):
    """Feature vectors of every awkward kind."""
    return {
        "gaussian": lambda: rng.normal(size=(n, d)),
        "zero": lambda: np.zeros((n, d)),
        "one-hot": lambda: np.eye(d)[rng.integers(0, d, n)] * rng.choice([-3.0, 7.0], (n, 1)),
        "huge": lambda: rng.normal(size=(n, d)) * 1e139,
        "denormal": lambda: rng.normal(size=(n, d)) * 1e-310,
        "constant": lambda: np.full((n, d), 0.1),
        "mixed": lambda: rng.normal(size=(n, d)) * 10.0 ** rng.integers(-100, 100, (n, d)),
    }[kind]()


KINDS = ["gaussian", "zero", "one-hot", "huge", "denormal", "constant", "mixed"]


def measured(z, y, gram):
    kind = Moments if gram else ClassSums
    return kind.measure(unit_rows(z), y, exact=True, bound=BOUND, secret=b"test")


def squared(layout, difference, noise):
    """μ² of a difference in exact whole numbers: Σ x²/(s² − 4), off the diagonal with √2 twice."""
    at, found = 0, 0
    d, c = layout.dimension, len(layout.classes)
    for value in difference[:c].tolist():
        found += value**2 / (noise.variances["counts"] - LOST)
    at = c
    if layout.gram:
        for i in range(d):
            for j in range(i, d):
                value = int(difference[at])
                share = (noise.variances["gram"] - LOST) / (1 if i == j else 2)
                found += value**2 / share
                at += 1
    for value in difference[at:].tolist():
        found += value**2 / (noise.variances["sums"] - LOST)
    return found


@st.composite
def cases(draw):
    d, seed = draw(st.integers(1, 9)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n = draw(st.integers(0, 6))
    z = rows(draw(st.sampled_from(KINDS)), n, d, rng)
    more = rows(draw(st.sampled_from(KINDS)), draw(st.integers(1, 5)), d, rng)
    return z, rng.choice(CLASSES, n), more, rng.choice(CLASSES, len(more))


def moved(z, y, more, labels, gram, noise):
    """By how much the sum of z moves when `more` joins it, in deviations, squared."""
    without, joined = measured(z, y, gram), measured(more, labels, gram)
    layout = Layout.of(joined, CLASSES)
    total = type(joined).total([without, joined])
    plain = Noise(noise.variances, noise.mu)  # sums of all are clipped client by client
    difference = plain.vector(layout, total) - plain.vector(layout, without)
    if noise.clip:
        difference = noise.vector(layout, joined)
    return squared(layout, difference, noise)


@settings(max_examples=150, deadline=None)
@given(case=cases(), gram=st.booleans(), mu=st.floats(0.05, 3))
def test_a_sample_moves_a_release_by_mu_at_most(case, gram, mu):
    z, y, more, labels = case
    shares = SHARES if gram else {"counts": 0.01, "sums": 0.99}
    noise = Noise.plan(mu, shares)
    assert moved(z, y, more[:1], labels[:1], gram, noise) <= mu**2
    assert noise.unit_mu <= mu


@settings(max_examples=100, deadline=None)
@given(case=cases(), gram=st.booleans(), mu=st.floats(0.05, 3), reach=st.floats(1, 4))
def test_a_client_moves_a_release_by_mu_at_most(case, gram, mu, reach):
    z, y, more, labels = case
    shares = SHARES if gram else {"counts": 0.01, "sums": 0.99}
    noise = Noise.plan(mu, shares, reach=reach, clip=True)
    assert moved(z, y, more, labels, gram, noise) <= mu**2


def test_nothing_is_given_away():
    rng = np.random.default_rng(0)
    noise = Noise.plan(1.0, SHARES)
    found = [
        moved(np.zeros((0, 8)), [], rng.normal(size=(1, 8)), [0], True, noise) for _ in range(50)
    ]
    assert max(found) > 0.999**2
    clipped = Noise.plan(1.0, SHARES, reach=2.0, clip=True)
    many = moved(np.zeros((0, 8)), [], rng.normal(size=(60, 8)), [0] * 60, True, clipped)
    assert many > 0.999**2


def worst(d=40, draws=3000):
    rng = np.random.default_rng(1)
    found = (unit_rows(rng.normal(size=(draws, d))) * LEVELS).round().astype(np.int64)
    return (found**2).sum(axis=1).max() / LEVELS**2


def test_a_mutant_that_rounds_is_caught(monkeypatch):
    assert worst() <= 1.0
    monkeypatch.setattr(module.np, "trunc", np.rint)
    monkeypatch.setattr(module.np, "flatnonzero", lambda found: [])
    assert worst() > 1.0


def test_a_mutant_that_forgets_the_other_triangle_is_caught(monkeypatch):
    """With the diagonal's variance everywhere but half of it counted, a sample moves it too far."""
    noise = Noise.plan(1.0, {"counts": 0.001, "sums": 0.001, "gram": 0.998})
    z = np.ones((1, 9))
    layout = Layout.of(measured(z, [0], True), CLASSES)
    places = dict(enumerate(noise._places(layout)))
    variances = {len(np.arange(layout.size)[at]): variance for at, variance in places.values()}
    assert variances[36] - LOST == math.ceil((variances[9] - LOST) / 2)
    halved = Noise({**noise.variances, "gram": (noise.variances["gram"] - LOST) // 2 + LOST}, 1.0)
    assert moved(z[:0], [], z, [0], True, noise) <= 1
    assert moved(z[:0], [], z, [0], True, halved) > 1


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), d=st.integers(2, 9), scale=st.sampled_from([1e-200, 1, 1e130])
)
def test_what_is_along_the_direction_leaves(seed, d, scale):
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=d)
    direction /= np.linalg.norm(direction)
    z = rng.normal(size=(4, d)) * scale
    found = unit_rows(z, direction)
    assert np.abs(found @ direction).max() <= math.sqrt(d) / LEVELS
    one = unit_rows(z[2:3], direction)
    assert np.array_equal(found[2:3], one)  # whoever stands beside it
    assert not unit_rows(np.outer([1.0, -3.0], direction), direction).any()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_row_that_is_no_number_counts_and_moves_nothing_else(bad):
    z = np.array([[1.0, 2.0], [bad, 1.0], [bad, -bad]])
    found = unit_rows(z)
    assert not found[1:].any()
    assert np.array_equal(found[:1], unit_rows(z[:1]))
    assert moved(np.zeros((0, 2)), [], z[1:2], [0], True, Noise.plan(1.0, SHARES)) <= 1


@pytest.mark.parametrize("scale", [0.0, 1e200, 1e308, np.inf, np.nan])
def test_whatever_direction_is_sent_a_row_is_no_longer_than_one(scale):
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        found = unit_rows(rng.normal(size=(20, 5)) * 1e100, rng.normal(size=5) * scale)
    whole = np.rint(found * LEVELS)
    assert np.isfinite(whole).all()
    assert (whole**2).sum(axis=1).max() <= LEVELS**2


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 30), d=st.integers(1, 40))
def test_a_row_is_what_it_is_alone(seed, n, d):
    """Neither neighbours nor the order of an array in memory change a bit of it."""
    rng = np.random.default_rng(seed)
    z, direction = rng.normal(size=(n, d)), rng.normal(size=d)
    columns = np.linalg.qr(rng.normal(size=(d, d)))[0][:, : max(1, d // 2)]
    all_, alone = unit_rows(z, direction), [unit_rows(row[None], direction)[0] for row in z]
    assert np.array_equal(all_, alone)
    assert np.array_equal(all_, unit_rows(np.asfortranarray(z), direction))
    assert np.array_equal(along(z, columns), [along(row[None], columns)[0] for row in z])
    assert np.array_equal(along(z, columns), along(np.asfortranarray(z), columns))
    assert np.allclose(along(z, columns), z @ columns)


@st.composite
def images(draw):
    """A few images of many samples, alike within an image as cells are, or not at all."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d, most = draw(st.integers(1, 9)), draw(st.integers(1, 12))
    kind, same = draw(st.sampled_from(KINDS)), draw(st.booleans())
    sizes = rng.integers(1, most + 1, draw(st.integers(1, 3)))
    z = rows(kind, int(sizes.sum()), d, rng)
    if same:
        z = z[np.repeat(np.cumsum(sizes) - 1, sizes)]
    labels = rng.choice(CLASSES, len(z)) if draw(st.booleans()) else np.zeros(len(z), int)
    return z, labels, np.repeat(np.arange(len(sizes)), sizes), most


def by_image(z, labels, images, gram, noise):
    short = shortened(unit_rows(z), labels, images, noise)
    kind = Moments if gram else ClassSums
    return kind.measure(short, labels, exact=True, bound=BOUND, secret=b"test")


@settings(max_examples=200, deadline=None)
@given(case=images(), gram=st.booleans(), mu=st.floats(0.05, 3), part=st.floats(0.01, 1))
def test_an_image_moves_a_release_by_mu_at_most(case, gram, mu, part):
    z, labels, of, most = case
    shares = SHARES if gram else {"counts": 0.01, "sums": 0.99}
    noise = Noise.plan(mu, shares, reach=max(1.0, part * most), rows=most)
    total = by_image(z, labels, of, gram, noise)
    layout = Layout.of(total, CLASSES)
    whole = noise.vector(layout, total)
    for image in np.unique(of):  # without one: the others are what they were
        kept = of != image
        rest = noise.vector(layout, by_image(z[kept], labels[kept], of[kept], gram, noise))
        assert squared(layout, whole - rest, noise) <= mu**2


@pytest.mark.parametrize("gram", [True, False])
def test_of_images_nothing_is_given_away_and_mutants_are_caught(gram, monkeypatch):
    z, labels, of = np.ones((60, 9)), np.zeros(60, int), np.zeros(60, int)
    noise = Noise.plan(1.0, SHARES if gram else {"counts": 0.01, "sums": 0.99}, reach=15, rows=60)

    fitting = Noise.fitting

    def found(z):
        total = by_image(z, labels, of, gram, noise)
        layout = Layout.of(total, CLASSES)
        return squared(layout, noise.vector(layout, total), noise)

    assert 0.998 < found(z) <= 1
    monkeypatch.setattr(module, "shortened", lambda rows, *_: rows)
    plain = measured(unit_rows(z), labels, gram)
    assert (
        squared(Layout.of(plain, CLASSES), noise.vector(Layout.of(plain, CLASSES), plain), noise)
        > 4
    )
    if gram:  # one that forgets A
        without = Noise({k: v for k, v in noise.variances.items() if k != "gram"}, 1.0, rows=60)
        monkeypatch.setattr(Noise, "fitting", lambda self, *of: fitting(without, *of))
        assert found(z) > 1.01


def test_images_of_more_samples_than_planned_are_refused():
    noise = Noise.plan(1.0, SHARES, reach=2, rows=4)
    with pytest.raises(HeadstartError, match="rows: expected images of at most 4 samples, got 5"):
        by_image(np.ones((5, 3)), np.zeros(5, int), np.zeros(5, int), True, noise)
    assert Noise.from_text(noise.to_text()) == noise
    with pytest.raises(Abort, match="expected noise for images of 1000000 samples"):
        Noise(noise.variances, 1.0, rows=10**6)


def test_noise_that_does_not_fit_is_refused():
    noise = Noise.plan(1.0, SHARES)
    statistic = measured(np.ones((2, 3)), [0, 1], False)
    for broken in (
        lambda: noise.added(Layout.of(statistic, CLASSES), np.zeros(12, np.int64)),
        lambda: Noise.plan(1e9, SHARES),
        lambda: Noise.plan(1e-9, SHARES).check_room(1),
        lambda: Noise.from_plain({"variances": {"counts": 1.5}, "mu": 1, "clip": False}),
        lambda: Noise.from_plain({}),
        lambda: Noise.from_text(b"\xff"),
    ):
        with pytest.raises(Abort) as refused:
            broken()
        assert refused.value.code in ("noise", "overflow")
    assert Noise.from_text(noise.to_text()) == noise


def test_shares_add_up_to_all_of_the_noise():
    noise = Noise.plan(0.5, SHARES, colluding=1)
    layout = Layout.of(measured(np.ones((1, 20)), [0], True), CLASSES)
    zeros = np.zeros(layout.size, np.int64)
    shares = [noise.added(layout, zeros, entropy(k), shares=6) for k in range(6)]
    found = noise.restored(layout, sum(shares))
    for part, table in found.tables.items():
        if table.size > 50:
            want = noise.variances[part] * (0.5 + 0.5 * 20 / 210 if part == "gram" else 1)
            assert np.mean(table.astype(float) ** 2) == pytest.approx(want, rel=0.5)

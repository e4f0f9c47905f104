"""The third message: what class means leave unexplained, a sum of samples like the others."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
import headstart.privacy.residual as module
from headstart import HeadstartError
from headstart.heads.noisy import unit_weights
from headstart.privacy.accountant import composed
from headstart.privacy.layout import Layout
from headstart.privacy.residual import SHARPNESS, STEP, residual_sums
from headstart.privacy.sensitivity import Noise, unit_rows
from headstart.privacy.statement import Statement
from headstart.statistics.exact import LEVELS
from headstart.statistics.noisy import NoisySums

from .private_runs import FED3R, NCM, TRUSTS, UNITS, X, Y, planned, private
from .test_sensitivity import KINDS, rows, squared

CLASSES = np.arange(3)
SHARES = {"counts": 0.01, "sums": 0.99}


def sums(z, y, weights):
    return residual_sums(unit_rows(z), np.asarray(y), CLASSES, weights)


def unit(weights):
    """Rows no longer than 1: what a client takes."""
    lengths = np.linalg.norm(weights, axis=1, keepdims=True)
    return weights / np.maximum(1.0, lengths)


def moved(z, y, more, label, weights):
    """By how much the third message moves when one sample joins, in deviations, squared."""
    noise = Noise.plan(1.0, SHARES)
    without, joined = sums(z, y, weights), sums(np.vstack([z, more]), [*y, label], weights)
    layout = Layout.of(joined, CLASSES[:1])
    difference = noise.vector(layout, joined) - noise.vector(layout, without)
    return squared(layout, difference, noise)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 9),
    n=st.integers(0, 5),
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
)
def test_a_sample_moves_it_by_mu_at_most_whatever_the_means(seed, d, n, kinds, scale):
    rng = np.random.default_rng(seed)
    z, more = rows(kinds[0], n, d, rng), rows(kinds[1], 1, d, rng)
    weights = unit(scale * rng.normal(size=(3, d)))
    assert moved(z, rng.choice(CLASSES, n), more, rng.choice(CLASSES), weights) <= 1.0


def worst(draws=300, d=24):
    """The longest sample's part that was found, in those of the lattice."""
    rng = np.random.default_rng(0)
    weights = unit(rng.normal(size=(3, d)))
    one = (sums(rng.normal(size=(1, d)), [k % 3], weights).tables["sums"] for k in range(draws))
    return max(float((found.astype(float) ** 2).sum()) for found in one) / LEVELS**2


def test_nothing_is_given_away():
    assert 0.998 < worst() <= 1.0


def test_a_mutant_that_does_not_clip_is_caught(monkeypatch):
    def unclipped(row, place, weights):
        scores = SHARPNESS * (weights @ row)
        likely = np.exp(scores - scores.max())
        return np.eye(len(weights))[place] - likely / likely.sum()

    monkeypatch.setattr(module, "unexplained", unclipped)
    assert worst() > 1.5


def test_a_mutant_that_rounds_is_caught(monkeypatch):
    monkeypatch.setattr(module.np, "trunc", np.rint)
    monkeypatch.setattr(module, "_BELOW", 1.0)
    rng = np.random.default_rng(0)
    weights = -np.eye(3, 40)
    found = [sums(rng.normal(size=(1, 40)), [0], weights).tables["sums"] for _ in range(2000)]
    assert max((one.astype(float) ** 2).sum() for one in found) > LEVELS**2


def test_it_is_one_step_of_a_softmax_head():
    """Against the equation, on samples at once."""
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(40, 6)), rng.choice(CLASSES, 40)
    weights = unit(rng.normal(size=(3, 6)))
    units = unit_rows(z)
    scores = np.exp(SHARPNESS * units @ weights.T)
    left = np.eye(3)[y] - scores / scores.sum(axis=1, keepdims=True)
    left /= np.maximum(1, np.linalg.norm(left, axis=1, keepdims=True))
    found = sums(z, y, weights).class_sums().reshape(3, 6)
    assert np.abs(found - left.T @ units).max() < 40 / LEVELS
    parts = [sums(z[own], y[own], weights) for own in (slice(0, 7), slice(7, 40))]
    assert np.array_equal((parts[0] + parts[1]).class_sums(), sums(z, y, weights).class_sums())


@pytest.mark.parametrize("trust", TRUSTS)
def test_three_messages_add_up_to_the_promise(trust, tmp_path):
    one = private(trust, residual=True)
    release = one.total(NCM).statistic
    charges = {name.partition("-")[0]: square for name, square in one.budget.charges.items()}
    assert set(charges) == {"mean", "sums", "residual"}
    shares = {name: square / one.plan.mu**2 for name, square in charges.items()}
    assert shares == pytest.approx({"mean": 0.03, "sums": 0.68, "residual": 0.29})
    assert composed(math.sqrt(square) for square in charges.values()) <= one.plan.mu * (1 + 1e-9)
    assert "residual 29%" in str(Statement.of_plain(release.statement))
    assert "in 3 messages" in str(Statement.of_plain(release.statement))
    assert one.total(NCM).statistic.digest() == release.digest()  # from the budget
    again = NoisySums.from_bytes(release.to_bytes())
    assert again.digest() == release.digest()
    head = hs.FedNCM()
    assert np.array_equal(head.solve(again).weights, head.solve(release).weights)


def test_the_head_is_the_class_means_and_a_step():
    release = private(residual=True).total(NCM).statistic
    means = unit_weights(release, release.class_sums())
    found = means + release.correction
    found -= np.outer(found @ release.direction, release.direction)
    assert np.allclose(hs.FedNCM().solve(release).weights, found)
    assert STEP == 0.3


def test_it_corrects_class_means():
    """At little noise it is better than them; means of eight draws each."""

    def accuracy(**how):
        found = [hs.FedNCM().solve(private(**how).total(NCM).statistic) for _ in range(8)]
        return np.mean([head.accuracy(X[1200:], Y[1200:]) for head in found])

    assert accuracy(epsilon=40.0, residual=True) > accuracy(epsilon=40.0)


@pytest.mark.parametrize("unit", UNITS)
def test_it_is_refused_where_it_corrects_nothing(unit):
    one = private(unit=unit, residual=True)
    with pytest.raises(HeadstartError, match=r"residual: expected class means \(fedncm\)"):
        one.total(FED3R)
    assert not one.budget.charges
    with pytest.raises(HeadstartError, match="residual: expected unit sample or client"):
        planned(unit="image", residual=True)


@pytest.mark.parametrize("weights", [np.full((3, 4), np.nan), np.zeros((2, 4)), np.zeros((3, 5))])
def test_a_server_that_sends_no_means_is_refused(weights):
    with pytest.raises(HeadstartError, match="weights: expected 3×4 numbers"):
        sums(np.ones((2, 4)), [0, 1], weights)


def test_rows_that_would_make_scores_overflow_are_refused():
    """Of them the softmax would say which side of a plane of the server's each sample is on."""
    with pytest.raises(HeadstartError, match="weights: expected rows of unit length, got longer"):
        sums(np.ones((2, 4)), [0, 1], np.full((3, 4), 2.0))

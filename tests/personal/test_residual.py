"""The residual ridge against the naive formula, refitting, and what a client may ask of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.heads.leverage import Leverage
from headstart.personal import VARIANTS, Settings
from headstart.personal.residual import GRID, Choice, choose, problem, spectrum

RNG = np.random.default_rng(0)
TALL, WIDE = RNG.normal(size=(30, 7)), RNG.normal(size=(9, 20))
MUS = (1e-3, 0.5, 40.0)


def made(samples=300, dimension=6, classes=4, seed=0, head=None):
    """A global head, calibrated, with its samples."""
    rng = np.random.default_rng(seed)
    means = 2.0 * rng.normal(size=(classes, dimension))
    y = rng.integers(0, classes, samples)
    z = means[y] + rng.normal(size=(samples, dimension))
    head = head or hs.Fed3R(ridge=0.1)
    total = head.measure(z, y)
    return head.solve(total).calibrate(z, y), z, y, head, total


def posed(head, z, y, leverage=None):
    own = VARIANTS["oll"](head, z, y, Settings())
    prior = VARIANTS["prior"](head, z, y, Settings())
    return problem(own, prior, z, y, leverage or Leverage())


@pytest.mark.parametrize("z", [TALL, WIDE], ids=["n > d", "n < d"])
@pytest.mark.parametrize("mu", MUS)
def test_v_is_the_naive_formula(z, mu):
    residual = np.random.default_rng(1).normal(size=(len(z), 3))
    centred = z - z.mean(axis=0)
    naive = centred.T @ np.linalg.solve(
        centred @ centred.T + mu * np.eye(len(z)), residual - residual.mean(axis=0)
    )
    np.testing.assert_allclose(spectrum(z).weights(residual, mu), naive, atol=1e-9)


@pytest.mark.parametrize("z", [TALL, WIDE], ids=["n > d", "n < d"])
@pytest.mark.parametrize("mu", MUS)
def test_left_out_residuals_are_those_of_refitting(z, mu):
    residual = np.random.default_rng(2).normal(size=(len(z), 3))
    found = spectrum(z).left_out(residual, mu)
    for i in range(len(z)):
        rest = np.arange(len(z)) != i
        mean, offset = z[rest].mean(axis=0), residual[rest].mean(axis=0)
        v = spectrum(z[rest]).weights(residual[rest], mu)
        np.testing.assert_allclose(found[i], residual[i] - offset - (z[i] - mean) @ v, atol=1e-8)


@pytest.mark.parametrize("head", [hs.Fed3R(), hs.Fed3R(bias=True, normalize=False), hs.FedNCM(),
                                  hs.Fed3RRandomFeatures(dimension=40, bandwidth=3.0)],
                         ids=lambda head: f"{head.name} {getattr(head, 'bias', '')}")  # fmt: skip
def test_a_left_out_score_is_that_of_the_head_without_the_sample(head):
    """With the scale, the residual and the prior as they are: only V is fitted again."""
    model, z, y, *_ = made(head=head)
    z, y = z[:25] * 1.5, y[:25]
    one = posed(model, z, y)
    for mu in (0.3, 10.0):
        scores = one._left_out(mu)
        for i in (0, 7, 24):
            rest = np.arange(25) != i
            phi = model.feature_map(z) if model.feature_map else z
            part = spectrum(phi[rest])
            v = part.weights(one.residual[rest], mu) / one.scale
            expected = one.scores[i] + (phi[i] - part.mean) @ v
            np.testing.assert_allclose(scores[i], expected, atol=1e-7)


def test_no_change_is_the_head_with_prior_exactly():
    model, z, y, *_ = made()
    prior = VARIANTS["prior"](model, z[:20], y[:20], Settings())
    kept = posed(model, z[:20], y[:20]).with_mu(np.inf)
    assert kept.weights.tobytes() == prior.weights.tobytes()
    assert kept.bias.tobytes() == prior.bias.tobytes()
    near = posed(model, z[:20], y[:20]).with_mu(1e12)
    np.testing.assert_allclose(near.scores(z), prior.scores(z), atol=1e-6)


def test_the_head_of_a_mu_is_the_old_one_plus_v():
    model, z, y, *_ = made()
    z, y = z[:30], y[:30]
    one = posed(model, z, y)
    head, prior = one.with_mu(2.0), one.head
    v = spectrum(z).weights(one.residual, 2.0)
    np.testing.assert_allclose(
        head.scores(z), prior.scores(z) + (z - z.mean(axis=0)) @ v / one.scale, atol=1e-10
    )
    assert head.classes.tolist() == prior.classes.tolist()


def test_any_scale_of_the_head_gives_the_same_predictions():
    model, z, y, *_ = made()
    large = replace(model, weights=1e3 * model.weights, temperature=1e3 * model.temperature)
    shifted = z[:60] @ np.linalg.qr(np.random.default_rng(3).normal(size=(6, 6)))[0]
    heads = [VARIANTS["ridge"](one, shifted, y[:60], Settings()) for one in (model, large)]
    np.testing.assert_allclose(1e3 * heads[0].scores(z), heads[1].scores(z), rtol=1e-8)


@pytest.mark.parametrize("turn", ["rotated", "scaled", "moved"])
def test_a_client_with_other_features_gains(turn):
    model, z, y, *_ = made(samples=800)
    rng = np.random.default_rng(4)
    if turn == "rotated":
        z = z @ np.linalg.qr(np.eye(6) + 0.6 * rng.normal(size=(6, 6)))[0]
    elif turn == "scaled":
        z = z * np.exp(2.0 * rng.normal(size=6))
    else:
        z = z + 3.0 * rng.normal(size=6)
    own, rest = np.arange(200), np.arange(200, 800)
    prior, ridge = (VARIANTS[k](model, z[own], y[own], Settings()) for k in ("prior", "ridge"))
    gain = ridge.accuracy(z[rest], y[rest]) - prior.accuracy(z[rest], y[rest])
    assert gain > 0.02


def test_a_client_like_all_others_loses_next_to_nothing():
    model, z, y, *_ = made(samples=1500)
    own, rest = np.arange(60), np.arange(60, 1500)
    prior, ridge = (VARIANTS[k](model, z[own], y[own], Settings()) for k in ("prior", "ridge"))
    assert ridge.accuracy(z[rest], y[rest]) > prior.accuracy(z[rest], y[rest]) - 0.02


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("single", [False, True])
def test_few_samples_or_one_class_break_nothing(count, single):
    model, z, y, *_ = made()
    at = np.flatnonzero(y == y[0])[:count] if single else np.arange(count)
    head = VARIANTS["ridge"](model, z[at], y[at], Settings())
    prior = VARIANTS["prior"](model, z[at], y[at], Settings())
    assert np.isfinite(head.scores(z)).all()
    if len(np.unique(y[at])) == 1:
        assert (head.predict(z) == y[at[0]]).all()
        assert head.weights.tobytes() == prior.weights.tobytes()


def test_the_same_sample_twice_or_only_zeros_break_nothing():
    model, z, *_ = made()
    for features in (np.repeat(z[:1], 6, axis=0), np.zeros((6, 6))):
        head = VARIANTS["ridge"](model, features, [0, 1, 2, 0, 1, 2], Settings())
        assert np.isfinite(head.scores(z)).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 25), st.integers(1, 4), st.sampled_from((0.0, 0.9)))
def test_never_nan(seed, count, classes, mean):
    model, z, *_ = made()
    rng = np.random.default_rng(seed)
    own = 10.0 ** rng.integers(-6, 6) * rng.normal(size=(count, 6))
    y = rng.integers(0, classes, count)
    head = VARIANTS["ridge"](model, own, y, Settings(0.5, Leverage(mean, 2.0)))
    assert np.isfinite(head.weights).all()
    assert np.isfinite(head.scores(z)).all()
    assert set(head.predict(z)) <= set(y)


def test_the_choice():
    keep = Choice(np.inf, 5, 1.0)
    assert choose([keep, Choice(9.0, 5, 1.0), Choice(1.0, 5, 1.0)]) is keep  # nothing gained
    assert choose([keep, Choice(9.0, 4, 0.1)]) is keep  # hits before loss
    assert choose([keep, Choice(9.0, 5, 0.9), Choice(1.0, 5, 0.9)]).mu == 9.0  # the smaller change
    assert choose([keep, Choice(9.0, 6, 2.0)]).mu == 9.0
    assert len(posed(*made()[:3]).candidates()) == 1 + len(GRID)


def test_a_head_of_zeros_is_kept():
    model, z, y, *_ = made()
    one = posed(replace(model, weights=0 * model.weights), z[:30], y[:30])
    assert [choice.mu for choice in one.candidates()] == [np.inf]


def test_a_head_that_contradicts_the_client_is_overruled():
    model, z, y, *_ = made()
    wrong = replace(model, weights=-model.weights)
    head = VARIANTS["ridge"](wrong, z[:100], y[:100], Settings())
    assert head.accuracy(z[100:], y[100:]) > 0.8


def test_samples_of_unknown_classes_are_left_aside():
    model, z, y, *_ = made()
    with_others = np.where(np.arange(40) < 30, y[:40], 99)
    one = VARIANTS["ridge"](model, z[:40], with_others, Settings())
    two = VARIANTS["ridge"](model, z[:30], y[:30], Settings())
    assert one.weights.tobytes() == two.weights.tobytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda m, z, y: (m, z[:3], y[:2]), r"labels: expected one per sample \(3\), got 2"),
        (lambda m, z, y: (m, z[:2], ["a", "b"]), "labels: expected classes like"),
        (lambda m, z, y: (m, z[:2], [98, 99]), "expected samples of the head's classes, got none"),
        (lambda m, z, y: (m, z[:2, :3], y[:2]), "features: expected dimension 6, got 3"),
        (lambda m, z, y: (m, z[:2] * np.nan, y[:2]), "features: expected finite numbers"),
        (lambda m, z, y: (hs.Fed3R().solve(hs.Moments.measure(z, y)), z, y), "not calibrated"),
    ],
)
def test_mistakes_are_named(wrong, message):
    model, z, y, *_ = made()
    with pytest.raises(hs.HeadstartError, match=message):
        VARIANTS["ridge"](*wrong(model, z, y), Settings())


# -- leverage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
def test_leverage_is_the_mean_of_the_hat_matrix(bias):
    _, z, y, *_ = made()
    head = hs.Fed3R(ridge=2.0, bias=bias, normalize=False)
    found = head.leverage(head.measure(z, y))
    c = z - z.mean(axis=0) if bias else z
    hat = c @ np.linalg.solve(c.T @ c + 2.0 * np.eye(6), c.T) + bias / len(z)
    assert found.mean == pytest.approx(np.trace(hat) / len(z))
    assert found.scale == pytest.approx(1.0)


def test_scores_left_out_are_those_of_solving_without_the_sample():
    """Exactly so for a design in which all leverages are equal."""
    z = np.concatenate([np.eye(4), -np.eye(4)])
    y = np.array([0, 1, 0, 1, 1, 1, 0, 0])
    head = hs.Fed3R(ridge=0.5, normalize=False)
    total = head.measure(z, y)
    found = head.leverage(total).left_out(head.solve(total).scores(z), y)
    for i in range(8):
        rest = np.arange(8) != i
        without = head.solve(head.measure(z[rest], y[rest]))
        np.testing.assert_allclose(found[i], without.scores(z[i])[0], atol=1e-12)


def test_the_scale_is_the_mean_norm_of_the_columns():
    _, z, y, *_ = made()
    plain, unit = hs.Fed3R(ridge=1.0, normalize=False), hs.Fed3R(ridge=1.0)
    total = unit.measure(z, y)
    norms = np.linalg.norm(plain.solve(total).weights, axis=1)
    assert unit.leverage(total).scale == pytest.approx(norms.mean())
    assert hs.Fed3R(scatter="within").leverage(total) == Leverage()


def test_calibration_with_leverage_is_that_of_fresh_samples():
    """Random features that interpolate: the training loss wants T → 0, which is of no use."""
    head = hs.Fed3RRandomFeatures(ridge=0.01, dimension=600, bandwidth=3.0)
    model, z, y, head, total = made(samples=300, dimension=10, classes=4, seed=5, head=head)
    rng = np.random.default_rng(5)
    means = 2.0 * rng.normal(size=(4, 10))
    fresh_y = rng.integers(0, 4, 2000)
    fresh = means[fresh_y] + rng.normal(size=(2000, 10))
    wanted = model.calibrate(fresh, fresh_y).temperature
    found = model.calibrate(z, y, head.leverage(total)).temperature
    assert model.temperature < wanted / 5
    assert wanted / 3 < found < wanted * 3


@pytest.mark.parametrize(("mean", "scale"), [(1.0, 1.0), (-0.1, 1.0), (np.nan, 1.0), (0.5, 0.0)])
def test_an_impossible_leverage_is_refused(mean, scale):
    with pytest.raises(hs.HeadstartError, match="leverage: expected"):
        Leverage(mean, scale)

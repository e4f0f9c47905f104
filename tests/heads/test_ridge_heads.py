"""Fed3R, its options, and the ridge path, against scikit-learn and against plain loops."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from headstart import Fed3R, HeadstartError, Moments, SolveError, total
from headstart.heads.ridge import normal, ridge_path

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(4, 9))
Y = RNG.choice(4, size=120, p=[0.5, 0.3, 0.15, 0.05])
Z = CENTRES[Y] + RNG.normal(size=(120, 9))
TEST = RNG.normal(size=(50, 9))
HOT = np.eye(4)[Y]
G = HOT.sum(axis=0)


def federated(z=Z, y=Y, clients=17, seed=1):
    """A total over a random split, some clients empty."""
    of = np.random.default_rng(seed).integers(clients, size=len(y)) * 2
    return total(Moments.measure(z[of == k], y[of == k]) for k in range(2 * clients))


@pytest.mark.parametrize("ridge", [1e-6, 0.01, 3.0, 1e4])
@pytest.mark.parametrize("seed", range(3))
def test_fed3r_is_pooled_ridge(ridge, seed):
    expected = Ridge(alpha=ridge, fit_intercept=False).fit(Z, HOT)
    head = Fed3R(ridge=ridge, normalize=False).solve(federated(seed=seed, clients=3 + 10 * seed))
    np.testing.assert_allclose(head.weights, expected.coef_, rtol=1e-6, atol=1e-9)
    assert not head.bias.any()


@pytest.mark.parametrize("ridge", [0.01, 3.0])
@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_fed3r_with_bias_is_pooled_ridge_with_intercept(ridge, shift):
    expected = Ridge(alpha=ridge, fit_intercept=True).fit(Z + shift, HOT)
    head = Fed3R(ridge=ridge, normalize=False, bias=True).solve(federated(Z + shift))
    np.testing.assert_allclose(head.weights, expected.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(head.bias, expected.intercept_, rtol=1e-6, atol=1e-8)


def test_more_features_than_samples():
    expected = Ridge(alpha=0.1, fit_intercept=False).fit(Z[:5], np.eye(4)[Y[:5]])
    few = federated(Z[:5], Y[:5], clients=3)
    head = Fed3R(ridge=0.1, normalize=False).solve(few)
    shown = np.isin(np.arange(4), Y[:5])
    np.testing.assert_allclose(head.weights, expected.coef_[shown], rtol=1e-6, atol=1e-9)


def test_normalized_columns_point_the_same_way_with_unit_length():
    stat = federated()
    plain, unit = Fed3R(normalize=False).solve(stat), Fed3R().solve(stat)
    np.testing.assert_allclose(np.linalg.norm(unit.weights, axis=1), 1.0)
    norms = np.linalg.norm(plain.weights, axis=1)
    np.testing.assert_allclose(unit.weights * norms[:, None], plain.weights, atol=1e-12)


def test_normalizing_with_a_bias_scales_both():
    stat = federated(Z + 2.0)
    plain = Fed3R(normalize=False, bias=True).solve(stat)
    unit = Fed3R(bias=True).solve(stat)
    norms = np.linalg.norm(plain.weights, axis=1)
    np.testing.assert_allclose(unit.scores(TEST) * norms, plain.scores(TEST), atol=1e-10)


@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.0])
def test_rebalancing_scales_each_column_by_its_rarity(alpha):
    stat = federated()
    plain = Fed3R(normalize=False).solve(stat)
    balanced = Fed3R(normalize=False, rebalance=alpha).solve(stat)
    gamma = len(Y) / (4 * G)
    np.testing.assert_allclose(balanced.weights, plain.weights * gamma[:, None] ** alpha)
    assert gamma[3] > 1 > gamma[0]


# -- GCV -------------------------------------------------------------------------------------------


def brute_gcv(z, hot, ridge, centred):
    n = len(z)
    if centred:
        z, hot = z - z.mean(axis=0), hot - hot.mean(axis=0)
    hat = z @ np.linalg.solve(z.T @ z + ridge * np.eye(z.shape[1]), z.T)
    freedom = np.trace(hat) + centred  # the intercept is one more
    rss = ((hot - hat @ hot) ** 2).sum()
    return (rss / n) / (1 - freedom / n) ** 2, rss, freedom


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n", [30, 120])
def test_gcv_is_that_of_the_hat_matrix(bias, n):
    z, hot = Z[:n] + 1.0, np.eye(4)[Y[:n]]
    hot = hot[:, hot.any(axis=0)]
    path = Fed3R(bias=bias).path(federated(z, Y[:n]))
    for i in range(0, len(path.ridges), 10):
        score, rss, freedom = brute_gcv(z, hot, path.ridges[i], bias)
        assert path.residuals[i] == pytest.approx(rss, rel=1e-6)
        assert path.freedom[i] == pytest.approx(freedom, rel=1e-6)
        assert path.scores[i] == pytest.approx(score, rel=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_gcv_takes_the_least_score_of_the_grid(bias):
    stat = federated()
    path = ridge_path(normal(stat, bias=bias))
    hot = HOT
    scores = [brute_gcv(Z, hot, ridge, bias)[0] for ridge in path.ridges]
    assert path.best == path.ridges[int(np.argmin(scores))]
    assert path.ridges[0] < path.best < path.ridges[-1]


@pytest.mark.parametrize("options", [{}, {"bias": True}, {"scatter": "within"}])
def test_gcv_is_the_explicit_number_it_found(options):
    stat = federated()
    chosen = Fed3R(ridge="gcv", **options).solve(stat)
    ridge = chosen.provenance["solved"]["ridge"]
    assert ridge == Fed3R(**options).path(stat).best
    explicit = Fed3R(ridge=ridge, **options).solve(stat)
    assert np.array_equal(chosen.weights, explicit.weights)


def test_gcv_scales_with_the_features():
    """Features ×10: λ ×100, and the same predictions."""
    one = Fed3R(ridge="gcv").solve(federated())
    ten = Fed3R(ridge="gcv").solve(federated(Z * 10))
    ridges = [head.provenance["solved"]["ridge"] for head in (one, ten)]
    assert ridges[1] == pytest.approx(100 * ridges[0], rel=1e-6)
    assert np.array_equal(one.predict(TEST), ten.predict(TEST * 10))


def test_gcv_shrinks_noise():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(60, 9))
    informative = Fed3R().path(federated()).best
    assert Fed3R().path(federated(noise, Y[:60])).best > informative


# -- scatter within --------------------------------------------------------------------------------


def naive_oracle(z, y, ridge, shrinkage):
    """FedCOF's equations 11 and 25 with the classes' own covariances."""
    d, n = z.shape[1], len(z)
    matrix = np.zeros((d, d))
    sums = []
    for label in np.unique(y):
        own = z[y == label]
        cov = np.cov(own, rowvar=False, bias=False) if len(own) > 1 else np.zeros((d, d))
        matrix += (len(own) - 1) * (cov + shrinkage * np.eye(d))
        sums.append(own.sum(axis=0))
    mean = z.mean(axis=0)
    matrix += n * np.outer(mean, mean)
    return np.linalg.solve(matrix + ridge * np.eye(d), np.array(sums).T).T


@pytest.mark.parametrize("shrinkage", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("ridge", [0.01, 1.0])
def test_within_scatter_is_the_oracle_of_fedcof(shrinkage, ridge):
    z = Z + 1.5
    expected = naive_oracle(z, Y, ridge, shrinkage)
    head = Fed3R(ridge=ridge, scatter="within", shrinkage=shrinkage, normalize=False)
    np.testing.assert_allclose(head.solve(federated(z)).weights, expected, rtol=1e-7, atol=1e-10)
    unit = Fed3R(ridge=ridge, scatter="within", shrinkage=shrinkage).solve(federated(z))
    np.testing.assert_allclose(
        unit.weights, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-8
    )


def test_within_scatter_with_a_lone_sample_of_a_class():
    y = Y.copy()
    y[0] = 9
    head = Fed3R(scatter="within", normalize=False).solve(federated(Z, y))
    np.testing.assert_allclose(head.weights, naive_oracle(Z, y, 0.01, 0.0), rtol=1e-7, atol=1e-10)


def test_a_singular_matrix_without_ridge_is_a_clear_error():
    z = np.zeros((6, 3))
    z[:, 0] = 1.0
    with pytest.raises(SolveError, match="ridge"):
        Fed3R(ridge=0.0).solve(Moments.measure(z, [0, 1] * 3))


def test_rebalance_and_normalize_exclude_each_other():
    with pytest.raises(HeadstartError, match="rebalance"):
        Fed3R(rebalance=0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"normalize": "no"}, "normalize: expected true or false, got 'no'"),
        ({"bias": 7}, "bias: expected true or false"),
        ({"ridge": "lots"}, "ridge: expected a number or 'gcv', got 'lots'"),
    ],
)
def test_settings_of_another_kind_are_refused(settings, message):
    with pytest.raises(HeadstartError, match=message):
        Fed3R(**settings)

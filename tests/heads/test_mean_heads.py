"""FedNCM, FedCOF, shared variances, LDA and ETF against plain loops and scikit-learn."""

import numpy as np
import pytest
from sklearn.covariance import empirical_covariance
from sklearn.covariance import oas as sklearn_oas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from headstart import (
    ETF,
    LDA,
    ClassSums,
    ClientMeans,
    FedCOF,
    FedNCM,
    HeadstartError,
    Moments,
    SharedVariances,
    SolveError,
    total,
)
from headstart.heads.lda import oas
from headstart.heads.orthonormal import Orthonormal

RNG = np.random.default_rng(0)
D = 7
CENTRES = RNG.normal(size=(5, D))


def draw(n, seed=1, classes=5, balanced=False):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes if balanced else rng.integers(classes, size=n)
    return CENTRES[y] + rng.normal(size=(n, D)) * (1 + np.arange(D)), y


def split(z, y, clients, seed=0):
    of = np.random.default_rng(seed).integers(clients, size=len(y))
    return [(z[of == k], y[of == k]) for k in range(clients)]


def unit(weights):
    return weights / np.linalg.norm(weights, axis=1, keepdims=True)


def test_fedncm_is_the_class_means_at_unit_length():
    z, y = draw(90)
    head = FedNCM().solve(total(FedNCM().measure(*part) for part in split(z, y, 11)))
    means = np.array([z[y == c].mean(axis=0) for c in range(5)])
    np.testing.assert_allclose(head.weights, unit(means), rtol=1e-10)


# -- FedCOF ----------------------------------------------------------------------------------------


def naive_fedcof(rows, shrinkage, ridge):
    """Equations 8 to 11, a class at a time, from (label, count, mean) rows."""
    matrix, sums = np.zeros((D, D)), []
    everything = sum(n for _, n, _ in rows)
    for label in sorted({label for label, _, _ in rows}):
        own = [(n, mean) for c, n, mean in rows if c == label]
        mass = sum(n for n, _ in own)
        centre = sum(n * mean for n, mean in own) / mass
        covariance = shrinkage * np.eye(D)
        if len(own) > 1:
            spread = sum(n * np.outer(mean - centre, mean - centre) for n, mean in own)
            covariance = covariance + spread / (len(own) - 1)
        matrix += (mass - 1) * covariance
        sums.append(mass * centre)
    mean = sum(sums) / everything
    matrix += everything * np.outer(mean, mean) + ridge * np.eye(D)
    return unit(np.linalg.solve(matrix, np.array(sums).T).T)


@pytest.mark.parametrize(("shrinkage", "ridge"), [(0.1, 0.01), (1.0, 0.01), (0.0, 2.0)])
@pytest.mark.parametrize("means", [1, 3])
def test_fedcof_is_its_equations(shrinkage, ridge, means):
    head = FedCOF(shrinkage=shrinkage, ridge=ridge, means=means)
    z, y = draw(120)
    clients = [*split(z, y, 9), (CENTRES[:1] + 1, [8])]  # class 8: a lone mean of one sample
    clients.append((draw(6, seed=2)[0], [7] * 6))  # class 7: shown by one client only
    stat = total(head.measure(*client, secret=b"s") for client in clients)
    rows = list(zip(stat.labels.tolist(), stat.counts, stat.means, strict=True))
    lone = [label for label in (7, 8) if sum(c == label for c, _, _ in rows) == 1]
    assert 8 in lone
    expected = naive_fedcof(rows, shrinkage, ridge)
    np.testing.assert_allclose(head.solve(stat).weights, expected, rtol=1e-8, atol=1e-10)


def test_fedcof_in_blocks_is_fedcof(monkeypatch):
    """More rows than one block takes."""
    head = FedCOF()
    z, y = draw(300)
    stat = total(head.measure(z[i : i + 3], y[i : i + 3]) for i in range(0, 300, 3))
    rows = list(zip(stat.labels.tolist(), stat.counts, stat.means, strict=True))
    np.testing.assert_allclose(head.solve(stat).weights, naive_fedcof(rows, 0.1, 0.01), atol=1e-9)


def test_several_means_cut_each_class_into_near_equal_parts():
    z, y = draw(44)
    stat = ClientMeans.measure(z, y, means=4, secret=b"s")
    for label in np.unique(y):
        own = stat.labels == label
        assert own.sum() == min(4, (y == label).sum())
        assert stat.counts[own].sum() == (y == label).sum()
        assert np.ptp(stat.counts[own]) <= 1
        centre = (stat.means[own] * stat.counts[own, None]).sum(axis=0) / stat.counts[own].sum()
        np.testing.assert_allclose(centre, z[y == label].mean(axis=0), atol=1e-10)
    other = ClientMeans.measure(z, y, means=4, secret=b"t")
    assert not np.array_equal(stat.means, other.means)


@pytest.mark.parametrize("noise", [("uniform", 0.5), ("gaussian", 1.0), ("laplace", 1.0)])
def test_noise_moves_counts_and_not_means(noise):
    z, y = draw(200)
    plain = ClientMeans.measure(z, y, secret=b"s")
    noisy = FedCOF(noise=noise).measure(z, y, secret=b"s")
    assert noisy.labels.tolist() == plain.labels.tolist()
    assert not np.array_equal(noisy.counts, plain.counts)
    assert np.array_equal(noisy.means, plain.means)
    assert (noisy.counts > 0).all()
    again = FedCOF(noise=noise).measure(z, y, secret=b"s")
    assert again.to_bytes() == noisy.to_bytes()


def test_noise_that_leaves_no_sample_drops_the_class():
    rng = np.random.default_rng(4)
    dropped = 0
    for k in range(40):
        stat = FedCOF(noise=("laplace", 0.2)).measure(
            rng.normal(size=(3, D)), [0, 1, 2], secret=b"%d" % k
        )
        assert (stat.counts > 0).all()
        dropped += 3 - len(stat.labels)
    assert dropped > 0


# -- shared variances ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["diagonal", "spherical"])
@pytest.mark.parametrize("shrinkage", [0.0, 0.1])
def test_shared_variances_are_their_loops(kind, shrinkage):
    z, y = draw(90)
    head = SharedVariances(kind=kind, shrinkage=shrinkage)
    matrix = np.zeros((D, D))
    for c in range(5):
        own = z[y == c]
        variances = own.var(axis=0, ddof=1)
        if kind == "spherical":
            variances = np.full(D, variances.mean())
        matrix += (len(own) - 1) * (np.diag(variances) + shrinkage * np.eye(D))
    mean = z.mean(axis=0)
    matrix += len(z) * np.outer(mean, mean) + head.ridge * np.eye(D)
    sums = np.array([z[y == c].sum(axis=0) for c in range(5)])
    expected = unit(np.linalg.solve(matrix, sums.T).T)
    solved = head.solve(total(head.measure(*part) for part in split(z, y, 8)))
    np.testing.assert_allclose(solved.weights, expected, rtol=1e-8, atol=1e-10)


def test_spherical_messages_hold_one_square_a_class():
    z, y = draw(30)
    sizes = {
        kind: SharedVariances(kind=kind).measure(z, y).tables["squares"].shape
        for kind in ("diagonal", "spherical")
    }
    assert sizes == {"diagonal": (5, D), "spherical": (5, 1)}


# -- LDA -------------------------------------------------------------------------------------------


def naive_lda(z, y, shrinkage, covariance, prior):
    classes = np.unique(y)
    n = len(z)
    means = np.array([z[y == c].mean(axis=0) for c in classes])
    if covariance == "within":
        spread = sum(
            (z[y == c] - m).T @ (z[y == c] - m) for c, m in zip(classes, means, strict=True)
        )
        sigma = spread / (n - len(classes))
    else:
        sigma = np.cov(z, rowvar=False)
    part = shrinkage if shrinkage != "oas" else oas(sigma, n)
    sigma = (1 - part) * sigma + part * np.trace(sigma) / D * np.eye(D)
    weights = np.linalg.solve(sigma, means.T).T
    bias = -0.5 * (weights * means).sum(axis=1)
    if prior:
        bias = bias + np.log(np.bincount(y) / n)
    return weights, bias


@pytest.mark.parametrize("covariance", ["within", "total"])
@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 1.0, "oas"])
@pytest.mark.parametrize("prior", [True, False])
def test_lda_is_its_equations(covariance, shrinkage, prior):
    z, y = draw(100)
    head = LDA(shrinkage=shrinkage, covariance=covariance, prior=prior)
    solved = head.solve(total(head.measure(*part) for part in split(z, y, 8)))
    weights, bias = naive_lda(z, y, shrinkage, covariance, prior)
    np.testing.assert_allclose(solved.weights, weights, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(solved.bias, bias, rtol=1e-6, atol=1e-8)
    assert solved.temperature == 1.0


@pytest.mark.parametrize("shrinkage", [0.0, 0.2, 0.9])
def test_lda_decides_as_scikit_learn_does(shrinkage):
    """Its covariance is divided by n, ours by n − C: with equal classes that moves no decision."""
    z, y = draw(100, balanced=True)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(z, y)
    ours = LDA(shrinkage=shrinkage).solve(Moments.measure(z, y))
    test, _ = draw(400, seed=9)
    assert np.array_equal(ours.predict(test), theirs.predict(test))


def test_lda_is_calibrated_as_it_is():
    """Scores of a Gaussian model are log-posteriors: the softmax is Bayes' rule."""
    z, y = draw(100, classes=2)
    head = LDA(shrinkage=0.1).solve(Moments.measure(z, y))
    np.testing.assert_allclose(head.probabilities(z).sum(axis=1), 1.0)
    assert head.accuracy(z, y) > 0.6


@pytest.mark.parametrize("n", [5, 30, 500])
def test_oas_is_that_of_scikit_learn(n):
    x = np.random.default_rng(n).normal(size=(n, D)) * (1 + np.arange(D))
    _, expected = sklearn_oas(x)
    assert oas(empirical_covariance(x), n) == pytest.approx(expected, rel=1e-10)


def test_oas_of_a_round_covariance_shrinks_all_the_way():
    assert oas(np.eye(D) * 3.0, 100) == 1.0
    assert oas(np.zeros((D, D)), 100) == 1.0


def test_lda_without_any_spread_is_a_clear_error():
    with pytest.raises(SolveError, match="differ"):
        LDA().solve(Moments.measure(np.eye(4), [0, 1, 2, 3]))


# -- ETF -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "d"), [(2, 2), (3, 7), (7, 7), (20, 64)])
def test_etf_is_equiangular(classes, d):
    stat = ETF().measure(np.zeros((classes, d)), np.arange(classes))
    weights = ETF(seed=3).solve(stat).weights
    expected = np.full((classes, classes), -1.0 / (classes - 1))
    np.fill_diagonal(expected, 1.0)
    np.testing.assert_allclose(weights @ weights.T, expected, atol=1e-12)


@pytest.mark.parametrize(("classes", "d"), [(2, 2), (3, 7), (20, 64)])
def test_orthonormal_rows_stand_at_right_angles(classes, d):
    stat = Orthonormal().measure(np.zeros((classes, d)), np.arange(classes))
    weights = Orthonormal(seed=3).solve(stat).weights
    np.testing.assert_allclose(weights @ weights.T, np.eye(classes), atol=1e-12)
    assert not np.allclose(weights, Orthonormal().solve(stat).weights)


def test_etf_depends_on_classes_dimension_and_seed_alone():
    rng = np.random.default_rng(5)
    y = np.arange(12) % 4
    one = ETF().solve(ETF().measure(rng.normal(size=(12, D)), y))
    two = ETF().solve(ETF().measure(rng.normal(size=(12, D)), y[::-1]))
    other = ETF(seed=1).solve(ETF().measure(rng.normal(size=(12, D)), y))
    assert np.array_equal(one.weights, two.weights)
    assert not np.allclose(one.weights, other.weights)


def test_etf_sends_no_feature():
    z = np.random.default_rng(6).normal(size=(12, D))
    y = np.arange(12) % 4
    assert ETF().measure(z, y).to_bytes() == ETF().measure(z * 2 + 1, y).to_bytes()
    assert not ETF().measure(z, y).tables


@pytest.mark.parametrize("labels", [[0] * 8, list(range(8))])
def test_etf_needs_two_classes_and_a_dimension_for_each(labels):
    with pytest.raises(SolveError, match="classes"):
        ETF().solve(ClassSums.measure(np.zeros((8, D)), labels, sums=False))


@pytest.mark.parametrize(
    "noise", [3, ("laplace",), ("loud", 0.5), ("laplace", "x"), ("laplace", 0)]
)
def test_fedcof_says_what_noise_it_expects(noise):
    with pytest.raises(HeadstartError, match="noise: expected"):
        FedCOF(noise=noise)

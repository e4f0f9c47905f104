"""Random Fourier features, kernel ridge, and the bandwidth from sums."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from threadpoolctl import threadpool_limits

from headstart import (
    ClassSums,
    DataError,
    Fed3R,
    Fed3RRandomFeatures,
    HeadstartError,
    KernelRidge,
    Moments,
    RandomFeatures,
    SolveError,
    bandwidth_of,
    total,
)
from headstart.heads import HEADS
from headstart.statistics.exact import Lattice

RNG = np.random.default_rng(0)
Z, Y = RNG.normal(size=(60, 5)), np.arange(60) % 3
Z += 2.0 * np.eye(5)[Y]


def kernel(left, right, bandwidth):
    return np.exp(-(cdist(left, right) ** 2) / (2 * bandwidth**2))


@pytest.mark.parametrize("bandwidth", [0.7, 3.0])
def test_products_of_features_tend_to_the_gaussian_kernel(bandwidth):
    errors = []
    for dimension in (50, 800, 12_800):
        phi = RandomFeatures(dimension, bandwidth)(Z)
        errors.append(np.abs(phi @ phi.T - kernel(Z, Z, bandwidth)).mean())
    assert errors[2] < 0.01
    assert errors[1] < errors[0] / 2.5  # 4 in the mean: 1/√D
    assert errors[2] < errors[1] / 2.5


def test_the_same_seed_gives_the_same_features():
    phi = RandomFeatures(64, 2.0, seed=5)(Z)
    assert np.array_equal(phi, RandomFeatures(64, 2.0, seed=5)(Z))
    assert not np.allclose(phi, RandomFeatures(64, 2.0, seed=6)(Z))
    assert np.abs(phi).max() <= np.sqrt(2 / 64)


@pytest.mark.parametrize("threads", [1, 2])
def test_exact_features_are_the_same_bits_in_every_batch(threads):
    lattice, phi = Lattice(16.0), RandomFeatures(37, 3.0)
    z = np.random.default_rng(1).uniform(-16, 16, size=(300, 40))
    whole = phi(z, lattice)
    with threadpool_limits(threads):
        rng = np.random.default_rng(2)
        for _ in range(5):
            rows = rng.choice(300, size=rng.integers(1, 300), replace=False)
            assert np.array_equal(phi(z[rows], lattice), whole[rows])
        assert np.array_equal(phi(z[7:8], lattice), whole[7:8])
        assert np.array_equal(phi(np.asfortranarray(z), lattice), whole)


def test_features_in_blocks_are_the_same(monkeypatch):
    lattice, phi = Lattice(16.0), RandomFeatures(16, 3.0)
    whole = phi(Z, lattice)
    monkeypatch.setattr("headstart.heads.features._CHUNK", 50)
    assert np.array_equal(phi(Z, lattice), whole)
    np.testing.assert_allclose(phi(Z), whole, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0, 1.0), "dimension"), ((2.5, 1.0), "dimension"), ((4, 0.0), "bandwidth")],
)
def test_bad_maps_are_named(arguments, name):
    with pytest.raises(HeadstartError, match=name):
        RandomFeatures(*arguments)


def test_too_many_inputs_for_53_bits_are_refused():
    with pytest.raises(DataError, match="dimensions"):
        RandomFeatures(2, 1.0)(np.zeros((1, 2**14 + 1)))


def test_fed3r_rf_is_ridge_on_the_map():
    head = Fed3RRandomFeatures(dimension=30, bandwidth=2.0, ridge=0.1, normalize=False)
    solved = head.solve(total(head.measure(Z[i::7], Y[i::7]) for i in range(7)))
    phi = RandomFeatures(30, 2.0)(Z)
    expected = np.linalg.solve(phi.T @ phi + 0.1 * np.eye(30), phi.T @ np.eye(3)[Y])
    np.testing.assert_allclose(solved.weights, expected.T, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(solved.scores(Z), phi @ expected, atol=1e-8)


def test_fed3r_rf_with_within_scatter_is_fed3r_with_it_on_the_map():
    how = {"ridge": 0.1, "scatter": "within", "shrinkage": 0.01}
    head = Fed3RRandomFeatures(dimension=30, bandwidth=2.0, **how)
    solved = head.solve(head.measure(Z, Y))
    plain = Fed3R(**how)
    expected = plain.solve(plain.measure(RandomFeatures(30, 2.0)(Z), Y))
    np.testing.assert_allclose(solved.weights, expected.weights, rtol=1e-6, atol=1e-9)
    with pytest.raises(HeadstartError, match="scatter"):
        Fed3RRandomFeatures(scatter="other")


def test_fed3r_rf_tends_to_kernel_ridge():
    exact = KernelRidge(bandwidth=2.0, ridge=1.0).fit(Z, Y).scores(Z)
    gaps = []
    for dimension in (30, 3000):
        head = Fed3RRandomFeatures(dimension, bandwidth=2.0, ridge=1.0, normalize=False)
        gaps.append(np.abs(head.solve(head.measure(Z, Y)).scores(Z) - exact).mean())
    assert gaps[1] < gaps[0] / 3
    assert gaps[1] < 0.03


# -- kernel ridge ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.01, 1.0])
def test_krr_is_that_of_scikit_learn(ridge):
    theirs = SklearnKernelRidge(alpha=ridge, kernel="rbf", gamma=1 / (2 * 1.5**2))
    theirs.fit(Z, np.eye(3)[Y])
    ours = KernelRidge(bandwidth=1.5, ridge=ridge).fit(Z, np.array(["a", "b", "c"])[Y])
    np.testing.assert_allclose(ours.scores(Z + 0.3), theirs.predict(Z + 0.3), atol=1e-8)
    assert set(ours.predict(Z)) <= {"a", "b", "c"}


def test_krr_takes_at_most_so_many_of_a_class():
    y = np.array([0] * 50 + [1] * 10)
    model = KernelRidge(per_class=20, seed=1).fit(Z, y)
    assert len(model.samples) == 30
    assert (model.samples[:, None] == Z[None]).all(axis=2).any(axis=1).all()
    other = KernelRidge(per_class=20, seed=2).fit(Z, y)
    assert not np.array_equal(model.samples, other.samples)


def test_krr_of_nothing_is_a_clear_error():
    with pytest.raises(HeadstartError):
        KernelRidge().fit(np.zeros((0, 3)), [])


def test_krr_is_no_head_that_can_be_federated():
    assert "krr" not in HEADS


# -- bandwidth -------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [False, True])
def test_the_bandwidth_is_the_root_mean_squared_distance(exact):
    """Over all ordered pairs, a sample with itself included: √(2·tr Cov)."""
    expected = np.sqrt((cdist(Z, Z) ** 2).mean())
    for stat in (
        Moments.measure(Z, Y, exact=exact),
        ClassSums.measure(Z, Y, exact=exact, squares="diagonal"),
        ClassSums.measure(Z, Y, exact=exact, squares="spherical"),
    ):
        assert bandwidth_of(stat) == pytest.approx(expected, rel=1e-3 if exact else 1e-5)
        assert bandwidth_of(stat, 1.5) == pytest.approx(1.5 * bandwidth_of(stat), rel=1e-5)
    pairs = np.sqrt((pdist(Z) ** 2).mean())
    assert expected == pytest.approx(pairs, rel=1 / len(Z))


def test_the_bandwidth_has_six_digits_so_that_machines_agree_on_it():
    bandwidth = bandwidth_of(Moments.measure(Z, Y), 1 / 3)
    assert bandwidth == float(f"{bandwidth:.6g}")


def test_the_bandwidth_needs_samples_that_differ():
    for z in (Z[:0], Z[:1], np.ones((5, 3))):
        with pytest.raises(SolveError, match="bandwidth"):
            bandwidth_of(Moments.measure(z, [0] * len(z)))


def test_the_bandwidth_needs_squares():
    with pytest.raises(DataError, match="squares"):
        bandwidth_of(ClassSums.measure(Z, Y))

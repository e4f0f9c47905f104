"""What an upload reveals: the Gram matrix of a client, and nothing else of its samples."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

from headstart import Moments
from headstart.statistics.base import PRECISIONS


def clients_of(digits, count=50):
    """Slices of digits of 2 to 20 samples; the first pixel is zero in all of them."""
    z, y = digits
    rng = np.random.default_rng(0)
    for k in range(count):
        own = rng.choice(len(y), size=2 + k % 19, replace=False)
        assert not z[own, 0].any()
        yield z[own], y[own]


def parallel(rows, samples):
    """The largest |cos| between a row of a message and a raw sample.

    Samples with a feature that no other sample of the client has are left out: they are a row of
    the Gram matrix itself, whatever its factor.
    """
    alone = (samples != 0)[:, (samples != 0).sum(axis=0) == 1].any(axis=1)
    samples = samples[~alone]
    if not len(samples):
        return 0.0
    norms = np.linalg.norm(rows, axis=1)
    rows = rows[norms > 1e-9 * norms.max()]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.abs(rows @ (samples / np.linalg.norm(samples, axis=1, keepdims=True)).T).max()


def sent_rows(stat, precision):
    """The rows of the message as a receiver sees them."""
    arrays = Moments.from_bytes(stat.to_bytes(precision))._parts[0]
    return arrays.rows()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_row_of_a_message_is_a_sample(digits, precision):
    compared = 0
    for k, (z, y) in enumerate(clients_of(digits)):
        rows = sent_rows(Moments.measure(z, y, secret=b"client %d" % k), precision)
        assert len(rows) == len(z)
        assert parallel(rows, z) < 0.999
        compared += parallel(rows, z) > 0
    assert compared > 40


def test_no_row_of_an_exact_message_is_a_sample(digits):
    for k, (z, y) in enumerate(clients_of(digits)):
        stat = Moments.measure(z, y, exact=True, secret=b"client %d" % k)
        assert parallel(sent_rows(stat, "float64"), z) < 0.999


def test_without_the_rotation_every_client_leaks_a_sample(digits):
    """The test of the test: LAPACK's own factor has a raw sample for its first row."""
    for z, _ in clients_of(digits):
        first = np.linalg.qr(z)[1][0]
        assert np.allclose(np.abs(first), np.abs(z[0]))


def test_a_feature_only_one_sample_has_reveals_it_in_the_gram_itself(digits):
    """No rotation helps: the row of A is that sample. Said here so that nobody claims otherwise."""
    z = digits[0][:6].copy()
    z[:, 0], z[3, 0] = 0.0, 2.0
    gram = Moments.measure(z, [0] * 6, secret=b"s").gram()
    np.testing.assert_allclose(gram[0] / 2.0, z[3], atol=1e-9)


def test_with_many_samples_the_message_is_a_function_of_the_gram(digits):
    """More samples than features: rotated samples (labels fixed) send the same message."""
    rng = np.random.default_rng(1)
    z = digits[0][:80, 18:22] - 5.0
    turned = fixing_ones(rng, 80) @ z
    one = Moments.measure(z, [1] * 80).to_arrays("float32")
    two = Moments.measure(turned, [1] * 80).to_arrays("float32")
    assert len(one["y"]) == 4
    for name in one:
        np.testing.assert_allclose(one[name], two[name], atol=1e-3)


def fixing_ones(rng, n):
    """A random orthogonal matrix that leaves the vector of ones (the labels of one class) fixed."""
    basis = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, n - 1))]))[0]
    turn = np.eye(n)
    turn[1:, 1:] = np.linalg.qr(rng.normal(size=(n - 1, n - 1)))[0]
    return basis @ turn @ basis.T


def drawn(z, name, count=600):
    """[R_z R_y] of one client under many secrets."""
    result = []
    for k in range(count):
        arrays = Moments.measure(z, [0] * len(z), secret=b"%s %d" % (name, k)).to_arrays()
        result.append(np.concatenate([arrays["z"], arrays["y"][:, 0]]))
    return np.array(result)


def pair():
    """Two datasets with one Gram matrix (labels included), whose leading block is singular."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=(4, 6)) + 1.0
    z[:, :2] = 0.0
    other = fixing_ones(rng, 4) @ z
    other[:, :2] = 0.0
    np.testing.assert_allclose(other.T @ other, z.T @ z, atol=1e-12)
    np.testing.assert_allclose(other.sum(axis=0), z.sum(axis=0), atol=1e-12)
    assert np.abs(other - z).max() > 0.3
    return z, other


def least_p(left, right):
    """The least p of Kolmogorov and Smirnov over the numbers of a message and their products."""
    ps = []
    for i in range(left.shape[1]):
        for j in (*range(i), None):
            one, two = (m[:, i] if j is None else m[:, i] * m[:, j] for m in (left, right))
            if max(one.std(), two.std()) > 1e-9:
                ps.append(ks_2samp(one, two).pvalue)
    assert len(ps) > 20
    return min(ps) * len(ps)


def test_the_message_depends_on_the_gram_matrix_alone():
    z, other = pair()
    assert least_p(drawn(z, b"one"), drawn(other, b"two")) > 1e-3


def test_the_order_of_samples_leaves_no_trace():
    z, _ = pair()
    assert least_p(drawn(z, b"one"), drawn(z[::-1], b"two")) > 1e-3


def test_another_gram_matrix_is_noticed_by_that_test():
    z, other = pair()
    other[0] += 0.5
    assert least_p(drawn(z, b"one"), drawn(other, b"two")) < 1e-6


def test_another_secret_sends_other_bytes_and_the_same_moments(digits):
    z, y = digits[0][:9], digits[1][:9]
    stats = [Moments.measure(z, y, secret=s) for s in (b"a", b"b", None, None)]
    assert len({s.to_bytes() for s in stats}) == 4
    for stat in stats:
        np.testing.assert_allclose(stat.gram(), z.T @ z, atol=1e-9)


def test_another_sample_turns_the_whole_rotation():
    """Two messages under one secret share no rotation: their difference shows nothing."""
    z = np.random.default_rng(3).normal(size=(5, 9))
    z[:, :5] = 0.0  # where the factor is free to be any
    one = sent_rows(Moments.measure(z, [0] * 5, secret=b"a"), "float64")
    z[0, -1] += 1e-9
    two = sent_rows(Moments.measure(z, [0] * 5, secret=b"a"), "float64")
    assert np.abs(one - two).max() > 0.1

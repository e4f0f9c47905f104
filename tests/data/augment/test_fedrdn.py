"""FedRDN: a client's colours, everybody's table, and images normalized as somebody's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data.augment import fedrdn as module
from headstart.data.augment.fedrdn import (
    LEAST_DEVIATION,
    ChannelStatistics,
    ChannelTable,
    channel_statistics,
    collect,
    own,
    rdn,
)
from headstart.errors import DataError

KINDS = (np.uint8, np.float32, np.float64)
quick = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**32)


def pictures(n=4, kind=np.uint8, seed=0):
    pixels = np.random.default_rng(seed).integers(256, size=(n, 3, 4, 5), dtype=np.uint8)
    return pixels if kind == np.uint8 else (pixels / 255).astype(kind)


def table(clients=3):
    return collect(channel_statistics(pictures(seed=k) // (k + 1)) for k in range(clients))


def test_a_case_by_hand():
    """Deviations of each image, averaged: the images' unlike means do not enter."""
    images = np.zeros((2, 3, 1, 2))
    images[0, 0] = [0.0, 0.2]  # mean 0.1, deviation 0.1
    images[1, 0] = [0.4, 1.0]  # mean 0.7, deviation 0.3
    images[:, 1] = 0.5
    found = channel_statistics(images)
    assert found.mean.tolist() == pytest.approx([0.4, 0.5, 0.0])
    assert found.deviation.tolist() == pytest.approx([0.2, 0.0, 0.0])
    seen = own(images, found)
    assert seen[0, 0].ravel().tolist() == pytest.approx([-2.0, -1.0])
    assert seen[1, 0].ravel().tolist() == pytest.approx([0.0, 3.0])
    assert np.abs(seen[:, 1:]).max() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_image_is_not_divided_by_zero(kind):
    blank = np.full((2, 3, 3, 3), 1, kind)
    found = channel_statistics(blank)
    assert found.deviation.tolist() == [0, 0, 0]
    np.testing.assert_allclose(own(blank, found), 0, atol=1e-6)
    others = rdn(pictures(kind=kind), collect([found]), np.random.default_rng(0))
    assert np.isfinite(others).all()
    assert np.abs(others).max() <= 1.001 / LEAST_DEVIATION
    assert channel_statistics(blank[:, :, :1, :1]).deviation.tolist() == [0, 0, 0]


@quick
@given(n=st.integers(1, 6), seed=seeds)
def test_bytes_and_floats_have_one_scale(n, seed):
    kinds = [channel_statistics(pictures(n, kind, seed)) for kind in KINDS]
    for found in kinds[1:]:
        np.testing.assert_allclose(found.mean, kinds[0].mean, rtol=1e-5)
        np.testing.assert_allclose(found.deviation, kinds[0].deviation, rtol=1e-5)


@quick
@given(n=st.integers(1, 9), seed=seeds)
def test_blocks_change_nothing(n, seed):
    images = pictures(n, seed=seed)
    unit = images / 255
    found = channel_statistics(images)
    np.testing.assert_allclose(found.mean, unit.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, unit.std(axis=(2, 3)).mean(axis=0), rtol=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", 2 * images[0].size)
        blocks = channel_statistics(images)
    np.testing.assert_allclose(blocks.mean, found.mean, rtol=1e-12)
    np.testing.assert_allclose(blocks.deviation, found.deviation, rtol=1e-12)


@quick
@given(clients=st.integers(1, 6), seed=seeds)
def test_the_table_tells_neither_names_nor_order(clients, seed):
    rows = [channel_statistics(pictures(seed=k)) for k in range(clients)]
    shuffled = [rows[k] for k in np.random.default_rng(seed).permutation(clients)]
    one, two = collect(rows), collect(shuffled)
    assert len(one) == clients
    np.testing.assert_array_equal(one.means, two.means)
    np.testing.assert_array_equal(one.deviations, two.deviations)
    pairs = {(*row.mean, *row.deviation) for row in rows}
    assert {(*m, *d) for m, d in zip(one.means, one.deviations, strict=True)} == pairs


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(n=st.integers(0, 8), seed=seeds)
def test_every_image_has_the_pair_of_one_client(kind, n, seed):
    images, shared = pictures(n, kind, seed), table()
    before = images.copy()
    seen = rdn(images, shared, np.random.default_rng(seed))
    np.testing.assert_array_equal(images, before)
    assert seen.shape == images.shape
    assert seen.dtype == (np.float32 if kind == np.uint8 else kind)
    again = rdn(images, shared, np.random.default_rng(seed))
    np.testing.assert_array_equal(seen, again)
    as_each = np.array(
        [
            own(images, ChannelStatistics(mean, deviation))
            for mean, deviation in zip(shared.means, shared.deviations, strict=True)
        ]
    )
    assert (seen == as_each).all(axis=(2, 3, 4)).any(axis=0).all()


def test_clients_are_drawn_alike_and_anew():
    shared = ChannelTable(np.arange(9.0).reshape(3, 3), np.ones((3, 3)))
    rng = np.random.default_rng(0)
    first, second = (rdn(np.zeros((3000, 3, 1, 1)), shared, rng) for _ in range(2))
    shares = np.unique(first[:, 0], return_counts=True)[1] / 3000
    assert shares == pytest.approx([1 / 3] * 3, abs=0.05)
    assert (first != second).any()


def test_one_client_sees_its_own():
    images = pictures(kind=np.float64)
    found = channel_statistics(images)
    seen = rdn(images, collect([found]), np.random.default_rng(0))
    np.testing.assert_array_equal(seen, own(images, found))
    np.testing.assert_allclose(seen.mean(axis=(0, 2, 3)), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: channel_statistics(pictures(0)), "images: expected at least one image, got none"),
        (lambda: channel_statistics(pictures()[0]), r"images: expected n×3×h×w .*got shape \(3, 4"),
        (lambda: channel_statistics(pictures() > 9), "uint8, float32 or float64, got bool"),
        (lambda: channel_statistics(np.full((1, 3, 2, 2), np.inf)), "got NaN or infinity"),
        (lambda: collect([]), "rows: expected the statistics of at least one client, got none"),
        (lambda: collect([np.ones(6)]), "rows: expected ChannelStatistics, got ndarray"),
        (lambda: rdn(pictures(), table(), 0), "rng: expected a numpy Generator, got int"),
        (lambda: ChannelStatistics([1, 2], [1, 2]), r"mean: expected numbers of shape \(3,\), got"),
        (lambda: ChannelStatistics([0, 0, np.nan], [1, 1, 1]), "mean: expected finite numbers"),
        (lambda: ChannelStatistics(["a"] * 3, [1, 1, 1]), "mean: expected numbers .*, got <U1"),
        (lambda: ChannelStatistics([0, 0, 0], [1, 1, -1]), "deviation: .* at least 0, got -1"),
        (lambda: ChannelTable(np.ones((2, 3)), np.ones((1, 3))), r"deviations: .* \(2, 3\), got"),
        (lambda: ChannelTable(np.ones((0, 3)), np.ones((0, 3))), "at least one client, got none"),
    ],
)
def test_a_mistake_is_named(call, message):
    with pytest.raises(DataError, match=message):
        call()

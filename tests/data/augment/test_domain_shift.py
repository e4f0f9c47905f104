"""The domain shift: three even groups, one channel stronger, the others weaker, nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data.augment.domain_shift import (
    CHANNELS,
    INTENSITIES,
    groups,
    shift,
    shift_clients,
    shift_test,
)
from headstart.data.partition import Partition, iid, personal_split
from headstart.errors import DataError

KINDS = (np.uint8, np.float32, np.float64)
quick = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**32)


def pictures(n=6, kind=np.uint8, seed=0, size=(2, 3)):
    pixels = np.random.default_rng(seed).integers(256, size=(n, 3, *size), dtype=np.uint8)
    return pixels if kind == np.uint8 else (pixels / 255).astype(kind)


def test_a_case_by_hand():
    one = np.array([[[[100, 200]], [[10, 11]], [[5, 255]]]], dtype=np.uint8)
    images = np.concatenate([one, one, one, one])
    moved = shift(images, ["red", "green", "blue", ""], 2)
    # 11/2 = 5.5 and 5/2 = 2.5 round to even; 400 and 510 are clipped
    assert moved[0].tolist() == [[[200, 255]], [[5, 6]], [[2, 128]]]
    assert moved[1].tolist() == [[[50, 100]], [[20, 22]], [[2, 128]]]
    assert moved[2].tolist() == [[[50, 100]], [[5, 6]], [[10, 255]]]
    assert moved[3].tolist() == one[0].tolist()
    assert (images == one).all()  # a copy was shifted


def test_floats_are_not_clipped():
    moved = shift(np.full((1, 3, 1, 1), 0.75), ["green"], 1.5)
    assert moved.ravel().tolist() == pytest.approx([0.5, 1.125, 0.5])


@quick
@given(n=st.integers(0, 40), seed=seeds)
def test_groups_are_even_and_repeat(n, seed):
    found = groups(n, seed)
    sizes = [int((found == name).sum()) for name in CHANNELS]
    assert sum(sizes) == len(found) == n
    assert max(sizes) - min(sizes) <= 1
    np.testing.assert_array_equal(found, groups(n, seed))


def test_another_seed_deals_otherwise():
    assert (groups(30, 0) != groups(30, 1)).any()


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(n=st.integers(0, 9), delta=st.sampled_from(INTENSITIES), seed=seeds)
def test_every_channel_has_its_factor(kind, n, delta, seed):
    images = pictures(n, kind, seed)
    found = shift_test(images, delta, seed)
    assert found.images.shape == images.shape
    assert found.images.dtype == images.dtype
    assert found.clients is None
    strong = found.domains[:, None] == np.array(CHANNELS)
    expected = images * np.where(strong, delta, 1 / delta)[:, :, None, None]
    if kind == np.uint8:
        expected = np.rint(expected).clip(0, 255)
    np.testing.assert_allclose(found.images, expected, rtol=1e-6)
    np.testing.assert_array_equal(found.images, shift_test(images, delta, seed).images)


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(n=st.integers(0, 9), seed=seeds)
def test_an_intensity_of_one_leaves_every_bit_alone(kind, n, seed):
    images = pictures(n, kind, seed)
    if n and kind != np.uint8:
        images[0, 0, 0] = -0.0
    assert shift_test(images, 1, seed).images.tobytes() == images.tobytes()
    if n:
        assert shift_clients(images, iid(n, 1), 1.0).images.tobytes() == images.tobytes()


@quick
@given(n=st.integers(1, 30), clients=st.integers(1, 9), seed=seeds)
def test_the_images_of_a_client_share_its_domain(n, clients, seed):
    partition = iid(n, min(n, clients), seed=seed)
    images = pictures(n, np.float64, seed)
    found = shift_clients(images, partition, 1.5, seed)
    assert len(found.clients) == len(partition)
    for domain, index in zip(found.clients, partition.indices, strict=True):
        assert set(found.domains[index]) == {domain}
    np.testing.assert_array_equal(found.images, shift(images, found.domains, 1.5))


def test_images_of_no_client_stay():
    images = pictures(4)
    found = shift_clients(images, Partition(("a",), (np.array([2]),)), 2)
    assert found.domains.tolist() == ["", "", found.clients[0], ""]
    np.testing.assert_array_equal(np.delete(found.images, 2, 0), np.delete(images, 2, 0))


def test_the_parts_of_a_personal_split_agree():
    images = pictures(60)
    train, test = personal_split(iid(60, 5), np.arange(60) % 2)
    first, second = (shift_clients(images, part, 1.2, seed=3) for part in (train, test))
    assert first.clients.tolist() == second.clients.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shift_test(pictures()[0], 2), r"images: expected n×3×h×w .*, got shape \(3, 2, 3"),
        (lambda: shift_test(pictures().transpose(0, 2, 3, 1), 2), r"got shape \(6, 2, 3, 3\)"),
        (lambda: shift_test(np.zeros((1, 3, 0, 2)), 2), r"got shape \(1, 3, 0, 2\)"),
        (lambda: shift_test(pictures().astype(int), 2), "uint8, float32 or float64, got int64"),
        (lambda: shift_test([np.ones((3, 2, 2)), np.ones((3, 2, 4))], 2), "got several sizes"),
        (lambda: shift_test(np.full((1, 3, 1, 1), np.nan), 2), "got NaN or infinity in image 0"),
        (lambda: shift_test(pictures(), 0.5), "delta: expected a finite number of at least 1, got"),
        (lambda: shift_test(pictures(), np.inf), "delta: expected a finite number .*, got inf"),
        (lambda: shift_test(pictures(), "2"), "delta: expected a finite number .*, got '2'"),
        (lambda: shift_test(pictures(), 2, seed=-1), "seed: expected a non-negative integer"),
        (lambda: shift(pictures(), ["red"], 2), r"domains: expected one an image \(6\), got shape"),
        (lambda: shift(pictures(1), ["pink"], 2), "expected red, green, blue or '', got 'pink'"),
        (lambda: shift(pictures(1), [0], 2), "expected red, green, blue or '', got 0"),
        (lambda: groups(-1), "n: expected a non-negative integer, got -1"),
        (lambda: shift_clients(pictures(3), iid(5, 2), 2), "for sample 4 .*, got 3 images"),
    ],
)
def test_a_mistake_is_named(call, message):
    with pytest.raises(DataError, match=message):
        call()

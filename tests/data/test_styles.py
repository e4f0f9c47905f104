"""Styles: amplitudes and colours of images, images in another's style, and whose rows they are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from headstart.data import augment, styles
from headstart.data.augment import Draw
from headstart.data.augment.restyle import CFSI, FDA, LAB
from headstart.data.styles import StyleBank
from headstart.errors import DataError, HeadstartError
from headstart.federation.grouped import Grouped
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.federation.styles import styles as styles_step
from headstart.privacy.layout import Layout
from headstart.privacy.masked import Masked
from headstart.privacy.refusals import Abort
from headstart.statistics.style_rows import StyleRows

KINDS = (np.uint8, np.float32, np.float64)
quick = settings(max_examples=25, deadline=None)
sides = st.integers(1, 23)
seeds = st.integers(0, 2**32)


def pictures(n=2, height=18, width=24, seed=0, kind=np.uint8):
    pixels = np.random.default_rng(seed).integers(256, size=(n, 3, height, width), dtype=np.uint8)
    return pixels if kind == np.uint8 else (pixels / 255).astype(kind)


def levels(images):
    return images.astype(np.float64) * (1 if images.dtype == np.uint8 else 255)


# -- amplitudes ------------------------------------------------------------------------------------


@quick
@given(height=sides, width=sides, share=st.floats(0.01, 0.6), mix=st.floats(0, 1), seed=seeds)
def test_an_image_with_its_own_amplitudes_is_itself(height, width, share, mix, seed):
    images = pictures(2, height, width, seed, np.float64)
    own = styles.amplitudes(images, styles.half_window(height, width, share))
    found = styles.fda(images, own, mix)
    assert np.abs(levels(found) - levels(images)).max() < 1e-3
    assert np.array_equal(
        styles.fda(pictures(2, height, width, seed), own, mix), pictures(2, height, width, seed)
    )


@quick
@given(height=sides, width=sides, seed=seeds, mix=st.floats(0, 1))
def test_a_restyled_image_is_real_to_rounding(height, width, seed, mix):
    images, others = (pictures(3, height, width, seed + by) for by in (0, 1))
    half = styles.half_window(height, width, 0.3)
    found = styles._restyled(images, styles.amplitudes(others, half), mix)
    assert np.abs(found.imag).max() < 1e-9


@quick
@given(height=sides, width=sides, share=st.floats(0.01, 0.6), seed=seeds)
def test_amplitudes_are_those_of_the_whole_transform(height, width, share, seed):
    images = pictures(2, height, width, seed)
    a, b = half = styles.half_window(height, width, share)
    whole = np.fft.fftshift(np.abs(np.fft.fft2(images.astype(float))), axes=(2, 3))
    y, x = height // 2, width // 2
    expected = whole[:, :, y - a : y + a + 1, x - b : x + b + 1] / (height * width)
    np.testing.assert_allclose(styles.amplitudes(images, half), expected, atol=1e-9)


def test_a_window_by_hand():
    """0.5·255 everywhere, and a cosine of 2 periods across: its amplitude is half its height."""
    wave = 0.2 * np.cos(2 * np.pi * 2 * np.arange(16) / 16)
    images = np.broadcast_to(0.5 + wave, (1, 3, 8, 16))
    found = styles.amplitudes(images, (1, 2))
    expected = np.zeros((3, 5))
    expected[1] = [25.5, 0, 127.5, 0, 25.5]
    np.testing.assert_allclose(found, np.broadcast_to(expected, (1, 3, 3, 5)), atol=1e-9)
    flat = styles.fda(images, np.full((3, 1, 1), 51.0))  # the mean colour alone
    np.testing.assert_allclose(flat[0, 0, 0], 0.2 + wave, atol=1e-9)
    half = styles.fda(images, np.full((3, 1, 1), 51.0), 0.5)
    np.testing.assert_allclose(half[0, 0, 0], 0.35 + wave, atol=1e-9)


def test_restyling_takes_the_window_and_leaves_the_rest():
    images, other = pictures(2, kind=np.float64) / 4 + 0.4, pictures(1, seed=9)
    style = styles.amplitudes(other, (1, 2))
    found = styles.fda(images, style)  # so mild that nothing is clipped
    assert 0 < found.min() < found.max() < 1
    for image in found:
        np.testing.assert_allclose(styles.amplitudes(image[None], (1, 2)), style, atol=1e-9)
    was, now = (np.fft.fft2(levels(x)) for x in (images, found))
    outside = np.ones(was.shape[2:], bool)
    outside[np.array([-1, 0, 1])[:, None], np.arange(-2, 3)] = False
    np.testing.assert_allclose(now[..., outside], was[..., outside], atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_and_floats_have_one_scale_and_keep_their_type(kind):
    images = pictures(2, kind=kind)
    style = styles.amplitudes(pictures(1, seed=3), (1, 1))
    for found, expected in (
        (styles.fda(images, style), styles.fda(pictures(2, kind=np.float64), style)),
        (
            styles.lab(images, styles.colours(pictures(1, seed=3))),
            styles.lab(pictures(2, kind=np.float64), styles.colours(pictures(1, seed=3))),
        ),
    ):
        assert found.dtype == kind
        assert np.abs(levels(found) - levels(expected)).max() < (0.51 if kind == np.uint8 else 1e-3)
    np.testing.assert_allclose(
        styles.amplitudes(images), styles.amplitudes(pictures(2, kind=np.float64)), rtol=1e-6
    )


def test_what_leaves_the_bytes_is_clipped_and_never_wraps():
    bright = np.full((1, 3, 4, 4), 250, np.uint8)
    bright[:, :, 0, 0] = 0
    assert (styles.fda(bright, np.full((3, 1, 1), 400.0))[:, :, 1:] == 255).all()
    assert (styles.lab(bright, [400.0, 0, 0, 1, 1, 1]) == 255).all()


def test_a_window_larger_than_the_image_is_cut_to_what_fits():
    images, style = pictures(1, 5, 6), styles.amplitudes(pictures(1, 30, 40, seed=1), (6, 7))
    fits = styles.fda(images, style[:, :, 4:9, 5:10])  # reaches 2 and 2
    assert np.array_equal(styles.fda(images, style), fits)


# -- colours ---------------------------------------------------------------------------------------


def test_known_colours():
    """Of sRGB's white, mid grey, red and blue, CIE LAB at D65."""
    rgb = np.array([[255, 255, 255], [119, 119, 119], [255, 0, 0], [0, 0, 255]], np.uint8)
    lab = styles.to_lab(rgb[:, :, None, None])[..., 0, 0]
    expected = [[100, 0, 0], [50.03, 0, 0], [53.24, 80.09, 67.2], [32.3, 79.19, -107.86]]
    np.testing.assert_allclose(lab, expected, atol=0.02)


@quick
@given(height=sides, width=sides, seed=seeds)
def test_colours_there_and_back(height, width, seed):
    images = pictures(2, height, width, seed)
    back = styles.from_lab(styles.to_lab(images))
    assert np.abs(levels(back) - levels(images)).max() < 1e-2
    assert np.array_equal(styles.from_lab(styles.to_lab(images), np.uint8), images)


def test_an_image_takes_the_colours_of_another():
    images = pictures(2, kind=np.float64) / 4 + 0.4
    row = np.array([55.0, 2.0, -3.0, 3.0, 1.5, 2.0])
    found = styles.colours(styles.lab(images, row))
    np.testing.assert_allclose(found, np.stack([row, row]), atol=1e-6)
    own = styles.lab(images, styles.colours(images))
    assert np.abs(levels(own) - levels(images)).max() < 1e-2


def test_a_blank_image_stays_blank():
    blank = np.full((1, 3, 4, 4), 77, np.uint8)
    found = styles.lab(blank, [60.0, 0, 0, 30, 20, 20])
    assert len(np.unique(found)) == 1


# -- banks -----------------------------------------------------------------------------------------


@quick
@given(order=st.permutations(["a", "b", "c"]), seed=seeds)
def test_a_client_receives_the_rows_of_all_others_and_nothing_of_its_own(order, seed):
    rng = np.random.default_rng(seed)
    rows = {name: rng.normal(size=(k + 1, 2)) for k, name in enumerate("abc")}
    bank = StyleBank.of({name: rows[name] for name in order})
    assert len(bank) == 6
    same = StyleBank.of(rows)
    assert (bank.owners, bank.rows.tobytes()) == (same.owners, same.rows.tobytes())
    for name in "abc":
        others = bank.without(name)
        found = {tuple(others.row(i)) for i in range(len(others))}
        assert found == {tuple(row) for who in "abc" if who != name for row in rows[who]}
        np.testing.assert_allclose(bank.means()[name], rows[name].mean(axis=0))
    assert len(bank.without()) == 6


def test_privacy_code_refuses_rows_by_type():
    """No mask and no group hides rows."""
    bank = StyleBank.of({"a": np.ones((2, 6))})
    for rows in (bank, bank.without("b"), StyleRows(np.ones((2, 6), np.float32))):
        with pytest.raises(Abort, match="are rows, not sums; no mask hides them") as caught:
            Layout.of(rows, np.arange(2))
        assert caught.value.code == "rows"
    data = {name: ClientData(None) for name in "abcd"}
    with pytest.raises(HeadstartError, match="StyleRows are rows, not sums; a group cannot hide"):
        list(Grouped(Simulator(data), 2).answers(styles_step(LAB())))
    with pytest.raises(HeadstartError, match="secure: expected a step that masks can hide"):
        list(Masked(Simulator(data), 4, classes=np.arange(2)).answers(styles_step(LAB())))


# -- augmentations ---------------------------------------------------------------------------------


def photo(seed=0, size=(24, 18)):
    width, height = size
    return Image.fromarray(pictures(1, height, width, seed)[0].transpose(1, 2, 0))


def bound(how, client="a", seeds=range(1, 4)):
    """With the styles of three other clients' photographs, and one of its own that is black."""
    rows = {f"other {seed}": how.measured(photo(seed))[None] for seed in seeds}
    rows["a"] = how.measured(Image.new("RGB", (24, 18)))[None]
    return how.with_styles(StyleBank.of(rows).without(client))


ALL = [LAB(), CFSI(side=40), FDA()]


@pytest.mark.parametrize("how", ALL, ids=lambda how: how.name)
def test_the_key_draws_and_nothing_else(how):
    one, image = bound(how), photo()
    for at in range(12):
        found = [np.asarray(one.image(image, Draw(b"key", how.name, at))) for _ in range(2)]
        assert np.array_equal(*found)
    pictures_ = {one.image(image, Draw(b"key", how.name, at)).tobytes() for at in range(40)}
    assert len(pictures_) >= (4 if how.probability < 1 else 3)


@pytest.mark.parametrize("how", ALL, ids=lambda how: how.name)
def test_images_take_styles_as_often_as_is_said(how):
    one, image = bound(how), photo()
    same = [
        one.image(image, Draw(b"", how.name, at)).tobytes() == image.tobytes() for at in range(300)
    ]
    assert 1 - np.mean(same) == pytest.approx(how.probability, abs=0.1)


@pytest.mark.parametrize("how", ALL, ids=lambda how: how.name)
def test_nobody_draws_its_own_style(how):
    """All images of `a` are black: whoever drew its row would see black."""
    one, image = bound(how), photo()
    seen = [np.asarray(one.image(image, Draw(b"", how.name, at))) for at in range(60)]
    darkest = min(int(pixels.mean()) for pixels in seen)
    assert darkest > 60
    free = bound(how, client="nobody")
    seen = [np.asarray(free.image(image, Draw(b"", how.name, at))) for at in range(60)]
    assert min(int(pixels.mean()) for pixels in seen) < darkest - 20


def test_lab_and_fda_give_the_very_style_of_a_row():
    image, others = photo(), [photo(seed) for seed in (1, 2, 3)]
    raw = np.asarray(image).transpose(2, 0, 1)[None]
    for how in (LAB(1), FDA()):
        rows = [how.measured(other) for other in others]
        made = (
            [styles.lab(raw, row) for row in rows]
            if isinstance(how, LAB)
            else [styles.fda(raw, row.reshape(3, 3, 3)) for row in rows]
        )
        possible = {found[0].transpose(1, 2, 0).tobytes() for found in made}
        one = bound(how)
        drawn = {one.image(image, Draw(b"", how.name, at)).tobytes() for at in range(60)}
        assert drawn == possible


def test_cfsi_mixes_by_a_draw_of_its_own():
    one, image = bound(CFSI(1, side=40), seeds=[1]), photo()
    means = [np.asarray(one.image(image, Draw(b"", "cfsi", at))).tobytes() for at in range(30)]
    assert len(set(means)) > 25
    assert len(CFSI(side=100).measured(photo())) == 3 * 11 * 11  # ±5 of 100


def test_a_style_does_not_depend_on_the_size_of_an_image():
    """Images of unlike sizes have rows of one length, and a flat image the same row."""
    for how in ALL:
        small, large = (
            how.measured(Image.new("RGB", size, (90, 120, 40))) for size in ((7, 5), (80, 64))
        )
        np.testing.assert_allclose(small, large, atol=1e-6)


def test_a_client_that_is_alone_sees_its_images_as_they_are():
    for how in ALL:
        alone = how.with_styles(StyleBank.of({"a": how.measured(photo())}).without("a"))
        image = photo()
        for at in range(4):
            assert alone.image(image, Draw(b"", how.name, at)) is image


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: LAB().image(photo(), None), "lab: expected the styles of other clients, got none"),
        (lambda: augment.make("cfsi", {"share": 0}), "share: expected a number above 0, at most 1"),
        (lambda: augment.make("fda", {"half": -1}), "half: expected a whole number up to 127"),
        (lambda: augment.make("lab", {"probability": 2}), "probability: expected a number above 0"),
        (lambda: styles.amplitudes(pictures(1, 4, 9), (2, 1)), r"half: expected .* to \(1, 4\)"),
        (lambda: styles.to_lab(np.zeros((1, 3, 2))), "images: expected n×3×h×w"),
        (lambda: StyleBank.of({}), "rows: expected clients with rows of one length, got"),
        (lambda: StyleBank.of({"a": np.ones((1, 2)), "b": np.ones((1, 3))}), r"got \[2, 3\]"),
        (lambda: StyleBank(np.full((1, 2), np.nan), ("a",)), "rows: expected finite numbers"),
        (lambda: StyleBank(np.ones((2, 2)), ("a",)), r"owners: expected one per row \(2\), got 1"),
    ],
)
def test_a_mistake_is_named(call, said):
    with pytest.raises((DataError, HeadstartError), match=said):
        call()

"""Every kind of picture becomes the input the weights were trained on."""

import io

import numpy as np
import pytest
from PIL import Image

from headstart.data.backbones import Preprocess
from headstart.data.backbones.preprocess import IMAGENET_MEAN, IMAGENET_STD
from headstart.errors import DataError

RNG = np.random.default_rng(0)
RAW = Preprocess(size=8, resize=8, mean=(0, 0, 0), std=(1, 1, 1))  # x/255, nothing else


def picture(width=40, height=30):
    return Image.fromarray(RNG.integers(0, 256, (height, width, 3)).astype(np.uint8))


def saved(image, kind="png", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return Image.open(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize(("width", "height"), [(40, 30), (30, 40), (31, 31), (300, 257), (7, 5)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_arithmetic_by_hand(width, height, interpolation):
    image = picture(width, height)
    found = Preprocess(24, 32, interpolation)(image)
    short = min(width, height)
    size = (32, int(32 * height / short)) if width <= height else (int(32 * width / short), 32)
    resized = image.resize(size, Image.Resampling[interpolation.upper()])
    left, top = round((size[0] - 24) / 2), round((size[1] - 24) / 2)
    pixels = np.asarray(resized, np.float64)[top : top + 24, left : left + 24] / 255
    expected = ((pixels - IMAGENET_MEAN) / IMAGENET_STD).transpose(2, 0, 1)
    assert found.shape == (3, 24, 24)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_small_images_fill_the_input():
    small = Preprocess().for_small()
    assert (small.size, small.resize) == (224, 224)
    assert small(picture(32, 32)).shape == (3, 224, 224)


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK", "YCbCr", "PA", "I;16"])
def test_modes_agree_on_a_black_and_white_picture(mode):
    pixels = np.zeros((8, 8), np.uint8)
    pixels[:4] = 255
    grey = Image.fromarray(pixels)
    if mode == "I;16":
        image = Image.fromarray(pixels.astype(np.uint16) * 257)
    elif mode in ("PA", "LA"):
        image = grey.convert("RGB").convert("LA").convert(mode)
    else:
        image = grey.convert("RGB").convert(mode)
    assert image.mode == mode
    np.testing.assert_allclose(RAW(image), np.stack([pixels / 255] * 3), atol=0.01)


def test_sixteen_bits_are_scaled_not_clipped():
    values = np.array([[0, 257, 32896, 65535]] * 4, np.uint16)
    image = saved(Image.fromarray(values))
    assert image.mode.startswith("I")
    plain = Preprocess(size=4, resize=4, mean=(0, 0, 0), std=(1, 1, 1))
    np.testing.assert_allclose(plain(image)[0, 0] * 255, [0, 1, 128, 255], atol=1e-4)


@pytest.mark.parametrize("mode", ["RGBA", "P"])
def test_transparent_is_white(mode):
    image = Image.new("RGBA", (8, 8), (200, 0, 0, 0))
    image.paste((0, 0, 200, 255), (0, 0, 8, 4))
    if mode == "P":
        image = Image.new("P", (8, 8), 1)
        image.putpalette([0, 0, 200, 200, 0, 0])
        image.paste(0, (0, 0, 8, 4))
        image = saved(image, transparency=1)
    assert image.mode == mode
    found = RAW(image)
    np.testing.assert_allclose(found[:, 7, 0], [1, 1, 1], atol=1e-6)
    np.testing.assert_allclose(found[:, 0, 0], [0, 0, 200 / 255], atol=1e-6)


def test_exif_orientation_is_applied():
    upright = picture(8, 8)
    turned = upright.transpose(Image.Transpose.ROTATE_90)  # the camera was turned
    exif = Image.Exif()
    exif[0x0112] = 6
    image = saved(turned, exif=exif)
    np.testing.assert_array_equal(RAW(image), RAW(upright))


@pytest.mark.parametrize("size", [(1, 3000), (3000, 1), (1, 1), (2, 50)])
def test_extreme_shapes_cost_no_memory(size):
    assert RAW(picture(*size)).shape == (3, 8, 8)


def test_a_long_picture_keeps_its_middle():
    image = Image.new("RGB", (1000, 10), "red")
    image.paste("blue", (490, 0, 510, 10))
    np.testing.assert_allclose(RAW(image)[:, :, 3], [[0] * 8, [0] * 8, [1] * 8], atol=1e-6)


def test_a_damaged_file_is_an_error():
    file = io.BytesIO()
    picture(200, 200).save(file, "jpeg")
    with pytest.raises(DataError, match="image: cannot be decoded"):
        RAW(Image.open(io.BytesIO(file.getvalue()[:2000])))


def test_floating_point_pictures_have_no_known_scale():
    with pytest.raises(DataError, match="mode F"):
        RAW(Image.fromarray(np.zeros((8, 8), np.float32)))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"size": 0}, "size"),
        ({"size": 224.0}, "size"),
        ({"resize": 200}, "resize"),
        ({"interpolation": "nearest"}, "interpolation"),
        ({"mean": (0.5,)}, "mean"),
        ({"std": (1, 1, 0)}, "std"),
        ({"std": (1, 1, np.nan)}, "std"),
    ],
)
def test_settings_that_make_no_sense_are_named(options, named):
    with pytest.raises(DataError, match=f"^{named}: expected"):
        Preprocess(**options)


def test_settings_round_trip_and_lists_are_taken():
    made = Preprocess(mean=[0.1, 0.2, 0.3])
    assert Preprocess(**made.settings()) == made
    assert hash(made) == hash(Preprocess(mean=(0.1, 0.2, 0.3)))

"""Augmentations: what is drawn, from what, and the same everywhere."""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from headstart import HeadstartError
from headstart.data import augment
from headstart.data.augment import AUGMENTATIONS, Augmentation, Draw, Frame
from headstart.data.augment.crop import Crop
from headstart.data.augment.flip import Flip
from headstart.data.backbones.preprocess import Preprocess
from headstart.data.image_samples import ImageReader, ImageSamples
from headstart.data.images import load_images

quick = settings(max_examples=60, deadline=None)
SCRIPT = """
import hashlib, json, sys
import numpy as np
from headstart.data.augment import make
from headstart.data.backbones.preprocess import Preprocess
from headstart.data.image_samples import ImageReader, ImageSamples
from headstart.data.images import load_images

images = load_images(sys.argv[1])
reader = ImageReader(images, Preprocess(size=8, resize=8))
both = (make("crop"), make("flip"))
samples = ImageSamples(reader, np.arange(len(images)), images.labels, both)
x, _ = samples.read(np.array([4, 1]), b"secret 3")
print(json.dumps([hashlib.sha256(image.tobytes()).hexdigest() for image in x]))
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for at in range(7):
        place = folder / f"k{at % 2}" / f"{at}.png"
        place.parent.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (20 + at, 30 - at, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place)
    return folder


@pytest.fixture
def samples(photos):
    images = load_images(photos)
    reader = ImageReader(images, Preprocess(size=8, resize=8))
    both = (Crop(), Flip())
    return ImageSamples(reader, np.arange(len(images)), images.labels, both)


# -- the same everywhere ---------------------------------------------------------------------------


def test_another_process_reads_the_same_bytes(photos, samples):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(photos)], check=True, capture_output=True, text=True
    )
    x, _ = samples.read(np.array([4, 1]), b"secret 3")
    assert json.loads(done.stdout) == [hashlib.sha256(image.tobytes()).hexdigest() for image in x]


@quick
@given(order=st.permutations(range(7)), count=st.integers(1, 7), key=st.binary(max_size=40))
def test_what_else_is_in_a_batch_does_not_matter(photos, order, count, key):
    images = load_images(photos)
    reader = ImageReader(images, Preprocess(size=8, resize=8))
    samples = ImageSamples(reader, np.arange(7), images.labels, (Crop(), Flip()))
    rows = np.array(order[:count])
    x, y = samples.read(rows, key)
    assert np.array_equal(y, images.labels[rows])
    for image, row in zip(x, rows, strict=True):
        assert np.array_equal(image, samples.read(np.array([row]), key)[0][0])


def test_a_draw_is_known_forever():
    """Written down once: another version of the code must draw the same."""
    draw = Draw(b"secret", "crop", 5)
    assert [draw.word() for _ in range(2)] == WORDS
    assert Draw(b"secret", "flip", 5).word() != WORDS[0]
    assert Draw(b"secret", "crop", 6).word() != WORDS[0]
    assert Draw(b"secres", "crop", 5).word() != WORDS[0]
    assert Draw(b"secret", "crop", 5).uniform() == (WORDS[0] >> 11) * 2.0**-53


WORDS = [10430095143570943808, 17125937412464521049]


def test_the_key_is_what_draws(samples):
    one, two, other = (samples.read(key=key)[0] for key in (b"a", b"a", b"b"))
    assert np.array_equal(one, two)
    assert not any(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_without_a_key_nothing_is_drawn(samples):
    plain = samples.augmented(())
    assert np.array_equal(samples.read()[0], plain.read()[0])
    assert np.array_equal(plain.read(key=b"a")[0], plain.read()[0])


# -- crops and flips -------------------------------------------------------------------------------


@quick
@given(
    width=st.integers(1, 400),
    height=st.integers(1, 400),
    scale=st.floats(0.01, 1),
    at=st.integers(0, 2**40),
)
def test_a_crop_is_a_part_of_the_image(width, height, scale, at):
    frame = Crop(scale).frame(Frame(width, height), Draw(b"key", "crop", at))
    left, top, right, bottom = frame.box
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    assert (frame.width, frame.height) == (width, height)


def test_crops_have_the_area_and_the_proportions_that_are_said():
    boxes = [Crop(0.3).frame(Frame(600, 600), Draw(b"", "crop", at)).box for at in range(4000)]
    left, top, right, bottom = np.array(boxes).T
    width, height = right - left, bottom - top
    area, ratio = width * height / 600**2, width / height
    assert area.min() > 0.29
    assert 0.74 < ratio.min() < ratio.max() < 1.35
    assert area[ratio > 1].mean() == pytest.approx(area[ratio < 1].mean(), abs=0.02)
    assert np.log(ratio).mean() == pytest.approx(0, abs=0.01)
    free = (600 - width) > 20
    assert (left / np.maximum(600 - width, 1))[free].mean() == pytest.approx(0.5, abs=0.02)
    assert (top / np.maximum(600 - height, 1))[free].mean() == pytest.approx(0.5, abs=0.03)


def test_a_crop_is_resized_to_the_input_whatever_its_proportions(photos, samples):
    only = samples.augmented((Crop(0.2),))
    x, _ = only.read(np.array([3]), b"key")
    image = samples.reader.decoded(3)
    frame = Crop(0.2).frame(Frame(*image.size), Draw(b"key", "crop", 3))
    part = image.resize((8, 8), Image.Resampling.BILINEAR, frame.box)
    prepare = samples.reader.preprocess
    assert np.array_equal(x[0], prepare(part))


def test_flips_mirror_the_rows_half_of_the_time(samples):
    only = samples.augmented((Flip(),))
    plain = samples.read()[0]
    mirrored = [
        [np.array_equal(now, was[:, :, ::-1]) for now, was in zip(x, plain, strict=True)]
        for x in (only.read(key=b"%d" % at)[0] for at in range(60))
    ]
    same = [
        [np.array_equal(now, was) for now, was in zip(x, plain, strict=True)]
        for x in (only.read(key=b"%d" % at)[0] for at in range(60))
    ]
    assert (np.array(mirrored) ^ np.array(same)).all()
    assert 0.4 < np.mean(mirrored) < 0.6
    assert np.array_equal(samples.augmented((Flip(1),)).read(key=b"")[0], plain[..., ::-1])


# -- one's own -------------------------------------------------------------------------------------


def test_names_and_settings():
    assert {"crop", "flip", "fedrdn", "domain-shift"} <= set(AUGMENTATIONS)
    assert augment.make("Crop", {"scale": 0.5}) == Crop(0.5)
    with pytest.raises(HeadstartError, match="flip: expected settings among probability, got p"):
        augment.make("flip", {"p": 1})
    with pytest.raises(HeadstartError, match="probability: expected a number above 0, at most 1"):
        augment.make("flip", {"probability": 2})


def test_one_of_your_own_changes_colours(samples):
    @dataclass(frozen=True)
    class Grey(Augmentation):
        name: ClassVar[str] = "grey"
        needs_decoded: ClassVar[bool] = True

        def image(self, image, draw):
            return image.convert("L").convert("RGB")

    x, _ = samples.augmented((Grey(),)).read(key=b"")
    values = x * np.array(samples.reader.preprocess.std)[:, None, None]
    values += np.array(samples.reader.preprocess.mean)[:, None, None]
    assert np.abs(values[:, 0] - values[:, 1]).max() < 1e-5


def test_what_is_no_augmentation_is_refused():
    @dataclass
    class Thawed(Augmentation):
        name: ClassVar[str] = "thawed"

    @dataclass(frozen=True)
    class Needy(Augmentation):
        name: ClassVar[str] = "needy"
        strength: float

    for wrong, said in ((Thawed, "a frozen dataclass"), (Needy, "fields have defaults")):
        with pytest.raises(HeadstartError, match=said):
            augment.register_augmentation(wrong)
    with pytest.raises(HeadstartError, match="expected a subclass of Augmentation"):
        AUGMENTATIONS.add(lambda image: image, name="function")

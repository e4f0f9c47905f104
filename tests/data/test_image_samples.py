"""Images as samples: read when they are needed, the same numbers as an extractor's input."""

import numpy as np
import pytest
from PIL import Image

from headstart.data import image_samples
from headstart.data.backbones.preprocess import Preprocess
from headstart.data.image_samples import ImageReader, ImageSamples
from headstart.data.image_set import CorruptImage
from headstart.data.images import load_images
from headstart.data.samples import ArraySamples, blocks

PREPARE = Preprocess(size=8, resize=8)


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    for at in range(9):
        place = tmp_path / "photos" / f"k{at % 3}" / f"{at}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (12, 17, 3), dtype=np.uint8)).save(place)
    return load_images(tmp_path / "photos")


def held(images, rows=None):
    rows = np.arange(len(images)) if rows is None else np.array(rows)
    return ImageSamples(ImageReader(images, PREPARE), rows, images.labels[rows])


def test_read_is_what_preprocessing_gives_bit_for_bit(images):
    x, y = held(images).read()
    assert x.dtype == np.float32
    assert np.array_equal(y, images.labels)
    assert np.array_equal(x, np.stack([PREPARE(images.open(i)) for i in range(len(images))]))


def test_lengths_labels_and_shape_are_known_without_decoding(images, monkeypatch):
    monkeypatch.setattr(ImageReader, "decoded", None)
    samples = held(images, [4, 2, 0])
    assert len(samples) == 3
    assert samples.shape == (3, 8, 8)
    assert np.array_equal(samples.labels, images.labels[[4, 2, 0]])
    assert len(samples.first(0)) == 0
    assert samples.first(0).read()[0].shape == (0, 3, 8, 8)


def test_positions_are_those_among_the_clients_own(images):
    samples, every = held(images, [4, 2, 0]), held(images).read()[0]
    assert np.array_equal(samples.read(np.array([1, 0]))[0], every[[2, 4]])
    assert np.array_equal(samples.read(slice(1, None))[0], every[[2, 0]])
    assert np.array_equal(samples.relabelled(np.arange(3)).read()[1], np.arange(3))


def test_what_is_kept_of_decoded_images_is_bounded(images, monkeypatch):
    monkeypatch.setattr(image_samples, "KEPT", 4 * 3 * 8 * 8)
    samples = held(images)
    before = samples.read()[0]
    assert len(samples.reader._slots) == 4
    assert np.array_equal(samples.read()[0], before)


def test_content_changes_with_the_image_and_the_size(images):
    def marks(samples):
        return list(samples.content())

    assert marks(held(images, [1, 2])) == marks(held(images, [1, 2]))
    assert marks(held(images, [1, 2])) != marks(held(images, [2, 1]))
    rows = np.array([1, 2])
    other = ImageSamples(ImageReader(images, Preprocess(9, 9)), rows, images.labels[rows])
    assert marks(other) != marks(held(images, [1, 2]))


def test_an_image_that_cannot_be_read_any_more_is_named(images):
    path = images.source.root / images.source.names[3]
    path.write_bytes(b"no image")
    samples = held(images)
    assert len(samples.read(np.array([0, 1]))[0]) == 2
    with pytest.raises(CorruptImage, match=path.name):
        samples.read(np.array([3]))


@pytest.mark.parametrize(("shape", "sizes"), [((5,), [4, 4, 2]), ((3, 8, 8), [2] * 5)])
def test_blocks_hold_so_many_samples_and_numbers(shape, sizes):
    samples = ArraySamples(np.zeros((10, *shape)), np.zeros(10))
    found = [len(samples.read(part)[1]) for part in blocks(samples, 4, 400)]
    assert found == sizes

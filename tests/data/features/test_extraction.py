"""Features: the rows of fixed batches, whatever the threads and the places."""

import hashlib
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image

from headstart.data import feature_cache
from headstart.data.features import as_dataset, dataset_from_images, extract
from headstart.data.images import load_images
from headstart.errors import DataError

from .fakes import Fake, files, preprocess


def test_rows_are_those_of_fixed_batches(images, tmp_path):
    fake = Fake()
    found = extract(images, fake, tmp_path / "cache")
    pixels = np.stack([preprocess(images.open(i)) for i in range(len(images))])
    padded = np.concatenate([pixels, np.zeros((1, 3, 8, 8), np.float32)])
    expected = np.concatenate([Fake()(padded[i : i + 4]) for i in range(0, 28, 4)])[:27]
    np.testing.assert_array_equal(found.array, expected)
    assert fake.shapes == [(4, 3, 8, 8)] * 7
    assert found.array.dtype == np.float32
    assert found.kept.all()
    assert found.corrupt == ()
    assert found.digest == hashlib.sha256(expected.tobytes()).hexdigest()


def test_features_are_mapped_and_read_only(images, tmp_path):
    found = extract(images, Fake(), tmp_path / "cache")
    assert isinstance(found.array, np.memmap)
    assert not found.array.flags.writeable
    np.testing.assert_array_equal(np.load(found.path, allow_pickle=False), found.array)
    data = as_dataset(images, found)
    assert np.shares_memory(data.features, found.array)


def test_the_number_of_threads_changes_nothing(images, tmp_path):
    for workers in (1, 2, 5):
        extract(images, Fake(), tmp_path / str(workers), workers=workers)
    assert files(tmp_path / "1") == files(tmp_path / "2") == files(tmp_path / "5")


class Placing:
    """The same pixels, written straight into the batch."""

    shape = preprocess(Image.new("RGB", (10, 12))).shape

    def __call__(self, image):
        raise AssertionError("a preprocessing that can place is asked to")

    def into(self, image, place):
        place[...] = preprocess(image)


@pytest.mark.parametrize("broken", [(), (0, 5, 6, 7, 26)])
def test_parallel_runs_and_places_change_nothing(images, tmp_path, broken):
    """Batches whose memory is used again have no trace of what was in them."""
    for i in broken:
        Path(images.where(i)).write_bytes(b"no image")
    images = load_images(Path(images.where(0)).parents[2])
    for name, fake in {
        "alone": Fake(),
        "parallel": Fake(parallel=3, pause=0.001),
        "placed": Fake(preprocess=Placing()),
        "both": Fake(parallel=2, preprocess=Placing()),
    }.items():
        extract(images, fake, tmp_path / name, on_corrupt="skip")
    kept = [files(tmp_path / name) for name in ("alone", "parallel", "placed", "both")]
    assert all(found == kept[0] for found in kept)


def test_a_corrupt_image_stops_every_lane(images, tmp_path):
    for i in (0, 26):
        Path(images.where(i)).write_bytes(b"no image")
    fake = Fake(parallel=2, pause=0.02)
    with pytest.raises(DataError, match="images: 2 of 27 images are corrupt"):
        extract(images, fake, tmp_path / "cache")
    assert len(fake.shapes) < 4  # of 7 batches: those already running when the first was met


def test_the_cache_of_the_environment(images, tmp_path, monkeypatch):
    found = extract(images, Fake())
    assert tmp_path / "default" / "features" in found.path.parents
    monkeypatch.delenv("HEADSTART_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert feature_cache.default_cache() == tmp_path / "home/.cache/headstart/features"


def test_dataset(images, tmp_path):
    data = dataset_from_images(images, Fake(), tmp_path / "cache")
    assert data.name == "images"
    assert data.labels.tolist() == images.labels.tolist()
    assert data.clients.tolist() == images.clients.tolist()
    assert data.domains is None
    assert data.test is None
    assert data.features.shape == (27, 6)


def test_progress(images, tmp_path):
    seen = []
    extract(images, Fake(), tmp_path / "cache", progress=lambda _, *step: seen.append(step))
    assert seen == [(done, 27) for done in (0, 4, 8, 12, 16, 20, 24, 27)]
    seen.clear()
    extract(images, Fake(), tmp_path / "cache", progress=lambda _, *step: seen.append(step))
    assert seen == [(27, 27)]


def test_decoding_overlaps_the_network(images, tmp_path):
    """While the network has the first batch, the second is decoded."""
    decoded = threading.Semaphore(0)

    def counted(image):
        decoded.release()
        return preprocess(image)

    class Waiting(Fake):
        def __call__(self, pixels):
            if not self.shapes:
                assert all(decoded.acquire(timeout=5) for _ in range(8))
            return super().__call__(pixels)

    extract(images, Waiting(preprocess=counted), tmp_path / "cache")


def test_only_a_few_batches_are_ahead(images, tmp_path):
    begun = []

    def counted(image):
        begun.append(1)
        return preprocess(image)

    class Slow(Fake):
        def __call__(self, pixels):
            time.sleep(0.02)
            assert len(begun) <= 4 * (len(self.shapes) + 1 + 3)
            return super().__call__(pixels)

    extract(images, Slow(preprocess=counted), tmp_path / "cache")

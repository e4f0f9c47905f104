"""Extractors and caches that are wrong are named."""

import numpy as np
import pytest

pytest.importorskip("PIL")
from headstart.data.features import extract
from headstart.errors import DataError

from .fakes import Fake


def test_bad_arguments(images, tmp_path):
    with pytest.raises(DataError, match="workers: expected a positive integer, got 0"):
        extract(images, Fake(), tmp_path / "cache", workers=0)
    with pytest.raises(DataError, match="on_corrupt: expected 'error' or 'skip', got 'drop'"):
        extract(images, Fake(), tmp_path / "cache", on_corrupt="drop")


def test_features_of_another_shape(images, tmp_path):
    class Wrong(Fake):
        def __call__(self, pixels):
            return super().__call__(pixels)[:, :3]

    with pytest.raises(DataError, match=r"fake: expected features of shape \(4, 6\), got \(4, 3\)"):
        extract(images, Wrong(), tmp_path / "cache")


def test_features_that_are_not_finite_name_the_image(images, tmp_path):
    class Wrong(Fake):
        def __call__(self, pixels):
            found = super().__call__(pixels)
            found[2] = np.nan
            return found

    with pytest.raises(DataError, match="expected finite features from fake") as caught:
        extract(images, Wrong(), tmp_path / "cache")
    assert str(caught.value).startswith(images.where(2))


def test_inputs_of_several_shapes(images, tmp_path):
    count = iter(range(100))

    def odd(image):
        return np.zeros((3, 8, 8 + next(count) % 2), np.float32)

    with pytest.raises(DataError, match="images of one shape"):
        extract(images, Fake(preprocess=odd), tmp_path / "cache")


def test_a_cache_that_cannot_be_written(images, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="the cache cannot be written: Not a directory"):
        extract(images, Fake(), tmp_path / "file")

"""Corrupt images are counted and named, or left out when that is asked for."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")
from headstart.data.features import dataset_from_images, extract
from headstart.errors import DataError, SkippedWarning

from .fakes import Fake, StopError, files, preprocess


def spoil(images, *which):
    for i in which:
        path = Path(images.where(i))
        data = path.read_bytes()
        path.write_bytes((b"", b"text", data[:200])[i % 3])


def test_corrupt_images_are_counted_and_named(images, tmp_path):
    spoil(images, 2, 3, 9, 15, 16, 21, 26)
    fake = Fake()
    seen = []
    with pytest.raises(DataError, match="images: 7 of 27 images are corrupt") as caught:
        extract(images, fake, tmp_path / "cache", progress=lambda _, *step: seen.append(step))
    assert not fake.shapes
    assert seen[-1] == (27, 27)
    text = str(caught.value)
    assert all(images.where(i) in text for i in (2, 3, 9, 15, 16))
    assert images.where(21) not in text
    assert text.endswith("; ...")


def test_corrupt_images_are_skipped_when_asked(images, tmp_path):
    whole = extract(images, Fake(), tmp_path / "whole")
    assert len(whole.array) == 27
    spoil(images, 4, 5, 6, 7, 26)
    found = extract(images, Fake(), tmp_path / "cache", on_corrupt="skip")
    assert found.array.shape == (22, 6)
    assert np.flatnonzero(~found.kept).tolist() == [4, 5, 6, 7, 26]
    assert [where for where, _ in found.corrupt] == [images.where(i) for i in (4, 5, 6, 7, 26)]
    assert "empty file" in dict(found.corrupt)[images.where(6)]
    assert "got something else" in dict(found.corrupt)[images.where(4)]
    np.testing.assert_array_equal(found.array[:20], whole.array[found.kept[:27]][:20])


def test_corruption_is_remembered(images, tmp_path):
    spoil(images, 4)
    extract(images, Fake(), tmp_path / "cache", on_corrupt="skip")
    again = Fake()
    with pytest.raises(DataError, match="1 of 27 images are corrupt"):
        extract(images, again, tmp_path / "cache")
    with pytest.warns(SkippedWarning, match="images: 1 of 27 images are corrupt"):
        data = dataset_from_images(images, again, tmp_path / "cache", on_corrupt="skip")
    assert not again.shapes
    assert len(data) == 26
    assert data.labels.tolist() == np.delete(images.labels, 4).tolist()
    assert data.clients.tolist() == np.delete(images.clients, 4).tolist()


def test_what_was_done_before_a_corrupt_image_is_used(images, tmp_path):
    spoil(images, 18)
    with pytest.raises(DataError, match="1 of 27"):
        extract(images, Fake(), tmp_path / "cache")
    fake = Fake()
    extract(images, fake, tmp_path / "cache", on_corrupt="skip")
    assert len(fake.shapes) == 3
    extract(images, Fake(), tmp_path / "whole", on_corrupt="skip")
    assert files(tmp_path / "cache") == files(tmp_path / "whole")


@pytest.mark.parametrize("after", range(4, 7))
def test_continued_among_corrupt_images(images, tmp_path, after):
    spoil(images, 1, 2, 12, 13, 14, 15, 25)

    class Failing(Fake):
        def __call__(self, pixels):
            if len(self.shapes) == after - 1:
                raise StopError
            return super().__call__(pixels)

    with pytest.raises(StopError):
        extract(images, Failing(), tmp_path / "cache", on_corrupt="skip")
    extract(images, Fake(), tmp_path / "cache", on_corrupt="skip")
    extract(images, Fake(), tmp_path / "whole", on_corrupt="skip")
    assert files(tmp_path / "cache") == files(tmp_path / "whole")


def test_all_images_corrupt(images, tmp_path):
    spoil(images, *range(27))
    for on_corrupt in ("skip", "error"):
        with pytest.raises(DataError, match="27 of 27 images are corrupt"):
            extract(images, Fake(), tmp_path / "cache", on_corrupt=on_corrupt)


def test_an_image_that_cannot_be_preprocessed_is_corrupt(images, tmp_path):
    def picky(image):
        if np.asarray(image)[0, 0, 0] == np.asarray(images.open(3))[0, 0, 0]:
            raise DataError("image: expected another")
        return preprocess(image)

    with pytest.raises(DataError, match=r"cannot be preprocessed: image: expected another"):
        extract(images, Fake(preprocess=picky), tmp_path / "cache")

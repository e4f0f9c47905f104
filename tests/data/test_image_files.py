"""What is in an image file: every mode and format opens, and a corrupt one is named."""

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image

from headstart.data.images import CorruptImage, ImageSet, load_images
from headstart.errors import DataError

from .pictures import picture, plant


@pytest.mark.parametrize(
    ("mode", "format"),
    [
        ("RGB", "PNG"),
        ("L", "PNG"),
        ("RGBA", "PNG"),
        ("P", "GIF"),
        ("1", "TIFF"),
        ("CMYK", "JPEG"),
        ("RGB", "WEBP"),
        ("RGB", "BMP"),
        ("L", "PPM"),
    ],
)
def test_any_mode_and_format_opens(tmp_path, mode, format):
    """The name's suffix does not matter, the content does."""
    images = load_images(plant(tmp_path, a__b=picture(0, mode, format)))
    assert images.open(0).mode == mode
    assert images.open(0).size == (8, 6)


BAD = {
    "empty": b"",
    "text": b"this is not an image",
    "cut_jpeg": picture(0, format="JPEG", size=(64, 64))[:-900],
    "cut_png": picture(0, size=(64, 64))[:3000],
    "cut_webp": picture(0, format="WEBP", size=(64, 64))[:600],
    "broken_png": picture(0)[:30] + b"\xff" * 20 + picture(0)[50:],
    "script": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_corrupt_files_are_named(tmp_path, data):
    root = plant(tmp_path, a__b=picture())
    (root / "a/b.png").write_bytes(data)
    images = load_images(root)
    with pytest.raises(CorruptImage, match=r"a/b\.png: ") as caught:
        images.open(0)
    assert " at 0x" not in caught.value.reason
    assert str(tmp_path) not in caught.value.reason


def test_a_bomb_is_corrupt(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(CorruptImage, match="decompression bomb"):
        load_images(plant(tmp_path, a__b=None)).open(0)


def test_content_is_that_of_the_bytes(tmp_path):
    root = plant(tmp_path, a__b=picture(1), a__c=picture(1), a__d=picture(2))
    images = load_images(root)
    first = [images.content(i) for i in range(3)]
    assert first[0] == first[1] != first[2]
    (root / "a/b.png").write_bytes(picture(3))
    assert images.content(0) != first[0]
    (root / "a/b.png").unlink()
    assert images.content(0) not in first
    with pytest.raises(CorruptImage, match="No such file"):
        images.open(0)


def test_lengths_are_checked(tmp_path):
    source = load_images(plant(tmp_path, a__b=None, a__c=None)).source
    with pytest.raises(DataError, match=r"clients: expected one for each image \(2\), got 1"):
        ImageSet("x", source, [0, 1], np.array(["a"]))

"""Images from archives, and what their meta.csv says."""

import io
import zipfile

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image

from headstart.data import image_files
from headstart.data.images import CorruptImage, is_images, load_images
from headstart.data.table import Columns

from .pictures import META, archive, picture, plant, refuse


def check_described(images):
    assert images.labels.tolist() == [0, 1]
    assert images.domains.tolist() == ["photo", "sketch"]
    assert images.test.tolist() == [False, True]
    assert images.clients is None
    expected = np.asarray(Image.open(io.BytesIO(picture(1))))
    np.testing.assert_array_equal(np.asarray(images.open(1)), expected)


def test_zip_with_meta(tmp_path):
    path = archive(tmp_path / "pics.zip")
    images = load_images(path)
    check_described(images)
    assert is_images(path)
    assert images.name == "pics"
    assert images.where(1) == f"{path}:in/b.png"


def test_folder_with_meta(tmp_path):
    plant(tmp_path, in__a=picture(0), in__b=picture(1), in__unlisted=None)
    (tmp_path / "meta.csv").write_text(META, encoding="utf-8-sig")
    assert is_images(tmp_path)
    check_described(load_images(tmp_path))


def test_zip_of_folders(tmp_path):
    members = {"train/x/a.png": picture(0), "test/y/a.png": picture(1), "__MACOSX/x/a": b""}
    images = load_images(archive(tmp_path / "a.zip", None, **members))
    assert images.labels.tolist() == ["y", "x"]
    assert images.test.tolist() == [True, False]


def test_columns_may_have_other_names(tmp_path):
    text = "species,path,user\ncat,in/a.png,u1\ndog,in/b.png,u2\n"
    path = archive(tmp_path / "a.zip", text)
    images = load_images(path, Columns(label="species", client="user"))
    assert images.labels.tolist() == ["cat", "dog"]
    with_semicolons = archive(tmp_path / "b.zip", text.replace(",", ";"))
    assert load_images(with_semicolons, Columns(label="species")).labels.tolist() == ["cat", "dog"]
    assert images.clients.tolist() == ["u1", "u2"]
    assert images.test is None
    refuse("expected a column 'label'", path)
    assert load_images(path, Columns(labelled=False)).labels.tolist() == ["", ""]


def test_split_all_is_no_split(tmp_path):
    text = META.replace("train", "all").replace("test", "all")
    assert load_images(archive(tmp_path / "a.zip", text)).test is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label\n0\n", "expected a column 'path'"),
        (META.replace("b.png", "z.png"), r"2 listed images, 1 are missing: in/z\.png"),
        (META.replace("in/b", "../b"), r"paths inside the dataset, got '\.\./b\.png'"),
        (META.replace("in/b", "/etc/b"), "paths inside"),
        (META.replace("in/b", "C:/b"), "paths inside"),
        (META.replace(",1,", ",,"), r"\(line 3\): expected a label, got an empty cell"),
        (META.replace(",1,", ","), r"\(line 3\): expected 4 cells"),
        (META.replace("test", "dev"), "train and test, or train and val, got dev, train"),
        (META.replace("test", "all"), "got all, train"),
        ("path,label\n", "at least one image, got none"),
        ("", "expected a header line, got an empty file"),
        (b"path,label\n\xff,0\n", "UTF-8"),
    ],
)
def test_bad_meta(tmp_path, text, message):
    refuse(message, archive(tmp_path / "a.zip", text))


def test_bad_archives(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK nonsense")
    refuse("expected a zip archive", tmp_path / "a.zip")
    path = archive(tmp_path / "b.zip")
    path.write_bytes(path.read_bytes()[:-30])
    refuse("expected a zip archive", path)


def test_broken_and_huge_members_are_corrupt(tmp_path, monkeypatch):
    path = archive(tmp_path / "a.zip")
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        header = file.getinfo("in/b.png").header_offset
    data[header + 30 + len("in/b.png") + 40] ^= 0xFF
    path.write_bytes(data)
    images = load_images(path)
    images.open(0)
    with pytest.raises(CorruptImage, match=r"b\.png: cannot be decompressed"):
        images.open(1)
    assert images.content(1) != images.content(0)
    monkeypatch.setattr(image_files, "MEMBER_LIMIT", 100)
    with pytest.raises(CorruptImage, match="at most 100 bytes, got"):
        images.open(0)

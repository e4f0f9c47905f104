"""Images from folders: classes, clients and splits, and what else lies there."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image

from headstart.data.images import is_images, load_images
from headstart.data.table import Columns
from headstart.errors import SkippedWarning

from .pictures import picture, plant, refuse


def test_class_folders(tmp_path):
    plant(tmp_path / "pets", dog__a=None, cat__b=None, cat__a=None)
    (tmp_path / "pets/.DS_Store").write_text("litter")
    (tmp_path / "pets/cat/Thumbs.db").write_text("litter")
    images = load_images(str(tmp_path / "pets"))
    assert is_images(tmp_path / "pets")
    assert images.name == "pets"
    assert len(images) == 3
    assert images.labels.tolist() == ["cat", "cat", "dog"]
    assert images.clients is images.domains is images.test is None
    assert Path(images.where(1)) == tmp_path / "pets/cat/b.png"
    np.testing.assert_array_equal(
        np.asarray(images.open(2)), np.asarray(Image.open(tmp_path / "pets/dog/a.png"))
    )


def test_client_folders(tmp_path):
    images = load_images(plant(tmp_path, ann__0__a=None, bob__1__a=None, bob__0__b=None))
    assert images.clients.tolist() == ["ann", "bob", "bob"]
    assert images.labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize("held_out", ["test", "val", "Test"])
def test_split_folders(tmp_path, held_out):
    root = plant(tmp_path, **{"train__cat__a": None, f"{held_out}__dog__a": None})
    images = load_images(root)
    assert images.clients is None
    assert dict(zip(images.labels, images.test, strict=True)) == {"cat": False, "dog": True}


def test_bad_folders(tmp_path):
    refuse("no such file", tmp_path / "nowhere")
    refuse("empty folder", tmp_path)
    refuse("a loose file", plant(tmp_path / "loose", a=None))
    refuse("one depth", plant(tmp_path / "mixed", a__b=None, a__c__d=None))
    refuse("folder inside a class", plant(tmp_path / "deep", a__b__c__d=None))
    three = plant(tmp_path / "3", train__a__a=None, test__a__a=None, val__a__a=None)
    refuse("got test, train, val", three)
    refuse("got train", plant(tmp_path / "1", train__a__a=None))
    refuse("without a class", plant(tmp_path / "flat", train__a=None, test__a=None))
    np.save(plant(tmp_path / "other", a__b=None) / "a/c.npy", np.ones(2))
    refuse(r"a/c.npy: expected images .*, got '.npy'; a folder holds either", tmp_path / "other")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/notes.txt").write_text("hello")
    refuse("or images .* as .*, got only notes.txt", tmp_path / "notes")
    (tmp_path / "x.csv").write_text("x")
    refuse("got '.csv'", tmp_path / "x.csv")
    assert not is_images(tmp_path / "x.csv")
    assert not is_images(tmp_path / "nowhere")
    assert not is_images(tmp_path / "deep")


def test_other_files_are_left_out_and_said_once(tmp_path):
    root = plant(tmp_path / "pets", dog__a=None, cat__b=None)
    for name in ("notes.txt", "README", "cat/x.heic", "cat/Thumbs.db"):
        (root / name).write_text("x")
    with pytest.warns(SkippedWarning) as said:
        images = load_images(root)
    assert images.labels.tolist() == ["cat", "dog"]
    (text,) = [str(one.message) for one in said]
    assert text.startswith(f"{root}: 3 files other than images (.jpg, ")
    assert text.endswith("): README, cat/x.heic, notes.txt")
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as file:
        file.writestr("cat/a.png", picture())
        file.writestr("notes.txt", "x")
    with pytest.warns(SkippedWarning, match="pets.zip: 1 file other than images"):
        assert len(load_images(tmp_path / "pets.zip")) == 1


def test_names_that_are_not_utf8(tmp_path):
    root = os.fsencode(tmp_path) + b"/caf\xe9"
    os.makedirs(root + b"/s\xe9/c\xe4t")
    with open(root + b"/s\xe9/c\xe4t/\xff.png", "wb") as file:
        file.write(picture())
    images = load_images(os.fsdecode(root))
    assert images.name == "caf\\xe9"
    assert images.clients.tolist() == ["s\\xe9"]
    assert images.labels.tolist() == ["c\\xe4t"]
    assert images.where(0) == f"{tmp_path}/caf\\xe9/s\\xe9/c\\xe4t/\\xff.png"
    assert images.open(0).size == (8, 6)
    assert images.source.stamp(0) is not None


def test_a_single_image_has_no_label(tmp_path):
    plant(tmp_path, photo=None)
    assert is_images(tmp_path / "photo.png")
    images = load_images(tmp_path / "photo.png", Columns(labelled=False))
    assert images.labels.tolist() == [""]
    assert images.where(0) == str(tmp_path / "photo.png")
    assert images.open(0).size == (8, 6)
    refuse(
        "a single image is not a dataset; expected a folder client/class", tmp_path / "photo.png"
    )


def test_unlabelled_files_may_lie_loose(tmp_path):
    images = load_images(plant(tmp_path, a=None, b=None), Columns(labelled=False))
    assert images.labels.tolist() == ["", ""]


def test_arrays_are_not_images(tmp_path):
    (tmp_path / "cat").mkdir()
    np.save(tmp_path / "cat/a.npy", np.ones(3))
    assert not is_images(tmp_path)


DATA = Path(os.environ.get("HEADSTART_DATA", Path(__file__).parents[3] / "shared/data"))


@pytest.mark.skipif(not (DATA / "pacs").is_dir(), reason="needs PACS")
def test_pacs():
    images = load_images(DATA / "pacs/pacs_160.zip")
    assert len(images) == 9991
    assert np.unique(images.domains).tolist() == ["art_painting", "cartoon", "photo", "sketch"]
    assert np.unique(images.labels).tolist() == list(range(7))
    assert max(images.open(9990).size) == 160


def test_pillow_is_imported_only_to_decode():
    code = "import sys, headstart.data.images, headstart.data.features; print('PIL' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "False\n"

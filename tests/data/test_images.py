"""Images from folders, archives and CIFAR's binary files; and every bad one is one clear line."""

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image

from headstart.data import image_files
from headstart.data.images import CorruptImage, ImageSet, is_images, load_images
from headstart.data.table import Columns
from headstart.errors import DataError, SkippedWarning


def picture(seed=0, mode="RGB", format="PNG", size=(8, 6)):
    """The bytes of a small image of noise."""
    rng = np.random.default_rng(seed)
    image = Image.fromarray(rng.integers(256, size=(size[1], size[0], 3), dtype=np.uint8))
    buffer = io.BytesIO()
    image.convert(mode).save(buffer, format)
    return buffer.getvalue()


def plant(root, **files):
    """Images below `root`; a path has __ for / and gets the suffix .png."""
    for seed, (name, data) in enumerate(files.items()):
        path = root / (name.replace("__", "/") + ".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data or picture(seed))
    return root


def refuse(message, path, **names):
    with pytest.raises(DataError, match=message) as caught:
        load_images(path, Columns(**names))
    assert "\n" not in str(caught.value)


# --- Folders


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


# --- What is in a file


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


# --- Archives and meta.csv


META = """path,split,label,domain
in/a.png,train,0,photo
in/b.png,test,1,sketch
"""


def archive(path, meta=META, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        if meta is not None:
            file.writestr("meta.csv", meta)
        for name, data in (members or {"in/a.png": picture(0), "in/b.png": picture(1)}).items():
            file.writestr(name, data)
    return path


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


# --- CIFAR


def records(count, classes, seed):
    rng = np.random.default_rng(seed)
    labels = [rng.integers(c, size=(count, 1), dtype=np.uint8) for c in classes]
    pixels = rng.integers(256, size=(count, 3072), dtype=np.uint8)
    return np.concatenate([*labels, pixels], axis=1)


CIFAR = {
    "cifar100": {
        "train.bin": records(5, (20, 100), 0),
        "test.bin": records(2, (20, 100), 1),
        "fine_label_names.txt": "\n".join(f"fine{i}" for i in range(100)) + "\n",
        "coarse_label_names.txt": "\n".join(f"coarse{i}" for i in range(20)) + "\n",
    },
    "cifar10": {
        **{f"data_batch_{i}.bin": records(3, (10,), i) for i in range(1, 6)},
        "test_batch.bin": records(2, (10,), 9),
        "batches.meta.txt": "\n".join(f"class{i}" for i in range(10)) + "\n\n",
    },
}


def as_bytes(content):
    return content.encode() if isinstance(content, str) else content.tobytes()


def cifar_folder(root, name):
    root.mkdir(parents=True)
    for file, content in CIFAR[name].items():
        (root / file).write_bytes(as_bytes(content))
    return root


def cifar_archive(path, folder):
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "cifar-binary")
    return path


@pytest.mark.parametrize("name", CIFAR)
def test_cifar(tmp_path, name):
    folder = cifar_folder(tmp_path / "some" / "folder", name)
    every = np.concatenate([c for c in CIFAR[name].values() if not isinstance(c, str)])
    width = every.shape[1] - 3072
    for path in (folder, cifar_archive(tmp_path / f"{name}.tar.gz", folder)):
        images = load_images(path)
        assert is_images(path)
        assert images.name == name
        assert images.labels.tolist() == every[:, width - 1].tolist()
        assert images.test.tolist() == [False] * (len(every) - 2) + [True] * 2
        for i in (0, len(every) - 1):
            expected = every[i, width:].reshape(3, 32, 32)
            np.testing.assert_array_equal(np.asarray(images.open(i)).transpose(2, 0, 1), expected)
        assert str(images.labels[-1]) in images.where(len(images) - 1)
        assert "record 1" in images.where(len(images) - 1)


def test_cifar_in_its_official_folder(tmp_path):
    cifar_folder(tmp_path / "cifar-100-binary", "cifar100")
    images = load_images(tmp_path)
    assert len(images) == 7
    assert isinstance(images.source.records[0].base, np.memmap)


def test_bad_cifar(tmp_path):
    folder = cifar_folder(tmp_path / "a", "cifar10")
    whole = (folder / "data_batch_3.bin").read_bytes()
    (folder / "data_batch_3.bin").write_bytes(whole[:-1])
    refuse("data_batch_3.bin: expected records of 3073 bytes, got 9218 bytes", folder)
    (folder / "data_batch_3.bin").write_bytes(b"\x0a" + whole[1:])
    refuse("data_batch_3.bin, record 0: expected a label below 10, got 10", folder)
    (folder / "data_batch_3.bin").write_bytes(b"")
    refuse("expected records of 3073 bytes, got 0", folder)
    (folder / "data_batch_3.bin").unlink()
    refuse("expected data_batch_3.bin, got none", folder)
    (folder / "data_batch_3.bin").write_bytes(whole)
    (folder / "batches.meta.txt").write_text("one\ntwo\n")
    refuse("expected 10 names, got 2", folder)
    path = cifar_archive(tmp_path / "a.tar.gz", folder)
    path.write_bytes(path.read_bytes()[:5000])
    refuse("expected a tar archive of CIFAR", path)
    (tmp_path / "b.tar.gz").write_bytes(b"nonsense")
    refuse("expected a tar archive of CIFAR", tmp_path / "b.tar.gz")


def test_pickled_cifar_is_refused(tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test", "meta"):
        (folder / name).write_bytes(b"\x80\x02}.")
    path = cifar_archive(tmp_path / "cifar-100-python.tar.gz", folder)
    for source in (folder, tmp_path, path):
        assert is_images(source)
        refuse("binary version of CIFAR .* pickles are never loaded", source)


def test_other_tar_archives_are_refused(tmp_path):
    plant(tmp_path / "x", a__b=None)
    path = cifar_archive(tmp_path / "x.tar.gz", tmp_path / "x")
    refuse(r"expected CIFAR-10 or CIFAR-100, binary, got b\.png", path)


# --- Real data, where it is


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

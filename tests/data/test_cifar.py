"""CIFAR's binary files, in folders and archives; pickled ones are refused."""

import tarfile

import numpy as np
import pytest

pytest.importorskip("PIL")
from headstart.data.images import is_images, load_images

from .pictures import plant, refuse


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

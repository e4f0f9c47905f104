"""Features are extracted once: what is another key, and what is made again."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")
from headstart.data import feature_cache
from headstart.data.features import extract
from headstart.data.images import load_images
from headstart.errors import DataError

from .fakes import Fake, files, picture


def test_a_second_run_does_not_run_the_network(images, root, tmp_path):
    first = extract(images, Fake(), tmp_path / "cache")
    root.rename(tmp_path / "moved")
    again = Fake()
    second = extract(load_images(tmp_path / "moved"), again, tmp_path / "cache")
    assert not again.shapes
    assert second.path == first.path
    assert second.digest == first.digest
    np.testing.assert_array_equal(second.array, first.array)


def test_other_content_order_or_extractor_is_another_key(images, root, tmp_path):
    cache = tmp_path / "cache"
    paths = {extract(images, Fake(), cache).path}
    paths.add(extract(images, Fake(identity="fake-2"), cache).path)
    paths.add(extract(images, Fake(batch=3), cache).path)
    target = Path(images.where(5))
    whole, other = target.read_bytes(), Path(images.where(6))
    target.write_bytes(other.read_bytes())
    other.write_bytes(whole)
    paths.add(extract(images, Fake(), cache).path)
    picture(target, 999)
    paths.add(extract(load_images(root), Fake(), cache).path)
    target.unlink()
    paths.add(extract(load_images(root), Fake(), cache).path)
    assert len(paths) == 6


def test_files_that_did_not_change_are_not_read_again(images, root, tmp_path, monkeypatch):
    monkeypatch.setattr(feature_cache, "SETTLED", -1)
    cache = tmp_path / "cache"
    extract(images, Fake(), cache)
    reads = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: reads.append(path) or real(path))
    extract(load_images(root), Fake(), cache)
    assert not reads
    picture(root / "client0/class0/0000.png", 999)
    fake = Fake()
    extract(load_images(root), fake, cache)
    assert fake.shapes
    assert len(reads) == 28


def test_files_that_just_changed_are_read_again(images, tmp_path):
    extract(images, Fake(), tmp_path / "cache")
    assert not (tmp_path / "cache/hashes").exists()


def test_a_hash_that_no_longer_holds_is_noticed(images, root, tmp_path, monkeypatch):
    """A file that changes during the run, or behind the back of its times."""
    monkeypatch.setattr(feature_cache, "SETTLED", -1)
    monkeypatch.setattr("headstart.data.image_files._stamp", lambda path: (1, 2, 3))
    cache = tmp_path / "cache"
    extract(images, Fake(), cache)
    picture(root / "client0/class0/0000.png", 999)
    with pytest.raises(DataError, match=r"0000\.png: expected the image not to change"):
        extract(images, Fake(identity="fake-2"), cache)
    extract(images, Fake(identity="fake-2"), cache)


def test_a_broken_hash_record_is_ignored(images, tmp_path, monkeypatch):
    monkeypatch.setattr(feature_cache, "SETTLED", -1)
    cache = tmp_path / "cache"
    extract(images, Fake(), cache)
    (record,) = (cache / "hashes").iterdir()
    for text in ("{", "[]", json.dumps({images.where(0): 7, images.where(1): [1]})):
        record.write_text(text)
        fake = Fake()
        extract(images, fake, cache)
        assert not fake.shapes


@pytest.mark.parametrize("harm", ["cut", "report", "other"])
def test_a_damaged_finished_file_is_made_again(images, tmp_path, harm):
    first = extract(images, Fake(), tmp_path / "cache")
    before, path = files(tmp_path / "cache"), first.path
    del first
    if harm == "cut":
        os.truncate(path, 500)
    elif harm == "report":
        (path.parent / "report.json").write_text("{}")
    else:
        np.save(path, np.zeros((3, 3)))
    extract(images, Fake(), tmp_path / "cache")
    assert files(tmp_path / "cache") == before

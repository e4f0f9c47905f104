"""Features are extracted once, survive being killed, and name every image that is corrupt."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image

from headstart.data import feature_cache, features
from headstart.data.features import as_dataset, dataset_from_images, extract
from headstart.data.images import load_images
from headstart.errors import DataError, SkippedWarning


def preprocess(image):
    pixels = np.asarray(image.convert("RGB").resize((8, 8)), np.float32) / 255
    return pixels.transpose(2, 0, 1)


@dataclass
class Fake:
    """Every feature depends on the whole batch, so that any other batch would show."""

    identity: str = "fake-1"
    batch: int = 4
    dimension: int = 6
    name: str = "fake"
    bound: float = 9.0
    pause: float = 0.0
    parallel: int = 1
    preprocess: object = preprocess
    shapes: list = field(default_factory=list)

    def __call__(self, pixels):
        self.shapes.append(pixels.shape)
        time.sleep(self.pause)
        flat = pixels.reshape(len(pixels), -1)[:, : self.dimension]
        return flat + np.float32(pixels.mean())


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    monkeypatch.setattr(features, "BLOCK", 8)
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "default"))


def picture(path, seed):
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(256, size=(12, 10, 3), dtype=np.uint8)).save(path)


def folder(root, count=27):
    for i in range(count):
        picture(root / f"client{i % 2}" / f"class{i % 3}" / f"{i:04d}.png", i)
    return root


@pytest.fixture
def root(tmp_path):
    return folder(tmp_path / "images")


@pytest.fixture
def images(root):
    return load_images(root)


def files(cache):
    """The slots of a cache: what every file of each holds, but for the lock."""
    return {
        path.relative_to(cache).as_posix(): path.read_bytes()
        for path in sorted(cache.rglob("*"))
        if path.is_file() and path.name != "lock" and path.parent.name != "hashes"
    }


def slot(cache):
    (found,) = (path for path in cache.iterdir() if path.name != "hashes")
    return found


# --- What comes out


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


# --- The cache


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


# --- Interruption


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.data.test_features import Fake, extract, features, load_images
features.BLOCK = 8
extract(load_images(sys.argv[2]), Fake(pause=0.05), sys.argv[3])
"""


def child(root, cache):
    here = str(Path(__file__).parents[2])
    return subprocess.Popen([sys.executable, "-c", CHILD, here, str(root), str(cache)])


def wait_for(condition, seconds=20):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_killed_and_continued_is_the_same_file(images, root, tmp_path):
    extract(images, Fake(), tmp_path / "whole")
    cache = tmp_path / "killed"
    process = child(root, cache)
    try:
        wait_for(lambda: any(p.read_bytes().count(b"\n") > 2 for p in cache.glob("*/*.jsonl")))
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert not list(cache.glob("*/features.npy"))
    fake = Fake()
    extract(images, fake, cache)
    assert 0 < len(fake.shapes) <= 3
    assert files(cache) == files(tmp_path / "whole")


class StopError(Exception):
    pass


def interrupted(images, cache, after):
    """A part left by a run that failed after so many batches."""

    class Failing(Fake):
        def __call__(self, pixels):
            if len(self.shapes) == after:
                raise StopError
            return super().__call__(pixels)

    with pytest.raises(StopError):
        extract(images, Failing(), cache)
    return slot(cache)


@pytest.mark.parametrize("after", range(7))
def test_continued_after_any_batch(images, tmp_path, after):
    extract(images, Fake(), tmp_path / "whole")
    interrupted(images, tmp_path / "cache", after)
    fake = Fake()
    steps = []
    extract(images, fake, tmp_path / "cache", progress=lambda _, *step: steps.append(step))
    assert steps[0] == (after // 2 * 8, 27)
    assert len(fake.shapes) == 7 - after // 2 * 2
    assert files(tmp_path / "cache") == files(tmp_path / "whole")


HARMS = {
    "part cut in its first block": ("features.part", lambda data: data[:200], 0),
    "part cut in its second block": ("features.part", lambda data: data[:-50], 1),
    "part cut to its header": ("features.part", lambda data: data[:128], 0),
    "part empty": ("features.part", lambda data: b"", 0),
    "part longer": ("features.part", lambda data: data + b"x" * 1000, 2),
    "part with a flipped bit": ("features.part", lambda data: data[:330] + b"!" + data[331:], 1),
    "journal with a torn line": ("journal.jsonl", lambda data: data + b'{"images": 8, "ro', 2),
    "journal with a torn last line": ("journal.jsonl", lambda data: data[:-1], 1),
    "journal with nonsense": ("journal.jsonl", lambda data: data + b"[]\n7\n\n{}\n", 2),
    "journal of zeros": ("journal.jsonl", lambda data: bytes(len(data)), 0),
    "journal empty": ("journal.jsonl", lambda data: b"", 0),
    "journal of other blocks": ("journal.jsonl", lambda data: data.replace(b"8", b"9", 1), 0),
}


@pytest.mark.parametrize("harm", HARMS)
def test_damaged_parts_are_used_as_far_as_they_are_sound(images, tmp_path, harm):
    name, damage, blocks = HARMS[harm]
    extract(images, Fake(), tmp_path / "whole")
    place = interrupted(images, tmp_path / "cache", 4)
    (place / name).write_bytes(damage((place / name).read_bytes()))
    fake = Fake()
    extract(images, fake, tmp_path / "cache")
    assert len(fake.shapes) == 7 - 2 * blocks
    assert files(tmp_path / "cache") == files(tmp_path / "whole")


@pytest.mark.parametrize("moment", ["report", "rename", "unlink"])
def test_stopped_while_finishing(images, tmp_path, monkeypatch, moment):
    extract(images, Fake(), tmp_path / "whole")

    def stop(*arguments, **keywords):
        raise StopError

    with monkeypatch.context() as patch:
        if moment == "report":
            patch.setattr(feature_cache, "write_text", stop)
        elif moment == "rename":
            real = os.replace
            name = "features.npy"
            patch.setattr(os, "replace", lambda a, b: (stop if b.name == name else real)(a, b))
        else:
            patch.setattr(feature_cache, "_sync_folder", stop)
        with pytest.raises(StopError):
            extract(images, Fake(), tmp_path / "cache")
    fake = Fake()
    extract(images, fake, tmp_path / "cache")
    assert not fake.shapes
    assert files(tmp_path / "cache") == files(tmp_path / "whole")


def test_two_at_once_do_the_work_once(images, tmp_path):
    fakes = [Fake(pause=0.01), Fake(pause=0.01)]
    threads = [
        threading.Thread(target=extract, args=(images, fake, tmp_path / "cache")) for fake in fakes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(len(fake.shapes) for fake in fakes) == 7
    extract(images, Fake(), tmp_path / "whole")
    assert files(tmp_path / "cache") == files(tmp_path / "whole")


def test_two_processes_at_once(images, root, tmp_path):
    both = [child(root, tmp_path / "cache") for _ in range(2)]
    assert [process.wait(timeout=20) for process in both] == [0, 0]
    extract(images, Fake(), tmp_path / "whole")
    assert files(tmp_path / "cache") == files(tmp_path / "whole")


# --- Corrupt images


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


# --- Extractors and caches that are wrong


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

"""An extraction that is killed, stopped or damaged goes on to the same file."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("PIL")
from headstart.data import feature_cache
from headstart.data.features import extract

from .fakes import Fake, StopError, files


def slot(cache):
    (found,) = (path for path in cache.iterdir() if path.name != "hashes")
    return found


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from headstart.data import features
from headstart.data.features import extract
from headstart.data.images import load_images
from tests.data.features.fakes import Fake
features.BLOCK = 8
extract(load_images(sys.argv[2]), Fake(pause=0.05), sys.argv[3])
"""


def child(root, cache):
    here = str(Path(__file__).parents[3])
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

"""The log: a torn end is cut off, any other damage is refused."""

import hashlib
import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.deploy import log as logs
from headstart.deploy.ledger import Ledger
from headstart.deploy.verifying import verify
from headstart.errors import HeadstartError

from .ledger_world import (
    ROUND,
    abandon,
    contract_of,
    fill,
    log_files,
    total_of,
    upload_of,
)


def cut(path, size):
    with open(path, "r+b") as file:
        file.truncate(size)


def test_a_sound_record_out_of_turn_is_damage_and_never_a_torn_end(tmp_path):
    """What a second writer would leave: nothing of it is cut off."""
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, contract_of())
    fill(ledger, "ab")
    (file,) = log_files(path)
    place = ledger._log._places[2]
    abandon(ledger)
    whole = file.read_bytes()
    file.write_bytes(whole + whole[place.start :])  # record 2 once more
    for write in (True, False):
        with pytest.raises(HeadstartError, match=f"is damaged at byte {len(whole)}"):
            Ledger.open(path, write=write)
    assert file.stat().st_size == 2 * len(whole) - place.start


def test_a_torn_end_is_cut_off_at_every_byte(tmp_path):
    """Whatever is there of a last, never acknowledged record goes; nothing else does."""
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, contract_of())
    uploads = fill(ledger, "ab")
    (file,) = log_files(path)
    before = file.stat().st_size
    fill(ledger, "c")
    abandon(ledger)
    whole = file.read_bytes()
    expected = total_of(uploads).digest()
    for size in range(before, len(whole)):
        file.write_bytes(whole[:size])
        with Ledger.open(path, write=False) as looked:
            assert looked.torn == size - before
            assert set(looked.members()) == {"a", "b"}
        if size % 40:
            continue
        reopened = Ledger.open(path)
        assert (reopened.torn, file.stat().st_size) == (size - before, before)
        assert reopened.total().digest() == expected
        abandon(reopened)
    file.write_bytes(whole[:-40])
    with Ledger.open(path) as ledger:
        ledger.accept("c", ROUND, "key", upload_of(ord("c")))  # asked again
        assert ledger.accept("c", ROUND, "key", upload_of(ord("c"))).number == 3
    assert verify(path).clients == 3


@given(st.integers(0, 2**31), st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_damage_is_refused_or_it_is_the_end(tmp_path_factory, where, flip):
    """A byte changed anywhere: refused, if the log shows that it was on the disk; never ignored."""
    path = tmp_path_factory.getbasetemp() / "damage" / "ledger"
    if not path.exists():
        ledger = Ledger.create(path, contract_of())
        fill(ledger, "abc")
        abandon(ledger)
    (file,) = log_files(path)
    whole = file.read_bytes()
    with Ledger.open(path, write=False) as sound:
        last = sound._log._places[3].start
    where %= len(whole)
    file.write_bytes(whole[:where] + bytes([whole[where] ^ flip]) + whole[where + 1 :])
    try:
        if where < last:
            with pytest.raises(HeadstartError, match="is damaged at byte"):
                Ledger.open(path, write=False)
        else:
            with Ledger.open(path, write=False) as looked:
                assert looked.torn == len(whole) - last
                assert set(looked.members()) == {"a", "b"}
    finally:
        file.write_bytes(whole)


def test_after_a_clean_end_no_damage_passes_for_a_torn_one(tmp_path):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        fill(ledger, "abc")
        last = ledger._log._places[3]
    (file,) = log_files(path)
    whole = file.read_bytes()
    for where in (last.start, last.at - 1, last.at + last.size - 1):
        file.write_bytes(whole[:where] + bytes([whole[where] ^ 1]) + whole[where + 1 :])
        with pytest.raises(HeadstartError, match=f"is damaged at byte {last.start}"):
            Ledger.open(path)
        assert file.stat().st_size == len(whole)


def test_an_unflushed_batch_may_be_torn_in_its_middle(tmp_path):
    """Disks write pages in any order: a hole before a sound record that was never flushed."""
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, contract_of())
    fill(ledger, "a")
    batch = [
        ({"kind": "upload", "clients": [c], "key": "k", "samples": 1, "sha256": _sha(p)}, p)
        for c, p in (("b", upload_of(2)), ("c", upload_of(3)))
    ]
    second, _ = ledger._log.append(batch)
    abandon(ledger)
    (file,) = log_files(path)
    whole = bytearray(file.read_bytes())
    whole[second.at : second.at + 10] = bytes(10)
    file.write_bytes(whole)
    with Ledger.open(path) as reopened:
        assert set(reopened.members()) == {"a"}
        assert reopened.torn == len(whole) - second.start


def _sha(data):
    return hashlib.sha256(data).hexdigest()


def test_a_payload_cannot_pose_as_a_record(tmp_path):
    """Its checksum needs a key that clients do not have."""
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, contract_of())
    fill(ledger, "ab")
    (file,) = log_files(path)
    records = file.read_bytes()
    with Ledger.create(tmp_path / "other", contract_of()) as other:
        fill(other, "abc")
    foreign = log_files(tmp_path / "other")[0].read_bytes()  # sound, under another key
    abandon(ledger)
    with open(file, "ab") as out:
        out.write(records[:40] + foreign)
    with Ledger.open(path) as reopened:
        assert set(reopened.members()) == {"a", "b"}
        assert reopened.torn == 40 + len(foreign)


def test_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "SEGMENT_BYTES", 1500)
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        uploads = fill(ledger, "abcdefghij")
    assert len(log_files(path)) > 3
    with Ledger.open(path) as ledger:
        assert ledger.total().digest() == total_of(uploads).digest()
        ledger.forget("e")
        del uploads["e"]
        assert ledger.total().digest() == total_of(uploads).digest()
    assert verify(path).clients == 9
    cut(log_files(path)[1], log_files(path)[1].stat().st_size - 1)  # torn, but not the last
    with pytest.raises(HeadstartError, match="is damaged"):
        Ledger.open(path)
    log_files(path)[1].unlink()
    with pytest.raises(HeadstartError, match="is missing"):
        Ledger.open(path)


def test_a_record_that_is_missing_is_noticed(tmp_path):
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, contract_of())
    fill(ledger, "abc")
    second = ledger._log._places[2]
    abandon(ledger)
    (file,) = log_files(path)
    whole = file.read_bytes()
    file.write_bytes(whole[: second.start] + whole[second.at + second.size :])
    with pytest.raises(HeadstartError, match=f"is damaged at byte {second.start}"):
        Ledger.open(path)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float32"])
def test_a_log_that_is_older_than_its_snapshot_is_refused(tmp_path, exact):
    """Cut between two records, or put back from a backup: it looks whole, but is not."""
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of(exact=exact)) as ledger:
        fill(ledger, "abc", exact=exact)
        ledger.total()
        ledger.forget("b")  # who is not missing
        last = ledger._log._places[3]
    for file in log_files(path)[1:]:
        file.unlink()
    cut(log_files(path)[0], last.start)
    with pytest.raises(HeadstartError, match="without the upload of 'c'"):
        Ledger.open(path)


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, contract_of())
    uploads = fill(ledger, "ab")
    write = os.write

    def full(handle, data):
        if handle == ledger._log._file and len(data) > 500:
            write(handle, data[:100])
            raise OSError(28, "No space left on device")
        return write(handle, data)

    monkeypatch.setattr(logs.os, "write", full)
    with pytest.raises(HeadstartError, match="No space left"):
        ledger.accept("c", ROUND, "k", upload_of(3))
    monkeypatch.undo()
    with pytest.raises(HeadstartError, match="open it again"):
        ledger.accept("d", ROUND, "k", upload_of(3))
    ledger.close()
    with Ledger.open(path) as reopened:
        assert reopened.total().digest() == total_of(uploads).digest()
        reopened.accept("c", ROUND, "k", upload_of(3))


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float32"])
@pytest.mark.parametrize("write", [True, False], ids=["write", "look"])
def test_a_log_file_that_is_missing_is_refused(tmp_path, exact, write):
    """Not an empty ledger, nor one that has lost its tombstones; and nothing is changed."""
    whole = tmp_path / "whole"
    with Ledger.create(whole, contract_of(exact=exact)) as ledger:
        fill(ledger, "abc", exact=exact)
        ledger.forget("b")
        fill(ledger, "d", exact=exact)
    first, second = log_files(whole)
    for number, lost in enumerate(((first,), (first, second), None)):
        path = tmp_path / str(number)
        shutil.copytree(whole, path)
        for name in ("total.json", "total.safetensors"):
            (path / name).unlink(missing_ok=True)  # which would tell on its own
        if lost is None:
            shutil.rmtree(path / "log")
        for file in lost or ():
            (path / "log" / file.name).unlink()
        kept = [file.read_bytes() for file in log_files(path)]
        with pytest.raises(HeadstartError, match=r"damaged: .*1\.log is missing.*from a backup"):
            Ledger.open(path, write=write)
        assert [file.read_bytes() for file in log_files(path)] == kept


def test_a_log_that_has_lost_its_tombstone_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, contract_of())
    fill(ledger, "abc")
    monkeypatch.setattr(logs, "SEGMENT_BYTES", 1)  # the tombstone comes into a file of its own
    ledger.forget("b")
    abandon(ledger)
    for file in log_files(path)[1:]:
        file.unlink()
    with pytest.raises(HeadstartError, match=r"damaged: a tombstone is missing.*from a backup"):
        Ledger.open(path)

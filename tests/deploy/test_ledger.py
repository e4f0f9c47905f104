"""The ledger: exactly once, whatever is sent, in any order, by any number of threads; torn ends and
damage; models, exports and the command line.
"""

import hashlib
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import headstart as hs
from headstart.cli.ledger import app, forget_client
from headstart.deploy import ledger as ledgers
from headstart.deploy import ledger_dir
from headstart.deploy import log as logs
from headstart.deploy import refusals as refusal_files
from headstart.deploy.admission import UploadRejected
from headstart.deploy.byte_budget import ByteBudget
from headstart.deploy.ledger import Ledger, Receipt, is_ledger
from headstart.deploy.running_total import RunningTotal, most_samples
from headstart.deploy.snapshot import Snapshot
from headstart.deploy.verifying import verify
from headstart.errors import HeadstartError

from .ledger_world import ROUND, contract_of, total_of, trap, upload_of

MODES = [
    pytest.param(hs.Fed3R(), True, id="moments-exact"),
    pytest.param(hs.Fed3R(), False, id="moments-float32"),
    pytest.param(hs.SharedVariances(), True, id="sums-exact"),
    pytest.param(hs.SharedVariances(), False, id="sums-float32"),
    pytest.param(hs.FedCOF(), True, id="means-exact"),
    pytest.param(hs.FedCOF(), False, id="means-float32"),
]


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path / "ledger", contract_of()) as one:
        yield one


def fill(ledger, names="abcde", head=None, exact=True):
    uploads = {name: upload_of(ord(name), head, exact=exact) for name in names}
    for name, payload in uploads.items():
        ledger.accept(name, ROUND, "key", payload)
    return uploads


def code_of(call, *args):
    with pytest.raises(UploadRejected) as caught:
        call(*args)
    return caught.value.code


# -- exactly once ------------------------------------------------------------------------------


@pytest.mark.parametrize(("head", "exact"), MODES)
def test_the_total_is_the_federations_in_any_order_and_after_a_restart(tmp_path, head, exact):
    contract, names = contract_of(head, exact=exact), list("abcdefg")
    expected = None
    for turn, order in enumerate((names, names[::-1], names[3:] + names[:3])):
        path = tmp_path / str(turn)
        with Ledger.create(path, contract) as ledger:
            uploads = {}
            for name in order:
                uploads |= fill(ledger, name, head, exact)
                assert ledger.so_far().samples == total_of(uploads, head).samples
            expected = expected or total_of(uploads, head).digest()
            assert ledger.total().digest() == expected
        for _ in range(2):
            with Ledger.open(path) as ledger:
                assert ledger.total().digest() == expected
                assert ledger.contract == contract


def test_the_same_key_and_bytes_give_the_same_receipt(tmp_path, ledger):
    payload = upload_of(1)
    first = ledger.accept("a", ROUND, "k", payload)
    assert first == Receipt("a", ROUND, hashlib.sha256(payload).hexdigest(), 1)
    assert not first.repeated
    again = ledger.accept("a", ROUND, "k", payload)
    assert again == first
    assert again.repeated
    ledger.close()
    with Ledger.open(tmp_path / "ledger") as reopened:
        assert reopened.accept("a", ROUND, "k", payload) == first
        assert reopened.total().digest() == total_of({"a": payload}).digest()
    assert Receipt.from_plain(again.to_plain()) == first
    group = Receipt(("a", "b"), ROUND, "d", 3)
    plain = {**group.to_plain(), "client": ["a", "b"]}  # as JSON brings it back
    assert Receipt.from_plain(plain) == group


def test_what_is_not_the_same_upload_again_is_refused(ledger):
    ledger.accept("a", ROUND, "k", upload_of(1))
    assert code_of(ledger.accept, "a", ROUND, "k", upload_of(2)) == "key"
    assert code_of(ledger.accept, "a", ROUND, "other", upload_of(1)) == "member"
    assert code_of(ledger.accept, "a", "winter", "k", upload_of(1)) == "round"
    assert code_of(ledger.accept, "b", ROUND, "", upload_of(1)) == "key"
    ledger.accept("b", ROUND, "k", upload_of(1))  # keys are a client's own, and so are bytes
    assert list(ledger.members()) == ["a", "b"]


def admit_together(ledger):
    """Two uploads pass the checks before either of them is written."""
    meet = threading.Barrier(2, timeout=60)
    check = ledger.validator.check

    def together(*args):
        upload = check(*args)
        meet.wait()
        return upload

    ledger.validator.check = together


def test_a_name_that_reads_like_a_members_is_refused(ledger):
    first = ledger.accept("cafe\u0301", ROUND, "k", upload_of(1))
    assert ledger.accept("caf\u00e9", ROUND, "k", upload_of(1)) == first  # one name, two spellings
    for alike in ("Caf\u00e9", "\u0441af\u00e9"):
        assert code_of(ledger.accept, alike, ROUND, "k", upload_of(2)) == "client"
        assert code_of(ledger.accept, (alike, "b"), ROUND, "k", upload_of(2)) == "client"
    assert ledger.missing(["cafe\u0301", "b"]) == ("b",)
    ledger.forget("cafe\u0301")
    for alike in ("caf\u00e9", "Caf\u00e9", "\u0441af\u00e9"):
        assert code_of(ledger.accept, alike, ROUND, "k", upload_of(2)) == "forgotten"


def test_of_two_names_that_read_alike_in_one_batch_one_is_refused(ledger):
    admit_together(ledger)

    def send(name):
        try:
            return ledger.accept(name, ROUND, "k", upload_of(len(name)))
        except UploadRejected as refused:
            return refused.code

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(send, ("site", "SITE")))
    assert "client" in found
    assert len(ledger.members()) == 1


def test_members_and_missing(ledger):
    uploads = fill(ledger, "ca")
    marks = {name: hashlib.sha256(uploads[name]).hexdigest() for name in "ac"}
    assert ledger.members() == marks
    assert list(ledger.members()) == ["a", "c"]
    assert ledger.missing(["d", "a", "b"]) == ("d", "b")
    ledger.forget("c")
    assert ledger.missing("cba") == ("b",)


def test_groups_that_overlap_are_refused(ledger):
    """The difference of two sums with clients in common would show the others."""
    group = ("a", "b", "c")
    first = ledger.accept(group, ROUND, "k", upload_of(1))
    assert ledger.accept(group, ROUND, "k", upload_of(1)) == first
    assert set(ledger.members()) == set(group)
    assert code_of(ledger.accept, ("a", "d"), ROUND, "k", upload_of(2)) == "overlap"
    assert code_of(ledger.accept, "a", ROUND, "k", upload_of(2)) == "overlap"
    ledger.accept("d", ROUND, "k", upload_of(2))
    assert code_of(ledger.accept, ("d", "e"), ROUND, "k", upload_of(3)) == "overlap"
    left = ledger.forget("b")  # nobody knows b's part: the whole sum goes, and nobody comes back
    assert left.members == 1
    assert code_of(ledger.accept, ("a", "c"), ROUND, "k2", upload_of(3)) == "overlap"
    assert code_of(ledger.accept, "a", ROUND, "k2", upload_of(3)) == "overlap"
    assert code_of(ledger.accept, "b", ROUND, "k2", upload_of(3)) == "forgotten"


def test_nothing_that_could_break_the_sum_comes_in(tmp_path):
    """Whatever is acknowledged can be added: kinds of labels, classes and samples are bounded."""
    with Ledger.create(tmp_path / "ledger", contract_of(classes=5)) as ledger:
        ledger.accept("a", ROUND, "k", upload_of(1, labels=[0, 1, 2, 2]))
        text = upload_of(2, labels=["0", "1"])
        assert code_of(ledger.accept, "b", ROUND, "k", text) == "labels"
        many = upload_of(3, labels=[0, 3, 4, 5])
        assert code_of(ledger.accept, "c", ROUND, "k", many) == "many"
        ledger.accept("d", ROUND, "k", upload_of(4, labels=[0, 3, 4]))
        ledger.accept("e", ROUND, "k", upload_of(5, labels=[]))
        assert code_of(ledger.accept, "f", ROUND, "k", trap()) == "integral"
        ledger.forget("a")
        ledger.forget("d")
        assert code_of(ledger.accept, "b", ROUND, "k", text) == "labels"  # whoever else is in


def test_an_exact_sum_never_leaves_its_62_bits(tmp_path, monkeypatch):
    contract = contract_of()
    monkeypatch.setattr("headstart.deploy.running_total.MOST_SAMPLES", 30)
    with Ledger.create(tmp_path / "ledger", contract) as ledger:
        ledger.accept("a", ROUND, "k", upload_of(1, n=20))
        assert code_of(ledger.accept, "b", ROUND, "k", upload_of(2, n=11)) == "many"
        ledger.accept("c", ROUND, "k", upload_of(3, n=10))
        ten, one = (hs.Moments.from_bytes(upload_of(4, n=n)) for n in (10, 1))
        ledger.forget("c")
        ledger._running_total.check([ten])
        with pytest.raises(UploadRejected, match="62 bits"):
            ledger._running_total.check([ten, one])  # of one batch
    spherical = contract_of(hs.SharedVariances(kind="spherical"))
    assert most_samples(spherical.empty) * 6 <= most_samples(contract.empty)


def test_many_small_uploads_are_folded_in_memory_that_does_not_grow(monkeypatch):
    monkeypatch.setattr("headstart.deploy.running_total._WAITING", 5)
    running, uploads = RunningTotal(contract_of()), {}
    for seed in range(23):
        uploads[f"{seed:02}"] = upload_of(seed)
        running.add(hs.Moments.from_bytes(uploads[f"{seed:02}"]), 1)
        assert len(running._waiting) < 5
    assert running.value().digest() == total_of(uploads).digest()


# -- threads -----------------------------------------------------------------------------------


def test_threads_with_duplicates_count_everybody_once(tmp_path, ledger):
    uploads = {f"{seed:02}": upload_of(seed) for seed in range(24)}
    work = [(name, payload) for name, payload in uploads.items() for _ in range(4)]

    with ThreadPoolExecutor(12) as pool:
        receipts = list(pool.map(lambda one: ledger.accept(one[0], ROUND, "k", one[1]), work))
    assert {r.client: r.number for r in receipts} == {r.client: r.number for r in receipts[::-1]}
    assert len({(r.client, r.number) for r in receipts}) == 24
    assert sum(not r.repeated for r in receipts) == 24
    assert ledger.total().digest() == total_of(uploads).digest()
    ledger.close()
    assert verify(tmp_path / "ledger").clients == 24


def test_of_two_threads_with_one_key_and_other_bytes_one_is_refused(ledger):
    """Both are admitted at the same time; the log has room for one."""
    admit_together(ledger)

    def send(seed):
        try:
            return ledger.accept("a", ROUND, "k", upload_of(seed))
        except UploadRejected as refused:
            return refused.code

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(send, (1, 2)))
    assert "key" in found
    assert sum(isinstance(one, Receipt) for one in found) == 1
    assert len(ledger.members()) == 1


def test_concurrent_uploads_share_a_flush(ledger, monkeypatch):
    """While one upload is flushed, those that arrive wait together for the next flush."""
    flush, flushes = os.fdatasync, []
    begun, go_on = threading.Event(), threading.Event()

    def counted(handle):
        flushes.append(handle)
        begun.set()
        assert go_on.wait(60)
        flush(handle)

    monkeypatch.setattr(logs.os, "fdatasync", counted)
    with ThreadPoolExecutor(ledgers.AT_ONCE) as pool:
        futures = [pool.submit(ledger.accept, "0", ROUND, "k", upload_of(0))]
        assert begun.wait(60)
        others = range(1, ledgers.AT_ONCE)
        futures += [pool.submit(ledger.accept, f"{s}", ROUND, "k", upload_of(s)) for s in others]
        for _ in range(60_000):
            if len(ledger._queue) == len(others):
                break
            time.sleep(0.001)
        go_on.set()
        numbers = sorted(future.result().number for future in futures)
    assert numbers == list(range(1, ledgers.AT_ONCE + 1))
    assert len(flushes) == 2


def test_only_so_many_are_decoded_at_once(ledger):
    """What the checks need in memory is bounded, however many come."""
    inside, lock, full, go_on = [0], threading.Lock(), threading.Event(), threading.Event()
    check = ledger.validator.check

    def watched(*args):
        with lock:
            inside[0] += 1
            if inside[0] >= ledgers.AT_ONCE:
                full.set()
        assert go_on.wait(60)
        return check(*args)

    ledger.validator.check = watched
    with ThreadPoolExecutor(32) as pool:
        send = partial(pool.submit, ledger.accept)
        futures = [send(f"{s}", ROUND, "k", upload_of(s)) for s in range(32)]
        assert full.wait(60)
        time.sleep(0.3)  # the others would be inside by now, if they could
        let_in = inside[0]
        go_on.set()
        assert len({future.result().number for future in futures}) == 32
    assert let_in == ledgers.AT_ONCE


def test_room_for_messages_is_bounded_and_never_stuck():
    room, most, now, lock = ByteBudget(100), [0], [0], threading.Lock()

    def one(size):
        with room.of(size):
            with lock:
                now[0] += size
                most[0] = max(most[0], now[0] if now[0] > size else 0)
            with lock:
                now[0] -= size

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, [30, 60, 250, 10] * 50))  # the one larger than the room comes alone
    assert most[0] <= 100
    assert room._used == 0


def test_a_transport_that_knows_the_size_is_told_before_it_reads(ledger):
    with pytest.raises(UploadRejected) as caught, ledger.admit("a", ROUND, 2**50):
        pytest.fail("it was let in")
    assert caught.value.code == "size"
    payload = upload_of(1)
    with ledger.admit("a", ROUND, len(payload)):
        ledger.accept("a", ROUND, "k", payload)
    assert [refusal.code for refusal in ledger.refusals()] == ["size"]


def test_a_client_that_tries_too_often_waits(tmp_path):
    with Ledger.create(tmp_path / "ledger", contract_of(attempts=2)) as ledger:
        ledger.accept("a", ROUND, "k", upload_of(1))
        ledger.accept("a", ROUND, "k", upload_of(1))
        assert code_of(ledger.accept, "a", ROUND, "k", upload_of(1)) == "rate"
        ledger.accept("b", ROUND, "k", upload_of(2))


# -- refusals ----------------------------------------------------------------------------------


def test_refusals_are_listed_with_their_reasons(tmp_path, ledger, monkeypatch):
    code_of(ledger.accept, "a", "winter", "k", upload_of(1))
    code_of(ledger.accept, ("b", "c"), ROUND, "k", b"nonsense")
    first, second = ledger.refusals()
    assert (first.client, first.code) == ("a", "round")
    assert "spring" in first.text
    assert (second.client, second.code) == ("b, c", "malformed")
    assert first.time <= second.time
    monkeypatch.setattr(refusal_files, "_FILE_BYTES", 500)
    for _ in range(100):
        code_of(ledger.accept, "a", "winter", "k", upload_of(1))
    kept = sum(path.stat().st_size for path in (tmp_path / "ledger").glob("refusals*"))
    assert kept < 2000
    with open(tmp_path / "ledger" / "refusals.jsonl", "a") as file:
        file.write('{"time": "cut short')
    assert ledger.refusals()[-1].code == "round"


@pytest.mark.parametrize(
    "line", ['{"clients": [1], %s}', '{"clients": "a", %s}', '{"clients": null, %s}', "7", "[]"]
)
def test_a_line_of_refusals_that_makes_no_sense_is_said_and_in_nobodys_way(tmp_path, line):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        fill(ledger, "ab")
        code_of(ledger.accept, "c", "winter", "k", upload_of(1))
    with open(path / "refusals.jsonl", "a") as file:
        file.write(line.replace("%s", '"code": "round", "text": "t", "time": "now"') + "\n")
    shown = CliRunner().invoke(app, ["list", str(path)])
    assert shown.exit_code == 0
    assert "refused: round 1\n" in shown.output
    assert "refusals: 1 line cannot be read" in shown.output
    forget_client(path, "a")
    assert [refusal.client for refusal in ledger.refusals()] == ["c"]


# -- files -------------------------------------------------------------------------------------


def log_files(path):
    return sorted((Path(path) / "log").glob("*.log"))


def cut(path, size):
    with open(path, "r+b") as file:
        file.truncate(size)


def test_one_process_writes_and_anybody_looks(tmp_path, ledger):
    uploads = fill(ledger)
    path = tmp_path / "ledger"
    with pytest.raises(HeadstartError, match=f"in use by process {os.getpid()}"):
        Ledger.open(path)
    with Ledger.open(path, write=False) as other:
        assert other.total().digest() == total_of(uploads).digest()
        with pytest.raises(HeadstartError, match="open for writing"):
            other.accept("z", ROUND, "k", upload_of(1))
        with pytest.raises(HeadstartError, match="open for writing"):
            other.forget("a")
    ledger.accept("z", ROUND, "k", upload_of(1))
    ledger.close()
    ledger.close()
    with pytest.raises(HeadstartError, match="open for writing"):
        ledger.accept("y", ROUND, "k", upload_of(1))
    assert oct(path.stat().st_mode & 0o777) == "0o700"


def test_a_writer_whose_lock_was_deleted_writes_nothing_more(tmp_path, ledger):
    """Two writers would number their records alike, and cut each other's off as torn."""
    uploads, path = fill(ledger, "ab"), tmp_path / "ledger"
    (path / "lock").unlink()
    with Ledger.open(path) as second:
        with pytest.raises(HeadstartError, match=r"lock.* is not the file that this process holds"):
            ledger.accept("c", ROUND, "k", upload_of(3))
        with pytest.raises(HeadstartError):
            ledger.forget("a")
        second.accept("d", ROUND, "k", upload_of(4))
        uploads["d"] = upload_of(4)
        ledger.close()  # which would write that all is well
        second.accept("e", ROUND, "k", upload_of(5))
        uploads["e"] = upload_of(5)
    assert verify(path).total == total_of(uploads).digest()


def test_an_upload_during_which_the_lock_was_deleted_is_not_acknowledged(ledger, monkeypatch):
    flush = os.fdatasync

    def stolen(handle):
        flush(handle)
        (ledger.path / "lock").unlink()

    monkeypatch.setattr(logs.os, "fdatasync", stolen)
    with pytest.raises(HeadstartError, match="is not the file"):
        ledger.accept("a", ROUND, "k", upload_of(1))
    monkeypatch.undo()
    assert ledger.members() == {}
    assert is_ledger(ledger.path)


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


def test_verify_finds_a_model_that_somebody_changed(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        fill(ledger, "abc")
        file = ledger.save_model()
        assert verify(path).models == 1
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(HeadstartError, match=r"model\.safetensors is not a head"):
            verify(path)
        hs.Fed3R(ridge=7.0).solve(total_of({"a": upload_of(9)})).save(file)
        with pytest.raises(HeadstartError, match=r"model\.safetensors is not a head"):
            verify(path)
        file.write_bytes(whole)
        fill(ledger, "d")
        monkeypatch.setattr(ledger, "_record", lambda *_, **__: None)  # a crash before the record
        ledger.save_model()
        assert verify(path).models == 1
        file.unlink()
        assert verify(path).models == 0


def test_where_a_ledger_can_be(tmp_path):
    assert not is_ledger(tmp_path)
    with pytest.raises(HeadstartError, match="is none"):
        Ledger.open(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(HeadstartError, match="expected a folder"):
        Ledger.create(tmp_path / "file", contract_of())
    with pytest.raises(HeadstartError, match="not empty"):
        Ledger.create(tmp_path, contract_of())
    path = tmp_path / "ledger"
    (path / "log").mkdir(parents=True)  # what a `create` cut short leaves
    Ledger.create(path, contract_of()).close()
    assert is_ledger(path)
    with pytest.raises(HeadstartError, match="not empty"):
        Ledger.create(path, contract_of())
    text = (path / "contract.json").read_text()
    (path / "contract.json").write_text(text.replace('"dimension": 6', '"dimension": 7'))
    with pytest.raises(HeadstartError, match=r"contract\.json"):
        Ledger.open(path)
    (path / "contract.json").write_text("[]")
    with pytest.raises(HeadstartError, match=r"contract\.json"):
        Ledger.open(path)


def abandon(ledger):
    """What a kill leaves: nothing is written any more, and the lock is free."""
    ledger._log.close()
    ledger._unlock()


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


def test_a_new_ledger_has_its_log_before_it_is_one(tmp_path, monkeypatch):
    """A `create` that is cut short leaves no ledger, or one that can be opened."""
    made = []
    write = ledger_dir.write_text

    def cut_short(path, text, mode):
        made.append(log_files(tmp_path / "ledger"))
        write(path, text)
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger_dir, "write_text", cut_short)
    with pytest.raises(KeyboardInterrupt):
        Ledger.create(tmp_path / "ledger", contract_of())
    assert [file.name for file in made[0]] == ["00000001.log"]
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert ledger.members() == {}


def test_a_log_without_its_contract_is_not_written_over(tmp_path):
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, contract_of())
    fill(ledger, "a")
    abandon(ledger)
    (path / "contract.json").unlink()
    kept = log_files(path)[0].read_bytes()
    with pytest.raises(HeadstartError, match="not empty"):
        Ledger.create(path, contract_of())
    assert log_files(path)[0].read_bytes() == kept


def test_nobody_else_can_read_a_ledger_in_a_folder_that_was_there(tmp_path):
    path = tmp_path / "ledger"
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    Ledger.create(path, contract_of()).close()
    assert oct(path.stat().st_mode & 0o777) == "0o700"
    path.chmod(0o755)
    Ledger.open(path, write=False).close()
    assert oct(path.stat().st_mode & 0o777) == "0o755"  # only looked at
    Ledger.open(path).close()
    assert oct(path.stat().st_mode & 0o777) == "0o700"


# -- looking while a server forgets ------------------------------------------------------------


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float32"])
def test_a_reader_finds_uploads_where_they_are_now(tmp_path, exact):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of(exact=exact)) as ledger:
        uploads = fill(ledger, "abcd", exact=exact)
        with Ledger.open(path, write=False) as reader:
            entries = {entry.who: entry for entry in reader.entries()}
            ledger.forget("b")
            for name in "acd":
                assert reader.payload(entries[name]) == uploads[name]
            with pytest.raises(HeadstartError, match="changed while it was read") as caught:
                reader.payload(entries["b"])
            assert "backup" not in str(caught.value)


def test_a_reader_still_says_what_is_damaged(tmp_path):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        fill(ledger, "ab")
    with Ledger.open(path, write=False) as reader:
        (file,), place = log_files(path), reader._log._places[1]
        whole = file.read_bytes()
        file.write_bytes(whole[: place.at] + b"x" + whole[place.at + 1 :])
        with pytest.raises(HeadstartError, match="is damaged at byte 0"):
            reader.payload(reader.entries()[0])


def members_and_total(path):
    with Ledger.open(path, write=False) as reader:
        return len(reader.members()), reader.total().digest()


def verified(path):
    found = verify(path)
    return found.clients, found.total


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float32"])
@pytest.mark.parametrize(
    ("look", "step"),
    [(members_and_total, "_refold"), (verified, "_refold"), (verified, "payload")],
)
def test_a_forgetting_in_the_middle_of_a_look_is_no_damage(
    tmp_path, monkeypatch, exact, look, step
):
    """While a reader opens the ledger, and while it reads the uploads again."""
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of(exact=exact)) as ledger:
        uploads = fill(ledger, "abcd", exact=exact)
        real, begun = getattr(Ledger, step), []

        def forget_first(one, *args):
            if one is not ledger and not begun:
                begun.append(step)
                ledger.forget("a")
            return real(one, *args)

        monkeypatch.setattr(Ledger, step, forget_first)
        found = look(path)
    assert begun == [step]
    assert found == (3, total_of({c: uploads[c] for c in "bcd"}).digest())


# -- the snapshot is only a shortcut -----------------------------------------------------------


@pytest.mark.parametrize(("head", "exact"), MODES)
@pytest.mark.parametrize("harm", ["none", "gone", "damaged", "older", "of others"])
def test_a_snapshot_never_changes_the_total(tmp_path, head, exact, harm):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of(head, exact=exact)) as ledger:
        uploads = fill(ledger, "abc", head, exact)
        ledger.total()
    total, about = path / "total.safetensors", path / "total.json"
    assert total.exists()
    old = total.read_bytes(), about.read_bytes()
    if harm == "gone":
        total.unlink()
    elif harm == "damaged":
        total.write_bytes(old[0][:-1] + bytes([old[0][-1] ^ 1]))
    elif harm == "older":
        with Ledger.open(path) as ledger:
            uploads |= fill(ledger, "de", head, exact)
        total.write_bytes(old[0])
        about.write_bytes(old[1])
    elif harm == "of others":
        about.write_text(about.read_text().replace('"a"', '"z"'))
    with Ledger.open(path) as ledger:
        assert ledger.total().digest() == total_of(uploads, head).digest()


def test_a_snapshot_is_used_and_made_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(ledgers, "SNAPSHOT_EVERY", 4)
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, contract_of())
    uploads = fill(ledger, "abcdef")
    abandon(ledger)
    assert (path / "total.json").exists()
    read = []
    payload = logs.Log.payload
    monkeypatch.setattr(logs.Log, "payload", lambda log, n: (read.append(n), payload(log, n))[1])
    with Ledger.open(path) as reopened:
        assert read == [5, 6]
        assert reopened.total().digest() == total_of(uploads).digest()


# -- models, exports, the command line ---------------------------------------------------------


def test_models_are_current_older_or_superseded(tmp_path, ledger):
    fill(ledger, "ab")
    first = ledger.save_model()
    assert hs.LinearHead.load(first).provenance["total"] == ledger.total().digest()
    assert [m.state for m in ledger.models()] == ["current"]
    fill(ledger, "c")
    second = ledger.save_model(path=tmp_path / "second.safetensors")
    assert [m.state for m in ledger.models()] == ["older", "current"]
    assert ledger.models()[1].path == str(second)
    ledger.forget("c")  # the first was made without it, and is the total's again
    states = ["current", "superseded", "current"]  # the second was solved again where it was
    assert [m.state for m in ledger.models()] == states
    ledger.record_model("elsewhere", "0" * 64, "a total of who knows when")
    states.append("superseded")  # it may hold what was forgotten
    ledger.close()
    with Ledger.open(tmp_path / "ledger") as again:
        assert [m.state for m in again.models()] == states


def test_an_export_is_plain_files(tmp_path, ledger):
    uploads = fill(ledger, "abc")
    folder = ledger.export(tmp_path / "out")
    files = sorted((folder / "uploads").iterdir())
    assert {file.read_bytes() for file in files} == set(uploads.values())
    total = hs.Moments.from_bytes((folder / "total.safetensors").read_bytes())
    assert total.digest() == ledger.total().digest()
    assert ledger.id in (folder / "ledger.json").read_text()
    with pytest.raises(HeadstartError, match="there already"):
        ledger.export(folder)


def test_verify_finds_a_snapshot_that_is_not_the_sum(tmp_path):
    """Sound files, the right members, and another total: only folding again can tell."""
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        uploads = fill(ledger, "abc")
    assert verify(path).total == total_of(uploads).digest()
    wrong = total_of(uploads | {"c": upload_of(7)})
    Snapshot(path, ledger.contract).save(ledger.members(), wrong)
    with pytest.raises(HeadstartError, match="not the sum"):
        verify(path)


def test_forgetting_says_what_it_changed(tmp_path, capsys):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        fill(ledger, "abc")
        old = hashlib.sha256(ledger.save_model().read_bytes()).hexdigest()
        ledger.export(tmp_path / "here")
        ledger.export(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    forget_client(path, "b")
    said = capsys.readouterr().out
    with Ledger.open(path) as ledger:
        total = ledger.total().digest()
    for line in (
        f"b is out: 2 clients, total {total[:16]}…",
        "solved again: model.safetensors",
        f"superseded: model.safetensors, sha256 {old}",
        f"purged: {tmp_path / 'here'}",
        f"not reached, look yourself: {tmp_path / 'gone'}",
    ):
        assert line in said


def test_the_command_line(tmp_path):
    run, path = CliRunner(), str(tmp_path / "ledger")
    with Ledger.create(path, contract_of()) as ledger:
        assert run.invoke(app, ["list", path]).exit_code == 0  # empty, and in use
        fill(ledger, "abc")
        ledger.save_model()
        code_of(ledger.accept, "a", "winter", "k", b"")
        ledger.forget("b")
        total = ledger.total().digest()
    shown = run.invoke(app, ["list", path]).output
    for text in ("round spring", "forgotten: 1", "superseded", "refused: round 1", total):
        assert text in shown
    assert "sound: 2 clients, 2 uploads" in run.invoke(app, ["verify", path]).output
    out = str(tmp_path / "out")
    assert "2 uploads" in run.invoke(app, ["export", path, out]).output
    abandon(Ledger.open(path))
    (file, *_) = log_files(path)
    with open(log_files(path)[-1], "ab") as tail:
        tail.write(b"half a rec")
    assert "10 bytes at the end" in run.invoke(app, ["verify", path]).output
    whole = file.read_bytes()
    file.write_bytes(whole[:60] + b"x" + whole[61:])
    failed = run.invoke(app, ["verify", path])
    assert isinstance(failed.exception, HeadstartError)

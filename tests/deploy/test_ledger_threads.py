"""The ledger with many clients at once: threads, batches, and room for messages."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from headstart.deploy import ledger as ledgers
from headstart.deploy import log as logs
from headstart.deploy.admission import UploadRejected
from headstart.deploy.byte_budget import ByteBudget
from headstart.deploy.ledger import Ledger, Receipt
from headstart.deploy.verifying import verify

from .ledger_world import ROUND, admit_together, code_of, contract_of, total_of, upload_of


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

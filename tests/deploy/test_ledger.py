"""The ledger: everybody once, whatever the order, the restarts and the repetitions."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

import headstart as hs
from headstart.deploy.admission import UploadRejected
from headstart.deploy.ledger import Ledger, Receipt
from headstart.deploy.running_total import RunningTotal, most_samples

from .ledger_world import (
    MODES,
    ROUND,
    admit_together,
    code_of,
    contract_of,
    fill,
    total_of,
    trap,
    upload_of,
)


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

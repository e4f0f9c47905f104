"""What was forgotten does not come back: under its name, another name, or in other bytes."""

import numpy as np
import pytest

import headstart as hs
from headstart.deploy.admission import UploadRejected
from headstart.deploy.ledger import Ledger

from .ledger_world import (
    ANT,
    BEE,
    CAT,
    DOG,
    NAMES,
    ROUND,
    code_of,
    contract_of,
    filled,
    traces,
    upload_of,
)


def test_a_tombstone_blocks_every_replay(tmp_path):
    path = tmp_path / "ledger"
    ledger, uploads = filled(path, NAMES)
    total = ledger.forget(CAT).total
    for _ in range(2):
        with ledger:
            for key in (f"key of {CAT}", "another"):
                for payload in (uploads[CAT], upload_of(9)):
                    with pytest.raises(UploadRejected) as caught:
                        ledger.accept(CAT, ROUND, key, payload)
                    assert caught.value.code == "forgotten"
            assert ledger.forgotten(CAT)
            assert not ledger.forgotten(DOG)
            assert ledger.missing(NAMES) == ()
            assert ledger.total().digest() == total
        ledger = Ledger.open(path)
    ledger.close()


def test_forgotten_bytes_do_not_come_back_under_another_name(tmp_path):
    path = tmp_path / "ledger"
    ledger, uploads = filled(path, NAMES)
    ledger.accept("twin", ROUND, "k", uploads[CAT])  # had the same bytes before, and keeps them
    group = ("one", "two")
    ledger.accept(group, ROUND, "k", upload_of(8))
    ledger.forget(CAT)
    total = ledger.forget("one").total
    for _ in range(2):
        with ledger:
            for name in ("fox 6", ("fox 6", "gnu 7")):
                assert code_of(ledger.accept, name, ROUND, "k", uploads[CAT]) == "forgotten"
                assert code_of(ledger.accept, name, ROUND, "k", upload_of(8)) == "forgotten"
            assert ledger.accept("twin", ROUND, "k", uploads[CAT]).repeated
            assert ledger.total().digest() == total
        ledger = Ledger.open(path)
    with ledger:
        ledger.accept("fox 6", ROUND, "k", upload_of(9))  # other bytes: a new client


def measured(head, seed, *, exact, secret, precision=None):
    rng = np.random.default_rng(seed)
    z, y = np.clip(rng.normal(size=(5, 6)), -7, 7), np.array([0, 0, 1, 1, 1])
    return head.measure(z, y, exact=exact, bound=8.0, secret=secret).to_bytes(precision)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float"])
@pytest.mark.parametrize("head", [hs.Fed3R(), hs.SharedVariances(), hs.FedCOF()], ids=str)
def test_what_was_forgotten_is_known_in_other_bytes(tmp_path, head, exact):
    """Another rotation, another encoding: the same statistic. Other samples are another one."""
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of(head, exact=exact)) as ledger:
        ledger.accept(ANT, ROUND, "k", measured(head, 1, exact=exact, secret=b"one"))
        ledger.accept(BEE, ROUND, "k", measured(head, 2, exact=exact, secret=b"one"))
        ledger.forget(ANT)
    again = {measured(head, 1, exact=exact, secret=bytes([k])) for k in range(10)}
    if not exact:
        again |= {measured(head, 1, exact=False, secret=b"x", precision="float64")}
    with Ledger.open(path) as ledger:
        for payload in again:
            assert code_of(ledger.accept, CAT, ROUND, "k", payload) == "forgotten"
        for seed in range(3, 20):
            ledger.accept(f"{seed}", ROUND, "k", measured(head, seed, exact=exact, secret=b"two"))
        assert len(ledger.members()) == 18


def test_a_packed_encoding_of_a_forgotten_factor_is_known(tmp_path):
    small = hs.Moments.from_bytes(measured(hs.Fed3R(), 1, exact=True, secret=b"one"))
    packed = hs.total([small]).to_bytes()
    with Ledger.create(tmp_path / "ledger", contract_of()) as ledger:
        ledger.accept(ANT, ROUND, "k", small.to_bytes())
        ledger.forget(ANT)
        assert packed != small.to_bytes()
        assert code_of(ledger.accept, BEE, ROUND, "k", packed) == "forgotten"


@pytest.mark.parametrize("head", [hs.ETF(), hs.Fed3R()], ids=lambda head: head.name)
def test_bytes_that_others_honestly_have_are_not_kept_out(tmp_path, head):
    """No samples, or class counts alone: the same from many clients, and easily guessed."""
    labels = [0, 0, 1] if head.name == "etf" else []
    upload = upload_of(1, head, labels=labels)
    with Ledger.create(tmp_path / "ledger", contract_of(head)) as ledger:
        ledger.accept(ANT, ROUND, "k", upload)
        ledger.forget(ANT)
        ledger.accept(BEE, ROUND, "k", upload)
        assert code_of(ledger.accept, ANT, ROUND, "k", upload) == "forgotten"


def test_a_replay_does_not_write_the_name_down_again(tmp_path):
    """Whatever it is refused for, with whomever it comes, by whichever way."""
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of(attempts=2)) as ledger:
        ledger.accept(CAT, ROUND, "k", upload_of(2))
        ledger.forget(CAT)
        codes = [code_of(ledger.accept, CAT, ROUND, "k", upload_of(2)) for _ in range(2)]
        codes.append(code_of(ledger.accept, CAT, CAT, "k", upload_of(2)))
        codes.append(code_of(ledger.accept, (DOG, CAT), ROUND, "k", upload_of(2)))
        with pytest.raises(UploadRejected) as caught, ledger.admit(CAT, ROUND, 2**50):
            pytest.fail("it was let in")
        codes.append(caught.value.code)
        assert codes == ["forgotten", "rate", "round", "forgotten", "size"]
        assert [refusal.code for refusal in ledger.refusals()] == codes
        assert DOG in ledger.refusals()[3].client
    assert traces(path, CAT, upload_of(2)) == []

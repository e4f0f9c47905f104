"""Admission: the contract, what an upload is refused for, and how often one may try."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.deploy.admission import (
    CODES,
    Contract,
    Rate,
    UploadValidator,
)
from headstart.errors import HeadstartError
from headstart.statistics import wire

from .ledger_world import DIMENSION, HEADS, ROUND, code_of, contract_of, signed, upload_of

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"


# -- the contract ----------------------------------------------------------------------------------


def test_a_contract_is_plain_values_and_back():
    contract = contract_of(
        hs.Fed3RRandomFeatures(dimension=9), caps={"a": 5}, clients=("a",), largest=3.0
    )
    assert Contract.from_plain(json.loads(json.dumps(contract.to_plain()))) == contract
    assert Contract.from_plain(contract.to_plain()) == contract
    assert contract.empty.dimension == 9  # of what travels, not of the features


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ({"round": ""}, "round"),
        ({"round": "two\nlines"}, "round"),
        ({"step": {}}, "step"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 2.0}, "dimension"),
        ({"caps": {"a": -1}}, "caps of a"),
        ({"caps": {"": 1}}, "caps"),
        ({"clients": ["a", "two\nlines"]}, "clients"),
        ({"clients": "ab"}, "clients"),
        ({"samples": True}, "samples"),
        ({"message_bytes": 0}, "message_bytes"),
        ({"attempts": 0}, "attempts"),
        ({"largest": float("nan")}, "largest"),
        ({"norm": -1.0}, "norm"),
        ({"step": {"head": "nope", "settings": {}, "exact": True, "bound": 1.0}}, "head"),
    ],
)
def test_a_contract_says_what_is_wrong_with_it(told, match):
    plain = contract_of().to_plain() | told
    with pytest.raises(HeadstartError, match=match):
        Contract.from_plain(plain)


def test_a_damaged_contract_is_an_error_of_ours():
    with pytest.raises(HeadstartError, match="contract"):
        Contract.from_plain({"round": "r", "nonsense": 1})


def test_the_page_lists_every_code():
    rows = re.findall(r"^\| `(\S+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == CODES


# -- uploads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)
def test_honest_uploads_of_every_head_pass(head, exact):
    validator = UploadValidator(contract_of(head, exact=exact))
    for seed in range(8):
        payload = upload_of(seed, head, exact=exact)
        upload = validator.check("a", ROUND, payload)
        assert upload.digest() == head.statistic.from_bytes(payload).digest()


@pytest.mark.parametrize("precision", ["float64", "float32", "float16", "int8"])
def test_every_precision_passes_the_bound_that_its_samples_keep(precision):
    validator = UploadValidator(contract_of(exact=False, largest=7.0))
    for seed in range(8):
        validator.check("a", ROUND, upload_of(seed, exact=False, precision=precision))


@pytest.mark.parametrize(
    ("client", "code"),
    [
        ("", "client"),
        ("x" * 257, "client"),
        ("a\n", "client"),
        ((), "client"),
        (("a", "a"), "client"),
        ("stranger", "unregistered"),
        (("a", "stranger"), "unregistered"),
    ],
)
def test_who_may_come(client, code):
    validator = UploadValidator(contract_of(clients=("a", "b")))
    assert code_of(validator.check, client, ROUND, upload_of(1)) == code
    validator.check(("a", "b"), ROUND, upload_of(1))


def test_names_have_one_spelling_and_none_reads_like_another():
    composed, apart = "caf\u00e9", "cafe\u0301"
    contract = contract_of(clients=[apart, "site-a"], caps={apart: 50})
    assert contract.clients == (composed, "site-a")
    validator = UploadValidator(contract)
    for spelling in (composed, apart):
        validator.check(spelling, ROUND, upload_of(1))
        assert contract.cap(spelling) == 50
    for alike in ("Site-A", "s\u0456te-a", "\uff53ite-a"):  # capitals, a Cyrillic і, a wide s
        assert code_of(validator.check, ("site-a", alike), ROUND, upload_of(1)) == "client"
        with pytest.raises(HeadstartError, match="read alike"):
            contract_of(clients=["site-a", alike])
    contract_of(clients=["site-1", "site-l", "site-10", "site-lo"])  # digits are meant


def test_caps_register_nobody_and_the_registered_need_none():
    capped = UploadValidator(contract_of(caps={"a": 50}))
    capped.check("stranger", ROUND, upload_of(1))
    validator = UploadValidator(contract_of(clients=("a", "b"), caps={"a": 1}, samples=50))
    validator.check("b", ROUND, upload_of(1))
    assert code_of(validator.check, "a", ROUND, upload_of(1)) == "counts"


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_labels_that_no_file_can_hold(text):
    payload = upload_of(1, labels=[text] * 11)
    validator = UploadValidator(contract_of(labels="text"))
    assert code_of(validator.check, "a", ROUND, payload) == "classes"
    validator.check("a", ROUND, upload_of(1, labels=["ü\U0001f600"] * 11))


def test_a_stale_round():
    assert code_of(UploadValidator(contract_of()).check, "a", "winter", upload_of(1)) == "round"


def test_a_size_is_refused_before_the_message_is_read():
    validator = UploadValidator(contract_of())
    assert code_of(validator.admit, "a", ROUND, 2**60) == "size"
    assert (
        code_of(validator.check, "a", ROUND, b"\xff" * (validator.contract.size_limit + 1))
        == "size"
    )
    assert (
        code_of(UploadValidator(contract_of(message_bytes=100)).check, "a", ROUND, upload_of(1))
        == "size"
    )


@given(st.integers(1, 40), st.integers(1, 30), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_no_honest_message_is_larger_than_the_limit(d, n, seed):
    labels = [f"class number {i}" for i in range(n)]
    for head in (hs.Fed3R(), hs.SharedVariances(), hs.FedCOF()):
        contract = contract_of(head, dimension=d, classes=max(n, 4))
        payload = upload_of(seed, head, labels=labels, d=d)
        assert len(payload) <= contract.size_limit


def test_caps_on_samples():
    """A registered cap, else the default; a group may have what its clients may together."""
    contract = contract_of(caps={"a": 10, "b": 30}, samples=20)
    validator, twenty = UploadValidator(contract), upload_of(2)
    assert code_of(validator.check, "a", ROUND, twenty) == "counts"
    validator.check("b", ROUND, twenty)
    validator.check(("a", "b"), ROUND, twenty)
    assert (
        code_of(UploadValidator(contract_of(samples=19)).check, "anyone", ROUND, twenty) == "counts"
    )


def test_exact_where_it_should_not_be():
    assert (
        code_of(UploadValidator(contract_of()).check, "a", ROUND, upload_of(1, exact=False))
        == "exact"
    )
    assert (
        code_of(UploadValidator(contract_of(exact=False)).check, "a", ROUND, upload_of(1))
        == "exact"
    )


def test_other_statistics_shapes_and_bounds():
    validator = UploadValidator(contract_of())
    assert code_of(validator.check, "a", ROUND, upload_of(1, hs.FedNCM())) == "kind"
    assert code_of(validator.check, "a", ROUND, upload_of(1, d=7)) == "shape"
    assert code_of(validator.check, "a", ROUND, b"") == "malformed"
    loose = UploadValidator(contract_of(exact=False, largest=0.5))
    assert code_of(loose.check, "a", ROUND, upload_of(1, exact=False)) == "bound"
    sums, squares = hs.FedNCM(), hs.SharedVariances()
    assert (
        code_of(UploadValidator(contract_of(sums)).check, "a", ROUND, upload_of(1, squares))
        == "shape"
    )


def test_a_changed_byte_with_a_mended_digest_is_refused_by_the_wire():
    payload = bytearray(upload_of(1))
    payload[-20] ^= 0x40
    code = code_of(UploadValidator(contract_of()).check, "a", ROUND, signed(bytes(payload)))
    assert code in wire.CODES


# -- how often -------------------------------------------------------------------------------------


def test_tries_of_a_client_are_limited_and_forgiven_with_time():
    now = [0.0]
    rate = Rate(3, clock=lambda: now[0])
    for _ in range(3):
        rate.spend("a")
    assert code_of(rate.spend, "a") == "rate"
    rate.spend("b")
    now[0] = 19.0
    assert code_of(rate.spend, "a") == "rate"
    now[0] = 21.0  # a third of a minute forgives one of three
    rate.spend("a")
    assert code_of(rate.spend, "a") == "rate"


def test_the_memory_of_tries_is_bounded():
    now = [0.0]
    rate = Rate(6, clock=lambda: now[0], limit=50)
    for number in range(1000):
        now[0] += 1.0
        rate.spend(f"client {number}")
    assert len(rate._spent) <= 51


# -- what a client will not send -------------------------------------------------------------------


def test_the_limit_of_a_client_is_its_own():
    assert contract_of(caps={"a": 7}, classes=9, norm=3.0).limits("a") == hs.Limits(
        contract_of(classes=9).size_limit, 7, 8.0, DIMENSION, 9, 3.0
    )
    assert contract_of().limits(("a", "b")).total


def test_random_features_have_a_norm_of_their_own():
    head = hs.Fed3RRandomFeatures(dimension=9, bandwidth=1.0)
    assert contract_of(head, exact=False).limits("a").norm == pytest.approx(2**0.5)
    UploadValidator(contract_of(head, exact=False)).check(
        "a", ROUND, upload_of(1, head, exact=False)
    )

"""What makes a client abort, a vector each with its stable code."""

import hashlib

import numpy as np
import pytest

import headstart as hs
from headstart.privacy.client import Client
from headstart.privacy.messages import FROM_CLIENT
from headstart.privacy.refusals import CODES, Abort
from headstart.privacy.terms import Policy
from headstart.statistics import wire

from .parties import LOOSE, Round, identities
from .secure_rounds import LIES, ME, join, lied, planned, reached

TERMS = {
    "a threshold below its own floor": (
        "threshold",
        lambda: join(*planned(threshold=4), policy=Policy()),
    ),
    "a group below its minimum": ("group", lambda: join(*planned(), policy=Policy(group=7))),
    "a group without itself": ("self", lambda: join(*planned(), name="c9")),
    "a round without the signatures it insists on": (
        "signature",
        lambda: join(*planned(), identity=identities([ME])[ME]),
    ),
    "a signed round that it cannot sign": ("signature", lambda: join(*planned(signed=True))),
    "more samples than the cap": ("overflow", lambda: join(*planned(samples=1))),
}


@pytest.mark.parametrize("case", TERMS)
def test_a_client_does_not_join(case):
    code, attempt = TERMS[case]
    with pytest.raises(Abort) as refused:
        attempt()
    assert refused.value.code == code


@pytest.mark.parametrize("case", LIES)
def test_a_client_aborts(case):
    found, honest, message, code = lied(case)
    client = found.clients[ME]
    assert message != honest
    with pytest.raises(Abort) as refused:
        client.answer(message)
    assert refused.value.code == code
    assert client.aborted
    with pytest.raises(Abort) as again:  # for good, whatever comes
        client.answer(honest)
    assert again.value.code == "over"
    kept = client.to_arrays()
    assert not any(kept[name].size for name in ("secrets", "held"))  # and knows nothing any more


@pytest.mark.parametrize("stage", ["share", "mask", "confirm", "unmask"])
def test_the_honest_message_is_answered(stage):
    """The vectors above are refused for their lie alone."""
    found = reached(stage, signed=True)
    assert found.clients[ME].answer(found.asked[ME])
    assert not found.clients[ME].aborted


def test_a_message_of_another_round_is_not_answered():
    found = reached("share")
    other = Round(6, threshold=5).stage()
    with pytest.raises(Abort) as refused:
        found.clients[ME].answer(other.asked[ME])
    assert refused.value.code == "round"


def test_a_party_of_the_first_version_is_refused_at_its_first_message():
    """Its sealed shares had no nonce; the terms' bytes are the same, their digest is not."""
    found = Round(4, threshold=3)
    _, old = wire.decode(found.clients[ME].start(), FROM_CLIENT, hs.Limits())
    first = np.frombuffer(hashlib.sha256(found.terms.to_bytes()).digest(), np.uint8)
    with pytest.raises(Abort) as refused:
        found.server.receive(ME, wire.encode("secure-advertise", {**old, "terms": first}))
    assert refused.value.code == "round"


@pytest.mark.parametrize("message", [b"", b"nonsense", bytes(10**6)])
def test_nonsense_aborts_with_the_codes_of_the_wire(message):
    client = reached("share").clients[ME]
    with pytest.raises(hs.WireError) as refused:
        client.answer(message)
    assert refused.value.code in wire.CODES
    assert client.aborted


def test_every_prefix_and_every_flipped_byte_of_a_message_is_refused():
    found = reached("mask")
    message, kept = found.asked[ME], found.clients[ME].to_arrays()
    how = {"policy": LOOSE, "history": found.clients[ME]._history}
    for spot in range(0, len(message), 7):
        for wrong in (message[:spot], _flip(message, spot)):
            client = Client.from_arrays(kept, ME, found.terms, found.stats[ME], **how)
            with pytest.raises(hs.WireError):
                client.answer(wrong)


def _flip(message, spot):
    wrong = bytearray(message)
    wrong[spot] ^= 0x10
    return bytes(wrong)


def test_a_message_beyond_its_size_is_refused_before_it_is_read():
    found = reached("mask")
    big = found.asked[ME] + bytes(10**5)
    with pytest.raises(hs.WireError) as refused:
        found.clients[ME].answer(big)
    assert refused.value.code == "size"


def test_every_code_of_the_vectors_is_a_known_one():
    used = {case[1] for case in LIES.values()} | {case[0] for case in TERMS.values()}
    assert used <= set(CODES)

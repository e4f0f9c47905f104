"""What a server of secure sums refuses."""

import numpy as np
import pytest

import headstart as hs
from headstart.privacy.messages import FROM_CLIENT
from headstart.privacy.refusals import Abort
from headstart.statistics import wire

from .parties import Round, identities, statistics
from .secure_rounds import ME, first, ids


def answered(stage, signed=False, **how):
    found = Round(4, threshold=3, signed=signed, **how).until(stage)
    question = found.asked[ME]
    client = found.clients[ME]
    return found, client.answer(question) if question else client.start()


SERVER = {
    "a stranger": ("unknown", lambda f, m: f.server.receive("nobody", m)),
    "the same message twice": (
        "replay",
        lambda f, m: [f.server.receive(ME, m) for _ in range(2)],
    ),
}


@pytest.mark.parametrize("case", SERVER)
@pytest.mark.parametrize("stage", ["advertise", "share", "mask", "unmask"])
def test_a_server_refuses_messages(case, stage):
    code, attempt = SERVER[case]
    found, message = answered(stage)
    with pytest.raises(Abort) as refused:
        attempt(found, message)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("stage", "arrays", "code"),
    [
        ("share", {"ids": ids(0, 2), "sealed": first("sealed", 2)}, "cover"),
        ("share", {"ids": ids(0, 2, 2)}, "duplicate"),
        ("share", {"ids": ids(0, 1, 2)}, "unknown"),
        ("mask", {"vector": first("vector", 3)}, "layout"),
        ("unmask", {"survivors": ids(0, 1, 3, 2)}, "cover"),
    ],
)
def test_a_server_refuses_lists_and_vectors_that_do_not_fit(stage, arrays, code):
    found, message = answered(stage)
    _, old = wire.decode(message, FROM_CLIENT, hs.Limits())
    made = {name: new(old) if callable(new) else new for name, new in arrays.items()}
    with pytest.raises(Abort) as refused:
        found.server.receive(ME, found.altered(message, **made))
    assert refused.value.code == code
    found.server.receive(ME, message)  # refusing a message harms nobody


def test_a_server_that_knows_the_keys_refuses_false_signatures_itself():
    names = list(statistics(4))
    known = dict(identities(names)[ME].known)
    found, message = answered("advertise", signed=True, known={**known, ME: known["c0"]})
    with pytest.raises(Abort) as refused:
        found.server.receive(ME, message)
    assert refused.value.code == "signature"
    found, message = answered("advertise", signed=True, known=known)
    found.server.receive(ME, message)
    found, message = answered("confirm", signed=True, known=known)
    found.server.receive(ME, message)
    false = found.altered(message, signature=np.zeros(64, np.uint8))
    with pytest.raises(Abort) as refused:
        found.server.receive("c2", false)
    assert refused.value.code == "signature"


def test_a_message_of_another_stage_is_refused():
    found, message = answered("share")
    with pytest.raises(Abort) as refused:
        found.server.receive(ME, found.said[ME])
    assert refused.value.code == "replay"
    early = Round(4, threshold=3)
    with pytest.raises(Abort) as refused:
        early.server.receive(ME, message)
    assert refused.value.code == "order"

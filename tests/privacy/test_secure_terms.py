"""Terms of a round, and policies of clients: what no round can have."""

import numpy as np
import pytest

import headstart as hs
from headstart.privacy.client import Client
from headstart.privacy.keys import Identity
from headstart.privacy.layout import Layout
from headstart.privacy.refusals import Abort
from headstart.privacy.server import Server
from headstart.privacy.terms import Policy, Terms
from headstart.statistics import wire

from .parties import CLASSES, LOOSE, entropy, identities, statistics
from .secure_rounds import ME, planned


def test_terms_survive_their_bytes():
    terms, _ = planned(threshold=5, samples=77, signed=True)
    again = Terms.from_bytes(terms.to_bytes())
    assert again.digest == terms.digest
    assert (again.members, again.threshold, again.samples) == (terms.members, 5, 77)
    assert again.signed
    assert again.layout.parts == terms.layout.parts


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"threshold": 3}, "terms"),
        ({"threshold": 7}, "terms"),
        ({"samples": 0}, "overflow"),
        ({"samples": 2**32 // 6 + 1}, "overflow"),
        ({"round": bytes(31)}, "terms"),
        ({"members": ("c1", "c0", "c2")}, "terms"),
        ({"members": ("c0", "c0", "c2")}, "duplicate"),
        ({"members": ("c0",), "threshold": 1}, "terms"),
        ({"members": (1, 2)}, "terms"),
    ],
)
def test_terms_that_no_round_can_have(change, code):
    terms, _ = planned()
    whole = {name: getattr(terms, name) for name in Terms.__dataclass_fields__}
    with pytest.raises(Abort) as refused:
        Terms(**{**whole, **change})
    assert refused.value.code == code


def test_a_member_twice_is_refused_from_bytes_too():
    terms, _ = planned()
    arrays = {
        "round": np.zeros(32, np.uint8),
        "members": np.frombuffer(b'["c0", "c1", "c1", "c2"]', np.uint8),
        "threshold": np.array(3),
        "samples": np.array(1),
        "signed": np.array(0),
        **terms.layout.to_arrays(),
    }
    with pytest.raises(Abort) as refused:
        Terms.from_bytes(wire.encode("secure-terms", arrays))
    assert refused.value.code == "duplicate"


@pytest.mark.parametrize("wrong", [{"group": 1}, {"share": 0.4}, {"share": 1.0}, {"share": "all"}])
def test_a_policy_below_sense_is_refused(wrong):
    with pytest.raises(hs.HeadstartError, match=next(iter(wrong))):
        Policy(**wrong)


def test_the_floor_is_above_the_share():
    assert [Policy().floor(n) for n in (3, 4, 5, 6, 9, 30, 256)] == [3, 3, 4, 5, 7, 21, 171]
    assert [Policy(share=0.5).floor(n) for n in (3, 4, 5, 6)] == [2, 3, 3, 4]


def test_a_server_does_not_plan_what_it_must_not_open():
    terms, _ = planned()
    with pytest.raises(Abort) as refused:
        Server(terms, earlier=[terms.members[:5]], least=3)
    assert refused.value.code == "differencing"


def test_an_unknown_signer_is_refused():
    people = identities(["c0", "c1", "c2", "c3"])
    stats = statistics(4)
    layout = Layout.of(stats["c0"], CLASSES)
    terms = Terms.plan(stats, layout, threshold=3, signed=True)
    partial = Identity(people[ME].private, {"c0": people["c0"].known["c0"]})
    clients = {
        name: Client(
            name,
            terms,
            stats[name],
            policy=LOOSE,
            identity=partial if name == ME else people[name],
            entropy=entropy(name),
        )
        for name in stats
    }
    server = Server(terms)
    for name, client in clients.items():
        server.receive(name, client.start())
    with pytest.raises(Abort) as refused:
        clients[ME].answer(server.close()[ME])
    assert refused.value.code == "signature"
    assert "no key is known" in str(refused.value)

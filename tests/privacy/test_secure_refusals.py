"""R4: what makes a client abort, a vector each with its stable code; and what a server refuses."""

import hashlib
import itertools

import numpy as np
import pytest

import headstart as hs
from headstart.privacy.client import Client
from headstart.privacy.groups import RoundHistory
from headstart.privacy.keys import Identity
from headstart.privacy.layout import Layout
from headstart.privacy.messages import FROM_CLIENT, FROM_SERVER, id_array
from headstart.privacy.refusals import CODES, Abort
from headstart.privacy.server import Server
from headstart.privacy.terms import Policy, Terms
from headstart.statistics import wire

from .parties import CLASSES, LOOSE, Round, entropy, identities, statistics

ME = "c1"  # the client that is lied to: member 1 of 0..5
STRICT = Policy(group=4, share=0.5)


def planned(n=6, **how):
    stats = statistics(n)
    layout = Layout.of(stats["c0"], CLASSES)
    return Terms.plan(stats, layout, **how), stats[ME]


# -- terms that a client does not accept -----------------------------------------------------------


def join(terms, statistic, name=ME, **how):
    return Client(name, terms, statistic, **{"policy": LOOSE, **how})


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


def test_a_client_does_not_answer_a_round_id_twice():
    history = RoundHistory()
    terms, statistic = planned()
    join(terms, statistic, history=history).start()
    kept = RoundHistory.from_text(history.to_text())  # and not after a restart
    with pytest.raises(Abort) as refused:
        join(terms, statistic, history=kept).start()
    assert refused.value.code == "replay"


# -- messages of a server that a client does not answer --------------------------------------------


def at(stage, code, signed=False, gone=(), policy=LOOSE, **arrays):
    return stage, code, signed, gone, policy, arrays


def ids(*members):
    return id_array(members)


def drop(name, row):
    """The same table without a row."""
    return lambda old: np.delete(old[name], row, axis=0)


def copied(name, source, target, part=slice(None)):
    """The same table with one row (or a part of it) written over another."""

    def change(old):
        table = old[name].copy()
        table[target, part] = table[source, part]
        return table

    return change


def flipped(name, row):
    def change(old):
        table = old[name].copy()
        table[row, 0] ^= 1
        return table

    return change


def zeroed(name, row, part):
    def change(old):
        table = old[name].copy()
        table[row, part] = 0
        return table

    return change


ALL = ids(0, 1, 2, 3, 4, 5)
OTHERS = ids(0, 2, 3, 4, 5)
SHARES, MASK, CONFIRM, UNMASK = "share", "mask", "confirm", "unmask"


def first(name, count):
    return lambda old: old[name][:count]


LIES = {
    # the roster: everybody's public keys
    "a member twice on the roster": at(SHARES, "duplicate", ids=ids(0, 1, 2, 3, 4, 4)),
    "a stranger on the roster": at(SHARES, "unknown", ids=ids(0, 1, 2, 3, 4, 6)),
    "a negative member on the roster": at(SHARES, "unknown", ids=ids(0, 1, 2, 3, 4, -1)),
    "a roster without itself": at(SHARES, "self", ids=OTHERS, public=drop("public", 1)),
    "its own keys altered": at(SHARES, "keys", public=flipped("public", 1)),
    "one key for two members": at(SHARES, "duplicate", public=copied("public", 2, 3)),
    "one mask key for two": at(SHARES, "duplicate", public=copied("public", 2, 3, slice(32, 64))),
    "a key of which every secret is zero": at(
        SHARES, "keys", public=zeroed("public", 3, slice(0, 32))
    ),
    "a roster below the threshold": at(SHARES, "few", ids=ids(0, 1, 2), public=first("public", 3)),
    "a roster below its minimum": at(
        SHARES, "group", policy=STRICT, ids=ids(0, 1, 2), public=first("public", 3)
    ),
    "a roster without signatures": at(SHARES, "signature", signed=True, signatures=None),
    "a false signature on the roster": at(
        SHARES, "signature", signed=True, signatures=flipped("signatures", 2)
    ),
    "the signature of another": at(
        SHARES, "signature", signed=True, signatures=copied("signatures", 2, 3)
    ),
    "keys that their owner did not sign": at(
        SHARES, "signature", signed=True, public=flipped("public", 2)
    ),
    # the delivery: everybody's sealed shares
    "shares from one member twice": at(MASK, "duplicate", ids=ids(0, 2, 3, 4, 4)),
    "shares from a stranger": at(MASK, "unknown", ids=ids(0, 2, 3, 4, 7)),
    "shares from one who has no keys": at(
        MASK, "unknown", gone=[(SHARES, "c5")], ids=ids(0, 2, 3, 5)
    ),
    "shares from itself": at(MASK, "self", ids=ids(0, 1, 3, 4, 5)),
    "shares that were altered": at(MASK, "sealed", sealed=flipped("sealed", 2)),
    "shares of one under the name of another": at(MASK, "sealed", ids=ids(0, 2, 3, 5, 4)),
    "shares of too few": at(MASK, "few", ids=ids(0, 2), sealed=first("sealed", 2)),
    "shares of fewer than its minimum": at(
        MASK, "group", policy=STRICT, ids=ids(0, 2), sealed=first("sealed", 2)
    ),
    # the survivors, to be confirmed in a signed round
    "itself not among the survivors to confirm": at(CONFIRM, "self", signed=True, ids=OTHERS),
    "a survivor twice": at(CONFIRM, "duplicate", signed=True, ids=ids(0, 1, 2, 2, 3)),
    "a survivor unheard of": at(CONFIRM, "unknown", signed=True, ids=ids(0, 1, 2, 3, 8)),
    "too few survivors to confirm": at(CONFIRM, "few", signed=True, ids=ids(0, 1, 2)),
    # the request for shares
    "both kinds of shares for one peer": at(UNMASK, "overlap", survivors=ALL, dropped=ids(4)),
    "a survivor twice in the request": at(UNMASK, "duplicate", survivors=ids(0, 1, 2, 3, 4, 4)),
    "a dropped one twice": at(UNMASK, "duplicate", survivors=ids(0, 1, 2, 3), dropped=ids(4, 4)),
    "a stranger among the survivors": at(UNMASK, "unknown", survivors=ids(0, 1, 2, 3, 4, 9)),
    "a stranger among the dropped": at(UNMASK, "unknown", dropped=ids(6)),
    "one who never shared, as dropped": at(UNMASK, "unknown", gone=[(MASK, "c5")], dropped=ids(5)),
    "itself among the dropped": at(UNMASK, "self", survivors=OTHERS, dropped=ids(1)),
    "itself on neither list": at(UNMASK, "self", survivors=OTHERS),
    "a member on neither list": at(UNMASK, "cover", survivors=ids(0, 1, 2, 3, 4)),
    "too few survivors": at(UNMASK, "few", survivors=ids(0, 1, 2), dropped=ids(3, 4, 5)),
    "fewer survivors than its minimum": at(
        UNMASK, "group", policy=STRICT, survivors=ids(0, 1, 2), dropped=ids(3, 4, 5)
    ),
    "other survivors than confirmed": at(
        UNMASK, "changed", signed=True, survivors=ids(0, 1, 2, 3, 4), dropped=ids(5)
    ),
    "a request that nobody signed": at(UNMASK, "signature", signed=True, ids=None, signatures=None),
    "too few signers": at(
        UNMASK, "few", signed=True, ids=ids(0, 1, 2), signatures=first("signatures", 3)
    ),
    "a signer twice": at(UNMASK, "duplicate", signed=True, ids=ids(0, 1, 2, 3, 4, 4)),
    "a signer who is no survivor": at(
        UNMASK, "unknown", signed=True, gone=[(CONFIRM, "c5")], ids=ids(0, 1, 2, 3, 5)
    ),
    "a false signature of the survivors": at(
        UNMASK, "signature", signed=True, signatures=flipped("signatures", 3)
    ),
}


def reached(stage, signed=False, gone=(), policy=LOOSE):
    """A round whose server is about to ask for this stage; (stage, name): who left before it."""
    found = Round(6, threshold=4, policy=policy, signed=signed)
    left = {}
    for before, name in gone:  # who leaves before a stage has not answered the one that precedes it
        left.setdefault(before, []).append(name)
    stages = ["advertise", "share", "mask", *(["confirm"] if signed else []), "unmask"]
    for now, following in itertools.pairwise(stages):
        if now == stage:
            break
        found.stage(gone=left.get(following, ()))
    return found


def lied(case):
    stage, code, signed, gone, policy, arrays = LIES[case]
    found = reached(stage, signed, gone, policy)
    honest = found.asked[ME]
    _, old = wire.decode(honest, FROM_SERVER, hs.Limits())
    made = {name: new(old) if callable(new) else new for name, new in arrays.items()}
    return found, honest, found.altered(honest, **made), code


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


@pytest.mark.parametrize("stage", ["share", "mask", "confirm", "unmask"])
def test_a_stage_is_answered_once(stage):
    found = reached(stage, signed=True)
    question = found.asked[ME]
    found.clients[ME].answer(question)
    with pytest.raises(Abort) as refused:
        found.clients[ME].answer(question)
    assert refused.value.code == "replay"
    assert found.clients[ME].aborted


def reversed_ids(found, question):
    """Another question of the same stage."""
    _, old = wire.decode(question, FROM_SERVER, hs.Limits())
    return found.altered(question, ids=old["ids"][::-1].copy())


def again(found, state, history):
    """The client from a state it wrote earlier, with this history."""
    people = identities(found.stats)
    how = {"policy": LOOSE, "history": history, "identity": people[ME]}
    return Client.from_arrays(state, ME, found.terms, found.stats[ME], **how)


@pytest.mark.parametrize("stage", ["share", "mask", "confirm", "unmask"])
def test_another_question_of_an_answered_stage_is_told_apart(stage):
    found = reached(stage, signed=True)
    client, question = found.clients[ME], found.asked[ME]
    client.answer(question)
    with pytest.raises(Abort) as refused:
        client.answer(reversed_ids(found, question))
    assert refused.value.code == "stories"
    assert client.aborted


@pytest.mark.parametrize("stage", ["share", "mask", "confirm", "unmask"])
@pytest.mark.parametrize(("other", "code"), [(False, "replay"), (True, "stories")])
def test_a_client_restored_from_before_a_stage_does_not_answer_it_again(stage, other, code):
    found = reached(stage, signed=True)
    client, question = found.clients[ME], found.asked[ME]
    state = client.to_arrays()
    client.answer(question)
    client = again(found, state, RoundHistory.from_text(client._history.to_text()))
    with pytest.raises(Abort) as refused:
        client.answer(reversed_ids(found, question) if other else question)
    assert refused.value.code == code
    assert client.aborted


def test_a_client_restored_from_before_its_first_message_does_not_join_again():
    found = Round(6, threshold=4, signed=True)
    state = found.clients[ME].to_arrays()
    found.clients[ME].start()
    with pytest.raises(Abort) as refused:
        again(found, state, found.clients[ME]._history).start()
    assert refused.value.code == "replay"


@pytest.mark.parametrize("stage", ["share", "mask", "confirm", "unmask"])
def test_a_client_does_not_go_on_with_a_book_that_lacks_its_answers(stage):
    """An older history, or none: what left since is not in it."""
    found = reached(stage, signed=True)
    state, text = found.clients[ME].to_arrays(), found.clients[ME]._history.to_text()
    older = RoundHistory.from_text(text)
    older.asked[found.terms.round].popitem()
    for history in (None, RoundHistory(), older):
        with pytest.raises(Abort) as refused:
            again(found, state, history).answer(found.asked[ME])
        assert refused.value.code == "history"
    assert again(found, state, RoundHistory.from_text(text)).answer(found.asked[ME])  # its own


@pytest.mark.parametrize("stage", ["share", "mask", "confirm"])
def test_nor_does_it_answer_again_what_an_older_book_lacks(stage):
    found = reached(stage, signed=True)
    client, text = found.clients[ME], found.clients[ME]._history.to_text()
    client.answer(found.asked[ME])
    with pytest.raises(Abort) as refused:
        again(found, client.to_arrays(), RoundHistory.from_text(text)).answer(found.asked[ME])
    assert refused.value.code == "history"


def test_a_client_that_refused_a_stage_does_not_answer_it_when_restored():
    found, honest, message, _ = lied("both kinds of shares for one peer")
    client = found.clients[ME]
    state = client.to_arrays()
    with pytest.raises(Abort):
        client.answer(message)
    restored = Client.from_arrays(
        state, ME, found.terms, found.stats[ME], policy=LOOSE, history=client._history
    )
    with pytest.raises(Abort) as refused:
        restored.answer(honest)
    assert refused.value.code == "stories"


def test_a_state_without_secrets_answers_nothing():
    found = reached("mask", signed=True)
    state = found.clients[ME].to_arrays()
    state["secrets"] = state["secrets"][:0]
    with pytest.raises(Abort) as refused:
        again(found, state, found.clients[ME]._history).answer(found.asked[ME])
    assert refused.value.code == "over"


def test_a_book_survives_its_text():
    found = reached("unmask")
    found.stage()
    history = found.clients[ME]._history
    assert list(history.asked[found.terms.round]) == ["advertise", "share", "mask", "unmask"]
    assert history.rounds == {found.terms.round: frozenset(found.stats)}
    assert RoundHistory.from_text(history.to_text()) == history


def test_an_earlier_stage_is_not_answered_later():
    found = reached("share")
    roster = found.asked[ME]
    found.stage()
    with pytest.raises(Abort) as refused:
        found.clients[ME].answer(roster)
    assert refused.value.code == "replay"
    with pytest.raises(Abort) as refused:
        found.clients["c0"].start()
    assert refused.value.code == "replay"


def test_a_later_stage_is_not_answered_earlier():
    ahead = reached("unmask")
    behind = reached("mask")  # the same round (id and keys are fixed), a stage before
    with pytest.raises(Abort) as refused:
        behind.clients[ME].answer(ahead.asked[ME])
    assert refused.value.code == "order"
    unsigned = reached("mask").clients[ME]
    question = wire.encode(
        "secure-ask-confirm",
        {"terms": np.frombuffer(behind.terms.digest, np.uint8), "ids": ids(0, 1, 2, 3)},
    )
    with pytest.raises(Abort) as refused:
        unsigned.answer(question)
    assert refused.value.code == "order"


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


def test_a_client_that_fails_in_mid_stage_answers_no_more(monkeypatch):
    found = reached("mask")
    client = found.clients[ME]
    monkeypatch.setattr(type(found.terms.layout), "flatten", _fail)
    with pytest.raises(MemoryError):
        client.answer(found.asked[ME])
    monkeypatch.undo()
    with pytest.raises(Abort) as refused:
        client.answer(found.asked[ME])
    assert refused.value.code == "over"


def _fail(*_):
    raise MemoryError


def test_a_message_beyond_its_size_is_refused_before_it_is_read():
    found = reached("mask")
    big = found.asked[ME] + bytes(10**5)
    with pytest.raises(hs.WireError) as refused:
        found.clients[ME].answer(big)
    assert refused.value.code == "size"


# -- what a server refuses -------------------------------------------------------------------------


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


# -- terms themselves ------------------------------------------------------------------------------


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


def test_every_code_of_the_vectors_is_a_known_one():
    used = {case[1] for case in LIES.values()} | {case[0] for case in TERMS.values()}
    assert used <= set(CODES)


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

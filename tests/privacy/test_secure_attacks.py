"""What a server might try with the messages it has, and how far it gets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.privacy import keys as crypto
from headstart.privacy import shares
from headstart.privacy.client import Client
from headstart.privacy.groups import RoundHistory
from headstart.privacy.layout import Layout
from headstart.privacy.masks import add_mask
from headstart.privacy.messages import FROM_CLIENT, encode, id_array, table
from headstart.privacy.refusals import Abort
from headstart.privacy.server import Server
from headstart.privacy.terms import Policy, Terms
from headstart.statistics import wire

from .parties import CLASSES, LOOSE, Round, entropy, identities, statistics

VICTIM, AT = "c1", 1


def arrays_of(message):
    return wire.decode(message, FROM_CLIENT, hs.Limits())[1]


def test_two_stories_about_one_member_give_neither_secret():
    """Half are told that the victim dropped out, half that it survived: the threshold is more."""
    found = Round(6, threshold=4).until("unmask")
    alive = found.asked["c0"]
    everybody = list(range(6))
    dead = found.altered(
        alive, survivors=id_array([at for at in everybody if at != AT]), dropped=id_array([AT])
    )
    seeds, keys = {}, {}
    for at, name in enumerate(found.clients):
        told = alive if name == VICTIM or at < 3 else dead
        answer = arrays_of(found.clients[name].answer(told))
        if told is alive:
            seeds[at] = answer["seeds"][AT].tobytes()
        else:
            keys[at] = answer["keys"][0].tobytes()
    assert len(seeds) == len(keys) == 3
    roster = found.server._roster[AT]
    for gained in (seeds, keys):
        with pytest.raises(Abort):
            shares.combine(gained, 4)
    guess = shares.combine(seeds, 3), shares.combine(keys, 3)
    assert crypto.commitment(guess[0], found.terms.digest) != roster[64:]
    assert crypto.public_of(guess[1]) != roster[32:64]


def test_a_vector_that_came_late_stays_hidden():
    """The victim was given up and its key rebuilt; then its vector comes: its own mask holds."""
    found = Round(4, threshold=3).until("mask")
    late = arrays_of(found.clients[VICTIM].answer(found.asked.pop(VICTIM)))["vector"]
    found.stage()
    answers = {n: arrays_of(found.clients[n].answer(q)) for n, q in found.asked.items()}
    held = {int(n[1]): a["keys"][0].tobytes() for n, a in answers.items()}
    key = shares.combine(held, 3)
    assert crypto.public_of(key) == found.server._roster[AT][32:64]  # the server has it
    vector = late.view(np.uint64).copy()
    context = found.server._context
    for other in (0, 2, 3):
        pair = crypto.pair_key(key, found.server._roster[other][32:64], context, AT, other)
        add_mask(vector, pair, -1 if other > AT else 1)
    plain = found.terms.layout.flatten(found.stats[VICTIM])
    assert (vector != plain).all()
    assert all(AT not in a["survivors"].tolist() for a in answers.values())  # no share of its seed
    add_mask(vector, crypto.self_key(found.clients[VICTIM]._keys.seed, context, AT), -1)
    assert np.array_equal(vector, plain)  # which is all that was between


def middle(signed):
    """The server puts its own keys in the place of all others', for the victim alone."""
    found = Round(4, threshold=3, signed=signed)
    public = arrays_of(found.clients[VICTIM].start())["public"].tobytes()
    own = {at: crypto.Keys.draw(entropy(f"server {at}")) for at in (0, 2, 3)}
    roster = {at: keys.public(found.terms.digest) for at, keys in own.items()} | {AT: public}
    ids = sorted(roster)
    arrays = {"ids": id_array(ids), "public": table([roster[at] for at in ids], crypto.PUBLIC)}
    if signed:
        arrays["signatures"] = np.zeros((4, 64), np.uint8)
    asked = encode("secure-ask-share", found.terms, arrays)
    given = arrays_of(found.clients[VICTIM].answer(asked))
    context = crypto.context_of(found.terms.digest, roster)
    opened = {
        int(at): crypto.unseal(own[int(at)].seal, public[:32], context, AT, int(at), row.tobytes())
        for at, row in zip(given["ids"], given["sealed"], strict=True)
    }
    sealed = [crypto.seal(own[at].seal, public[:32], context, at, AT, bytes(64)) for at in opened]
    delivery = {"ids": id_array(list(opened)), "sealed": table(sealed, crypto.SEALED)}
    asked = encode("secure-ask-mask", found.terms, delivery)
    vector = arrays_of(found.clients[VICTIM].answer(asked))["vector"].view(np.uint64).copy()
    seed = shares.combine({at: piece[32:] for at, piece in opened.items()}, 3)
    add_mask(vector, crypto.self_key(seed, context, AT), -1)
    for at, keys in own.items():
        add_mask(
            vector, crypto.pair_key(keys.mask, public[32:64], context, at, AT), -1 if at > AT else 1
        )
    return vector, found.terms.layout.flatten(found.stats[VICTIM])


def test_without_signatures_a_lying_server_reads_a_client():
    """R6: so the page says "honest but curious". When this fails, the page can say more."""
    seen, plain = middle(signed=False)
    assert np.array_equal(seen, plain)


def test_with_signatures_a_lying_server_is_found_out():
    with pytest.raises(Abort) as refused:
        middle(signed=True)
    assert refused.value.code == "signature"


def joined(stats, group, books, threshold=None):
    """A round of these clients with what they remember, and a server that forgets on purpose."""
    part = {name: stats[name] for name in group}
    layout = Layout.of(next(iter(part.values())), CLASSES)
    terms = Terms.plan(part, layout, threshold=threshold or len(part) // 2 + 1)
    policy = Policy(group=3, share=0.5)
    found = Round.__new__(Round)
    found.terms, found.stats, found.said = terms, part, {}
    found.server = Server(terms, least=3)
    found.clients = {
        name: Client(name, terms, statistic, policy=policy, history=books[name])
        for name, statistic in part.items()
    }
    found.asked = dict.fromkeys(part, b"")
    return found


def refusals(found):
    """The codes with which clients refuse the next stage."""
    codes = {}
    for name, question in found.asked.items():
        try:
            found.clients[name].answer(question)
        except Abort as refused:
            codes[name] = refused.code
    return codes


def test_two_groups_that_differ_by_one_are_not_both_summed():
    """R15: the difference would be that one. Those who were in the first sum refuse the second."""
    stats = statistics(6)
    books = {name: RoundHistory() for name in stats}
    first = joined(stats, ["c0", "c1", "c2", "c3", "c4"], books)
    for _ in range(4):
        first.stage()
    assert first.server.survivors == ["c0", "c1", "c2", "c3", "c4"]
    second = joined(stats, list(stats), books).until("mask")
    assert refusals(second) == dict.fromkeys(["c0", "c1", "c2", "c3", "c4"], "differencing")


def test_a_drop_out_in_the_second_of_two_equal_groups_is_not_summed():
    stats = statistics(5)
    books = {name: RoundHistory() for name in stats}
    first = joined(stats, list(stats), books)
    for _ in range(4):
        first.stage()
    second = joined(stats, list(stats), books, threshold=4).until("mask")
    second.stage(gone=["c4"])  # masked vectors are there; their shares are not given
    assert refusals(second) == dict.fromkeys(["c0", "c1", "c2", "c3"], "differencing")


def test_the_same_group_again_tells_nothing_new_and_is_summed():
    stats = statistics(5)
    books = {name: RoundHistory() for name in stats}
    totals = []
    for _ in range(2):
        found = joined(stats, list(stats), books)
        for _ in range(4):
            found.stage()
        totals.append(found.server.total.digest())
    assert totals[0] == totals[1]


def test_a_client_that_ends_between_messages_goes_on_where_it_was():
    for signed in (False, True):
        found = Round(4, threshold=3, signed=signed)
        people = identities(found.stats) if signed else {}
        while found.server.stage != "done":
            if found.server.stage != "advertise":
                for name, client in found.clients.items():
                    found.clients[name] = Client.from_arrays(
                        client.to_arrays(),
                        name,
                        found.terms,
                        found.stats[name],
                        policy=LOOSE,
                        history=client._history,
                        identity=people.get(name),
                    )
            found.stage(gone=["c3"] if found.server.stage == "mask" else ())
        assert found.server.total.digest() == found.plain(["c0", "c1", "c2"]).digest()


def test_a_client_that_has_aborted_stays_so_after_a_restart():
    found = Round(4).stage()
    with pytest.raises(hs.WireError):
        found.clients[VICTIM].answer(b"nonsense")
    kept = found.clients[VICTIM].to_arrays()
    again = Client.from_arrays(kept, VICTIM, found.terms, found.stats[VICTIM], policy=LOOSE)
    with pytest.raises(Abort) as refused:
        again.answer(found.asked[VICTIM])
    assert refused.value.code == "over"


def test_the_server_itself_does_not_open_such_a_sum():
    found = Round(5, threshold=3, policy=Policy(share=0.5), earlier=[[f"c{k}" for k in range(5)]])
    found.until("mask")
    with pytest.raises(Abort) as refused:
        found.stage(gone=["c4"])
    assert refused.value.code == "differencing"
    assert found.server.stage == "done"


# -- clients that were restored --------------------------------------------------------------------


def saved(found, name):
    """What a client has written down: its state, and its history."""
    client = found.clients[name]
    return client.to_arrays(), client._history.to_text()


def restored(found, name, state, history, **how):
    return Client.from_arrays(
        state,
        name,
        found.terms,
        found.stats[name],
        policy=LOOSE,
        history=RoundHistory.from_text(history),
        **how,
    )


ALIVE, DEAD = (0, 1, 2, 3, 4, 5), (0, 2, 3, 4, 5)  # the survivors, with the victim and without
BACK = (0, 2, 3, 4)  # who is restored: 2t - n of n = 6 at the default threshold t = 5


def told(found, clients, survivors):
    """The last stages as a server tells them to these clients: what each of them gives."""
    proof = {}
    if found.terms.signed:
        question = encode("secure-ask-confirm", found.terms, {"ids": id_array(survivors)})
        said = {at: arrays_of(client.answer(question)) for at, client in clients.items()}
        rows = [answer["signature"].tobytes() for answer in said.values()]
        proof = {"ids": id_array(list(said)), "signatures": table(rows, crypto.SIGNATURE)}
    lists = {"survivors": id_array(survivors), "dropped": id_array(sorted({*ALIVE} - {*survivors}))}
    question = encode("secure-ask-unmask", found.terms, {**lists, **proof})
    return {at: arrays_of(client.answer(question)) for at, client in clients.items()}


def set_back(signed, *, old_history):
    """All but one give the victim's seed; four of them are then as they were before."""
    found = Round(6, threshold=5, signed=signed).until("confirm" if signed else "unmask")
    clients = dict(enumerate(found.clients.values()))
    before = {at: saved(found, f"c{at}") for at in BACK}
    given = told(found, {at: clients[at] for at in sorted((AT, *BACK))}, ALIVE)
    seed = shares.combine({at: a["seeds"][AT].tobytes() for at, a in given.items()}, 5)
    assert crypto.commitment(seed, found.terms.digest) == found.server._roster[AT][64:]
    people = identities(found.stats) if signed else {}
    for at, (state, history) in before.items():
        name = f"c{at}"
        history = history if old_history else saved(found, name)[1]
        clients[at] = restored(found, name, state, history, identity=people.get(name))
    return found, clients


@pytest.mark.parametrize("signed", [False, True])
def test_peers_restored_from_an_older_state_do_not_tell_both_stories(signed):
    """The server has the seed of the victim's own mask; of its key it gets nothing from them."""
    found, clients = set_back(signed, old_history=False)
    for at in BACK:
        with pytest.raises(Abort) as refused:
            told(found, {at: clients[at]}, DEAD)
        assert refused.value.code == "stories"


@pytest.mark.parametrize("signed", [False, True])
def test_peers_whose_state_and_book_are_both_older_do_tell_both_stories(signed):
    """They cannot know. So the page says not to back up an unfinished round."""
    found, clients = set_back(signed, old_history=True)
    given = told(found, {at: clients[at] for at in DEAD}, DEAD)
    key = shares.combine({at: a["keys"][0].tobytes() for at, a in given.items()}, 5)
    assert crypto.public_of(key) == found.server._roster[AT][32:64]


def test_two_sets_of_shares_from_one_state_are_sealed_under_two_nonces():
    """Under one key and one nonce the server would have the difference of the shares."""
    found = Round(4, threshold=3).until("share")
    state, history = saved(found, VICTIM)
    said = [
        arrays_of(restored(found, VICTIM, state, history).answer(found.asked[VICTIM]))
        for _ in range(2)
    ]
    context = crypto.context_of(found.terms.digest, found.server._roster)
    public = found.server._roster[AT][:32]
    for row, peer in enumerate(said[0]["ids"].tolist()):
        secret = found.clients[f"c{peer}"]._keys.seal
        one, two = (answer["sealed"][row].tobytes() for answer in said)
        plain = [crypto.unseal(secret, public, context, AT, peer, s) for s in (one, two)]
        assert plain[0] != plain[1]  # drawn anew
        texts = [np.frombuffer(s[-16 - 64 : -16], np.uint8) for s in (one, two)]
        shown = np.bitwise_xor(*texts).tobytes()
        assert shown != np.bitwise_xor(*(np.frombuffer(p, np.uint8) for p in plain)).tobytes()
        assert one[:12] != two[:12]


def questions(signed):
    """Of each stage two that a client would answer: with everybody, and without one at the end."""
    whole, less = Round(4, threshold=3, signed=signed), Round(4, threshold=3, signed=signed)
    asked = {}
    for stage in whole.server._stages[1:]:
        less.stage(gone=["c3"] if less.server.stage == "mask" else ())
        asked[stage] = [whole.stage().asked[VICTIM], less.asked[VICTIM]]
    return asked


ASKED = {signed: questions(signed) for signed in (False, True)}


@settings(max_examples=60, deadline=None)
@given(signed=st.booleans(), data=st.data())
def test_whatever_it_is_restored_from_one_answer_a_stage_leaves(signed, data):
    """Any of its states so far, any question; the history as it was when the last answer left."""
    found, asked = Round(4, threshold=3, signed=signed), ASKED[signed]
    who = {"identity": identities(found.stats)[VICTIM]} if signed else {}
    found.clients[VICTIM].start()
    state, history = saved(found, VICTIM)
    states, left = [state], []
    tries = st.tuples(st.integers(0, 4), st.sampled_from(list(asked)), st.integers(0, 1))
    for now in asked:
        for back, stage, which in [(0, now, 0), *data.draw(st.lists(tries, max_size=4))]:
            found.clients[VICTIM] = restored(found, VICTIM, states[-1 - back :][0], history, **who)
            try:
                found.clients[VICTIM].answer(asked[stage][which])
            except hs.WireError:
                continue
            state, history = saved(found, VICTIM)
            states.append(state)
            left.append(stage)
    assert left == list(asked)[: len(left)]  # each once, in order
    assert {"share", "mask"} <= set(left)

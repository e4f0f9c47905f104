"""A client answers every stage once and in order, also when it is restored from an older state."""

import numpy as np
import pytest

import headstart as hs
from headstart.privacy.client import Client
from headstart.privacy.groups import RoundHistory
from headstart.privacy.messages import FROM_SERVER
from headstart.privacy.refusals import Abort
from headstart.statistics import wire

from .parties import LOOSE, Round
from .secure_rounds import ME, again, ids, join, lied, planned, reached


def test_a_client_does_not_answer_a_round_id_twice():
    history = RoundHistory()
    terms, statistic = planned()
    join(terms, statistic, history=history).start()
    kept = RoundHistory.from_text(history.to_text())  # and not after a restart
    with pytest.raises(Abort) as refused:
        join(terms, statistic, history=kept).start()
    assert refused.value.code == "replay"


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

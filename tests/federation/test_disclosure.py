"""What a client would disclose, and that a small one refuses to send it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headstart as hs
from headstart.deploy.admission import (
    UploadRejected,
    carries_features,
    check_small_client,
)
from headstart.federation.disclosure import disclosures, would_refuse

from ..deploy.ledger_world import HEADS


def test_what_is_disclosed_is_said():
    few = disclosures([5, 4], dimension=64)
    assert [leak.refused for leak in few] == [True, False]
    assert "9 samples" in few[0].text
    assert "(9) than dimensions (64)" in few[1].text
    assert not disclosures([5, 5], dimension=10)
    (lone,) = disclosures([20, 1, 0])
    assert lone.refused
    assert "one sample" in lone.text
    assert "2 classes" in disclosures([20, 1, 1])[0].text
    assert disclosures([]) == disclosures([0, 0]) == ()


def test_a_small_client_refuses_unless_told_otherwise():
    few, lone, fine = [0] * 9, [0] * 20 + [1], [0] * 10 + [1] * 2
    for labels in (few, lone):
        with pytest.raises(UploadRejected, match="not sent") as caught:
            check_small_client(labels, hs.Fed3R())
        assert caught.value.code == "small"
        assert any(
            leak.refused for leak in check_small_client(labels, hs.Fed3R(), send_anyway=True)
        )
        assert check_small_client(labels, hs.Fed3R(), protected=True) == ()
        assert check_small_client(labels, hs.ETF()) == ()
        with pytest.raises(UploadRejected):
            check_small_client(labels, hs.FedCOF())
    (note,) = check_small_client(fine, hs.Fed3R(), dimension=64)
    assert not note.refused
    assert check_small_client(["a"] * 10, hs.Fed3R()) == ()


def test_a_refusal_says_what_was_asked_and_what_can_be_done():
    said = {"shows": "a row of a gradient is a sum of features", "advice": "Collect more samples"}
    with pytest.raises(
        UploadRejected, match=r"of a gradient is .*\. Collect more samples \[small\]$"
    ):
        check_small_client([0] * 9, **said)
    with pytest.raises(UploadRejected, match="Use a secure sum"):
        check_small_client([0] * 9, hs.Fed3R())


def test_which_heads_carry_features():
    assert [carries_features(head) for head in HEADS] == [True, True, True, True, True, False]


@given(st.lists(st.lists(st.integers(0, 14), max_size=5), max_size=30))
def test_the_simulator_counts_those_who_would_refuse(counts):
    """Under ten samples, or a class of one; a client without samples says nothing."""
    expected = sum(0 < sum(row) < 10 or 1 in row for row in counts)
    assert would_refuse(counts) == expected

"""The structured attacker in small, and that its oracle sees what it should."""

import attacker
import numpy as np
import pytest
from oracle import why_impossible

from headstart.statistics.wire import OWN


def test_nothing_impossible_is_let_in():
    figures = attacker.attack(4_000, seed=7)
    assert figures.impossible == []
    assert figures.decoded >= 3_900
    assert figures.accepted > 1_000
    assert {"impossible", "bound", "counts", "parity", "shape"} <= set(figures.codes)


def test_honest_messages_are_let_in_and_possible():
    figures = attacker.attack(1_500, seed=8, lies=())
    assert figures.accepted == figures.messages
    assert figures.impossible == []


@pytest.mark.parametrize("precision", attacker.PRECISIONS)
def test_means_of_the_largest_norm_may_be_rounded_and_no_longer(precision):
    head, norm = attacker.HEADS["means"], attacker.NORM
    row = np.full((1, 3), norm / 3**0.5 * 0.9985)  # the last number of an int8 row is rounded up
    row[0, 0] *= 1.0025
    for factor, possible in ((1.0, True), (1.02, False)):
        message = head.measure(row * factor, [0]).to_bytes(precision)
        assert (why_impossible(message, 4.0, norm) == "") == possible


def test_the_oracle_sees_what_a_careless_receiver_lets_in(monkeypatch):
    """With the rounding of totals allowed to clients, it finds what they make of it."""
    monkeypatch.setattr(attacker.Contract, "limits", lambda *_: OWN)
    assert attacker.attack(2_000, seed=9).impossible

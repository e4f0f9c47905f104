"""The structured attacker in small, and that its oracle sees what it should."""

import attacker

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


def test_the_oracle_sees_what_a_careless_receiver_lets_in(monkeypatch):
    """With the rounding of totals allowed to clients, it finds what they make of it."""
    monkeypatch.setattr(attacker.Contract, "limits", lambda *_: OWN)
    assert attacker.attack(2_000, seed=9).impossible

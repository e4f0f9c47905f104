"""Exact factors are whole numbers everywhere, and honest ones never refused for rounding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.deploy.admission import (
    UploadRejected,
    UploadValidator,
)
from headstart.deploy.integrality import Integrality
from headstart.errors import WireError
from headstart.statistics import wire

from .ledger_world import DIMENSION, ROUND, code_of, contract_of, trap, upload_of


def test_the_wire_alone_lets_a_trap_in_that_breaks_every_later_sum():
    """Why admission looks at all of A: without it one bad client ends the federation."""
    poison = hs.Moments.from_bytes(trap(), hs.Limits(bound=8.0))
    with pytest.raises(WireError, match="whole"):
        hs.total([hs.Moments.from_bytes(upload_of(1)), poison])
    assert code_of(UploadValidator(contract_of()).check, "a", ROUND, trap()) == "integral"


@pytest.mark.parametrize("shift", [0.5, 0.25, 0.1, 0.01, 0.001])
def test_a_small_fraction_is_seen_as_well(shift):
    """Many of them would add up: 0.2 over the rows of one fold is all there may be."""
    assert code_of(UploadValidator(contract_of()).check, "a", ROUND, trap(shift)) == "integral"


@given(
    st.integers(1, 60),
    st.integers(1, 80),
    st.sampled_from([0.001, 1.0, 7.9]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_honest_factors_are_never_refused_for_their_rounding(n, d, scale, seed):
    """Features up to the very bound, at every n below and above d, pass with room to spare."""
    rng = np.random.default_rng(seed)
    z = scale * rng.choice([rng.uniform(-1, 1, (n, d)), np.ones((n, d))])
    one = hs.Moments.measure(z, rng.integers(0, 3, n), exact=True, bound=8.0)
    Integrality(d).check(hs.Moments.from_bytes(one.to_bytes()))


def test_factors_at_the_bound_in_full_dimension_pass_both_ways(monkeypatch):
    rng = np.random.default_rng(0)
    z = np.full((300, 640), 8.0) - rng.uniform(0, 0.01, (300, 640))
    one = hs.Moments.measure(z, rng.integers(0, 9, 300), exact=True, bound=8.0)
    integrality = Integrality(640)
    integrality.check(one)
    odd = integrality._probes + 0.5  # never whole: multiply out
    monkeypatch.setattr(integrality, "_probes", odd)
    integrality.check(one)


def lone_direction(k, m):
    """An exact factor of two samples with A = [[k m], [m m²/k]], the last one nearly whole."""
    row = np.zeros(DIMENSION)
    row[:2] = np.sqrt(k), m / np.sqrt(k)
    arrays = {
        "dimension": np.array(DIMENSION),
        "classes": np.array([0]),
        "counts": np.array([2]),
        "z": np.concatenate([row, np.zeros(DIMENSION - 1)]),
        "y": np.array([[0.0], [2**0.5]]),
        "bound": np.array(8.0),
    }
    return wire.encode("factor", arrays)


def test_whole_numbers_of_nobody_are_refused_where_rounding_cannot_tell():
    """10⁶ and 10⁶ + 4 with a product of 10⁶ + 2: a determinant of −4, in a message of rank one."""
    validator = UploadValidator(contract_of())
    validator.check("a", ROUND, lone_direction(2 * 1000**2, 2 * 1000 * 1002))
    payload = lone_direction(10**6, 10**6 + 2)
    hs.Moments.from_bytes(payload, validator.contract.limits("a"))  # float64 sees nothing
    assert code_of(validator.check, "a", ROUND, payload) == "impossible"


@pytest.mark.parametrize("error", [MemoryError(), ZeroDivisionError("x"), IndexError("y")])
def test_whatever_goes_wrong_while_an_upload_is_read_is_its_refusal(monkeypatch, error):
    validator = UploadValidator(contract_of())

    def fail(*_):
        raise error

    monkeypatch.setattr(hs.Moments, "from_bytes", fail)
    with pytest.raises(UploadRejected, match=type(error).__name__) as caught:
        validator.check("a", ROUND, upload_of(1))
    assert caught.value.code == "unreadable"


def test_a_norm_of_the_contract():
    validator = UploadValidator(contract_of(norm=10.0))
    validator.check("a", ROUND, upload_of(1))
    short = UploadValidator(contract_of(norm=1.0))
    assert code_of(short.check, "a", ROUND, upload_of(1)) == "bound"
    short.check(("a", "b"), ROUND, upload_of(1, labels=[]))

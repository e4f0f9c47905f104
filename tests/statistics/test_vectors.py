"""Vectors on the wire: what training sends, added in float64, refused if it is not what it says."""

import json

import numpy as np
import pytest
import safetensors.numpy

from headstart import DataError, WireError, total
from headstart.statistics import wire
from headstart.statistics.tally import Tally
from headstart.statistics.vectors import Vectors
from headstart.statistics.wire import Limits

RNG = np.random.default_rng(0)


def some(rows=2, size=5, numbers=4, kind=np.float32):
    return Vectors(RNG.normal(size=(rows, size)).astype(kind), RNG.normal(size=numbers))


@pytest.mark.parametrize("shape", [(2, 5), (1, 1), (1, 0), (3, 1000)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_message_is_what_was_sent(shape, kind):
    sent = some(*shape, kind=kind)
    for again in (Vectors.from_bytes(sent.to_bytes()), Vectors.from_arrays(sent.to_arrays())):
        assert again.vectors.dtype == kind
        assert np.array_equal(again.vectors, sent.vectors)
        assert np.array_equal(again.numbers, sent.numbers)
        assert (again.rows, again.names) == (sent.rows, sent.names)
        assert again.digest() == sent.digest()
    loaded = safetensors.numpy.load(sent.to_bytes())
    assert set(loaded) == {"vectors", "numbers", "rows", "names"}


def test_the_wire_is_as_wide_as_the_client_made_it_or_whole():
    sent = some(size=1000)
    assert Vectors.from_bytes(sent.to_bytes("float64")).vectors.dtype == np.float64
    assert len(sent.to_bytes("float64")) - len(sent.to_bytes()) == pytest.approx(
        2 * 1000 * 4, abs=8
    )
    assert sent.to_bytes("int8") == sent.to_bytes()  # there is no coarser one


def test_sums_are_kept_in_float64():
    """A million and a millionth: float32 would lose the small one."""
    large, small = (Vectors(np.full((1, 3), v, np.float32), np.ones(2)) for v in (1e6, 1e-6))
    found = total([large, *[small] * 1000])
    assert found.vectors.dtype == np.float64
    np.testing.assert_allclose(found.vectors - 1e6, 1e-3, rtol=1e-4)
    assert found.numbers.tolist() == [1001.0, 1001.0]
    assert large.vectors[0, 0] == np.float32(1e6)  # a sum changes none of its parts


def test_the_order_moves_a_sum_by_its_rounding_only():
    parts = [some(size=50) for _ in range(30)]
    expected = np.sum([part.vectors.astype(np.float64) for part in parts], axis=0)
    for order in (range(30), reversed(range(30)), RNG.permutation(30)):
        mixed = [parts[i] for i in order]
        for found in (total(mixed), sum(mixed), total([total(mixed[:7]), total(mixed[7:])])):
            np.testing.assert_allclose(found.vectors, expected, rtol=0, atol=1e-13)


def test_vectors_and_numbers_are_found_by_name():
    sent = Vectors(np.eye(2, dtype=np.float32), np.array([3.0]), ("update", "control"), ("weight",))
    assert sent.vector("control").tolist() == [0.0, 1.0]
    assert (sent + sent).number("weight") == 6.0
    for wrong in (lambda: sent.vector("gradient"), lambda: sent.number("loss")):
        with pytest.raises(DataError, match="vectors: expected"):
            wrong()
    other = Vectors(sent.vectors, sent.numbers, ("control", "update"), ("weight",))
    with pytest.raises(DataError, match="vectors: expected"):
        _ = sent + other


def test_only_like_adds_to_like():
    mine = some()
    for other in (some(rows=3), some(size=6), some(numbers=3)):
        with pytest.raises(DataError, match="vectors: expected"):
            _ = mine + other
    with pytest.raises(DataError, match="expected Vectors throughout"):
        total([mine, Tally(np.zeros(4))])
    with pytest.raises(TypeError):
        _ = mine + 1
    with pytest.raises(DataError, match="at least one"):
        Vectors.total([])


def called(*names):
    return np.frombuffer(json.dumps(names).encode(), np.uint8)


ARRAYS = {
    "vectors": np.zeros((2, 3), np.float32),
    "numbers": np.zeros(4),
    "rows": called("update", "control"),
    "names": called("a", "b", "c", "d"),
}
REFUSED = {
    "no vectors": ("arrays", {k: v for k, v in ARRAYS.items() if k != "vectors"}),
    "no numbers": ("arrays", {k: v for k, v in ARRAYS.items() if k != "numbers"}),
    "no names": ("arrays", {k: v for k, v in ARRAYS.items() if k != "names"}),
    "too few names": ("arrays", {**ARRAYS, "rows": called("update")}),
    "a name twice": ("arrays", {**ARRAYS, "rows": called("update", "update")}),
    "names that are no texts": ("arrays", {**ARRAYS, "rows": called(1, 2)}),
    "names that are no JSON": ("arrays", {**ARRAYS, "rows": np.zeros(3, np.uint8)}),
    "something else": ("arrays", {**ARRAYS, "more": np.zeros(1)}),
    "one axis": ("shape", {**ARRAYS, "vectors": np.zeros(3, np.float32)}),
    "numbers in a table": ("shape", {**ARRAYS, "numbers": np.zeros((2, 2))}),
    "half precision": ("dtype", {**ARRAYS, "vectors": np.zeros((2, 3), np.float16)}),
    "whole numbers": ("dtype", {**ARRAYS, "vectors": np.zeros((2, 3), np.int64)}),
    "narrow numbers": ("dtype", {**ARRAYS, "numbers": np.zeros(4, np.float32)}),
    "NaN": ("nonfinite", {**ARRAYS, "vectors": np.full((2, 3), np.nan, np.float32)}),
    "infinity": ("nonfinite", {**ARRAYS, "numbers": np.array([0, 0, np.inf, 0])}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_each_refusal_has_its_code_through_either_door(case):
    code, arrays = REFUSED[case]
    for read in (
        lambda: Vectors.from_bytes(wire.encode("vectors", arrays)),
        lambda: Vectors.from_arrays(arrays),
    ):
        with pytest.raises(WireError) as caught:
            read()
        assert caught.value.code == code


def test_another_kind_a_large_one_and_a_damaged_one_are_refused():
    message = some().to_bytes()
    for code, reader in {
        "kind": lambda: Vectors.from_bytes(Tally(np.zeros(4)).to_bytes()),
        "size": lambda: Vectors.from_bytes(message, Limits(bytes=len(message) - 1)),
        "digest": lambda: Vectors.from_bytes(message[:-1] + bytes([message[-1] ^ 1])),
    }.items():
        with pytest.raises(WireError) as caught:
            reader()
        assert caught.value.code == code
    with pytest.raises(WireError):
        Tally.from_bytes(message)

"""Messages: plain safetensors that decode to the very arrays, and any damage is noticed."""

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import ClassSums, ClientMeans, Moments, WireError
from headstart.statistics import wire

from .messages import FEW, MESSAGES, Y, Z, kind_and_arrays, parts, read, refused

every_message = pytest.mark.parametrize("name", MESSAGES)


@every_message
def test_messages_decode_and_encode_to_the_same_arrays(name):
    reader, message = MESSAGES[name]
    assert set(read(reader, message).to_bytes()) <= set(range(256))
    kind, arrays = kind_and_arrays(message)
    assert read(reader, wire.encode(kind, arrays)) is not None
    assert wire.size(kind, arrays) == len(message)


@every_message
def test_messages_are_plain_safetensors(name):
    _, message = MESSAGES[name]
    header, _ = parts(message)
    arrays = safetensors.numpy.load(message)
    schema = {"statistics": header.pop("__metadata__")["kind"]}
    assert set(arrays) == set(header), schema
    for array_name, info in header.items():
        assert arrays[array_name].shape == tuple(info["shape"])


def test_a_file_of_our_own_holds_arrays_of_any_number_and_shape():
    rng = np.random.default_rng(0)
    arrays = {f"params/{i}/weight": rng.normal(size=(2, 1, 3, i % 3)) for i in range(300)}
    arrays |= {"whole": np.arange(5), "text": np.frombuffer(b"{}", np.uint8), "one": np.array(2.5)}
    data = wire.encode("checkpoint", arrays)
    for found in (wire.decode_file(data, "checkpoint"), safetensors.numpy.load(data)):
        assert set(found) == set(arrays)
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            assert np.array_equal(found[name], array)
    for damaged, code in (
        (data[:-1] + bytes([data[-1] ^ 1]), "digest"),
        (data[:-8], "digest"),
        (b"", "malformed"),
        (safetensors.numpy.save(arrays), "malformed"),
    ):
        with pytest.raises(WireError) as caught:
            wire.decode_file(damaged, "checkpoint")
        assert caught.value.code == code
    with pytest.raises(WireError, match="expected model, got 'checkpoint'"):
        wire.decode_file(data, "model")


@pytest.mark.parametrize(
    ("stat", "precision"),
    [
        (Moments.measure(Z[FEW], Y[FEW], secret=b"s"), "float64"),
        (Moments.measure(Z[FEW], Y[FEW], secret=b"s"), "int8"),
        (Moments.measure(Z, Y), "float64"),
        (ClassSums.measure(Z, Y, squares="diagonal"), "float16"),
        (ClientMeans.measure(Z, Y, secret=b"s"), "float32"),
    ],
)
def test_safetensors_reads_the_very_arrays(stat, precision):
    arrays = stat.to_arrays(precision)
    loaded = safetensors.numpy.load(stat.to_bytes(precision))
    assert set(loaded) == set(arrays)
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        assert np.array_equal(loaded[name], array)


def test_encoding_is_a_function_of_the_arrays():
    arrays = ClassSums.measure(Z, Y).to_arrays()
    shuffled = {name: arrays[name] for name in sorted(arrays, reverse=True)}
    assert len({wire.encode("class-sums", arrays) for _ in range(20)}) == 1
    assert wire.encode("class-sums", shuffled) == wire.encode("class-sums", arrays)


@every_message
def test_every_flipped_bit_is_noticed(name):
    reader, message = MESSAGES[name]
    rng = np.random.default_rng(1)
    places = range(len(message)) if len(message) < 400 else rng.choice(len(message), 400, False)
    for at in places:
        damaged = bytearray(message)
        damaged[at] ^= 1 << rng.integers(8)
        refused(reader, bytes(damaged))


@every_message
def test_every_truncation_and_extension_is_noticed(name):
    reader, message = MESSAGES[name]
    cuts = {0, 1, 7, 8, 9, len(message) - 1, *range(0, len(message), 1 + len(message) // 40)}
    for cut in cuts:
        refused(reader, message[:cut])
    refused(reader, message + b"\0")
    refused(reader, message + message)


@every_message
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_replaced_bytes_are_noticed(name, data):
    reader, message = MESSAGES[name]
    start = data.draw(st.integers(0, len(message) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=8))
    damaged = message[:start] + patch + message[start + len(patch) :]
    if damaged != message:
        refused(reader, damaged)

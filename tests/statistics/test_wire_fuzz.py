"""Messages at random, and edited under a valid digest: decoded in little memory, or refused."""

import contextlib
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import ClassSums, ClientMeans, LinearHead, Moments, WireError
from headstart.statistics import wire

from .messages import (
    BIG,
    MESSAGES,
    about,
    edited,
    entry,
    kind_and_arrays,
    parts,
    read,
    refused,
    reheaded,
    relabelled,
    seal,
)

junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-2, 2**50), max_size=3),
    st.sampled_from(["F64", "F32", "F16", "I64", "I8", "U8", "BF16", "BOOL"]),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def accepted_or_refused(reader, message):
    """The only two ends: a WireError, or a statistic that goes round once more."""
    try:
        stat = reader.from_bytes(message)
    except WireError:
        refused(reader, message)
        return
    if reader is LinearHead:
        assert LinearHead.from_bytes(stat.to_bytes()).to_bytes() == stat.to_bytes()
        return
    again = reader.from_bytes(stat.to_bytes("float64"))
    assert again.samples == stat.samples
    assert again.classes.tolist() == stat.classes.tolist()
    if stat.exact:
        assert again.digest() == stat.digest()


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([Moments, ClassSums, ClientMeans, LinearHead]))
def test_random_bytes_are_refused(data, reader):
    refused(reader, data)
    refused(reader, struct.pack("<Q", len(data)) + data)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_header_edits_under_a_valid_digest(data):
    reader, message = MESSAGES[data.draw(st.sampled_from(sorted(MESSAGES)))]
    header, body = parts(message)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(header)))
        action = data.draw(st.sampled_from(["drop", "rename", "replace", "field", "item", "copy"]))
        if action == "drop":
            del header[name]
        elif action == "rename":
            header[data.draw(st.text(max_size=6))] = header.pop(name)
        elif action == "replace":
            header[name] = data.draw(junk)
        elif action == "copy":
            header[name] = header[data.draw(st.sampled_from(sorted(header)))]
        elif isinstance(header[name], dict) and header[name]:
            key = data.draw(st.sampled_from(sorted(header[name])))
            value = header[name][key]
            if action == "item" and isinstance(value, list) and value:
                value = list(value)
                value[data.draw(st.integers(0, len(value) - 1))] = data.draw(junk)
                header[name] = {**header[name], key: value}
            else:
                header[name] = {**header[name], key: data.draw(junk)}
        if not header:
            break
    accepted_or_refused(reader, seal(header, body))


odd_floats = st.sampled_from(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 1e-320, 1e300, -1e300, 1.0, 3.5, 6e4]
)


odd_integers = st.sampled_from([0, -1, 1, 2, 127, 2**31, 2**62, -(2**63), 2**63 - 1])


@settings(max_examples=500, deadline=None)
@given(st.data())
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_value_edits_under_a_valid_digest(data):
    name = data.draw(st.sampled_from(sorted(MESSAGES)))
    reader, message = MESSAGES[name]
    kind, arrays = kind_and_arrays(message)
    for _ in range(data.draw(st.integers(1, 3))):
        field = data.draw(st.sampled_from(sorted(arrays)))
        array = arrays[field].copy()
        if array.size:
            place = data.draw(st.integers(0, array.size - 1))
            odd = odd_floats if array.dtype.kind == "f" else odd_integers
            with np.errstate(all="ignore"):
                array.reshape(-1)[place] = np.array(data.draw(odd)).astype(array.dtype)
        arrays[field] = array
    accepted_or_refused(reader, wire.encode(kind, arrays))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_array_edits_under_a_valid_digest(data):
    """Whole arrays dropped, reshaped, retyped, cut or borrowed from another message."""
    names = sorted(MESSAGES)
    reader, message = MESSAGES[data.draw(st.sampled_from(names))]
    kind, arrays = kind_and_arrays(message)
    _, others = kind_and_arrays(MESSAGES[data.draw(st.sampled_from(names))][1])
    field = data.draw(st.sampled_from(sorted(arrays)))
    action = data.draw(st.sampled_from(["drop", "axis", "type", "cut", "flip", "borrow", "double"]))
    array = arrays[field]
    if action == "drop":
        del arrays[field]
    elif action == "axis":
        arrays[field] = array[None] if array.ndim < 2 else array.reshape(-1)
    elif action == "type":
        dtype = data.draw(st.sampled_from(["<f8", "<f4", "<f2", "<i8", "|i1", "|u1"]))
        with np.errstate(all="ignore"):
            arrays[field] = array.astype(dtype)
    elif action == "cut":
        arrays[field] = array[:-1] if array.ndim else array
    elif action == "flip":
        arrays[field] = array[::-1].copy() if array.ndim else -array
    elif action == "double":
        arrays[field] = np.concatenate([array, array]) if array.ndim else array * 2
    else:
        borrowed = data.draw(st.sampled_from(sorted(others)))
        arrays[borrowed] = others[borrowed]
    accepted_or_refused(reader, wire.encode(kind, arrays))


def _bombs():
    labels = [f"{i:05}" for i in range(20_000)]
    yield "huge shape", *reheaded("gram", entry("a", shape=[BIG]))
    yield "huge empty", *reheaded("empty factor", entry("y", shape=[0, BIG]))
    yield "huge dimension", *edited("empty factor", dimension=np.array(2**40))
    yield "huge triangle", *edited("gram", dimension=np.array(2**20))
    yield "nested lists", *edited("gram exact", classes=relabelled([[]] * 20_000))
    yield "one long label", *edited("gram exact", classes=relabelled([*labels, "x" * 256]))
    yield "a long label too long", *edited("gram exact", classes=relabelled([*labels, "x" * 10**5]))
    yield "head with a huge map", *about(lambda a: a["feature_map"].update(dimension=2**40))


BOMBS = {name: rest for name, *rest in _bombs()}


@pytest.mark.parametrize("name", BOMBS)
def test_no_message_allocates_much_more_than_its_size(name):
    reader, message = BOMBS[name]
    tracemalloc.start()
    try:
        with contextlib.suppress(WireError):
            read(reader, message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * len(message) + 2**25

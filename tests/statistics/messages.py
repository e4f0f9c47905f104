"""A message of every kind, and how to edit and to seal it again."""

import hashlib
import json
import struct

import numpy as np
import pytest
import safetensors.numpy

from headstart import ClassSums, ClientMeans, LinearHead, Moments, WireError
from headstart.heads.random_features import Fed3RRandomFeatures
from headstart.statistics import wire
from headstart.statistics.base import PRECISIONS
from headstart.statistics.wire import CODES

RNG = np.random.default_rng(0)
Z, Y = RNG.normal(size=(40, 6)), np.arange(40) % 3
FEW, MANY = slice(0, 5), slice(0, 40)


def _messages():
    """Each kind of message: (reader, bytes)."""
    found = {}
    for precision in PRECISIONS:
        stat = Moments.measure(Z[FEW], Y[FEW], secret=b"s")
        found[f"factor {precision}"] = Moments, stat.to_bytes(precision)
        sums = ClassSums.measure(Z, Y, squares="diagonal")
        found[f"class-sums {precision}"] = ClassSums, sums.to_bytes(precision)
        means = ClientMeans.measure(Z, Y, means=3, secret=b"s")
        found[f"client-means {precision}"] = ClientMeans, means.to_bytes(precision)
    text = np.array(["a", "bb", "é"])[Y]
    exact = {"exact": True, "secret": b"s"}
    found["gram"] = Moments, Moments.measure(Z, Y).to_bytes("float64")
    found["gram exact"] = Moments, Moments.measure(Z, text, **exact).to_bytes()
    found["factor exact"] = Moments, Moments.measure(Z[FEW], text[FEW], **exact).to_bytes()
    found["factor of many"] = Moments, Moments.measure(Z, text).to_bytes()
    found["class-sums exact"] = (
        ClassSums,
        ClassSums.measure(Z, text, squares="spherical", **exact).to_bytes(),
    )
    found["client-means exact"] = ClientMeans, ClientMeans.measure(Z, text, **exact).to_bytes()
    head = Fed3RRandomFeatures(dimension=8, normalize=False)
    found["head"] = LinearHead, head.solve(head.measure(Z, text)).calibrate(Z, text).to_bytes()
    empty = Moments.measure(Z[:0], Y[:0])
    found["empty factor"] = Moments, empty.to_bytes()
    found["counts alone"] = ClassSums, ClassSums.measure(Z, Y, sums=False).to_bytes()
    return found


MESSAGES = _messages()


def parts(message):
    (length,) = struct.unpack("<Q", message[:8])
    return json.loads(message[8 : 8 + length]), message[8 + length :]


def kind_and_arrays(message):
    header, _ = parts(message)
    return header["__metadata__"]["kind"], dict(safetensors.numpy.load(message))


def seal(header, body=b""):
    """Header (a dict, or JSON text holding 64 zeros) and data → a message with a fitting digest."""
    if isinstance(header, dict):
        if isinstance(header.get("__metadata__"), dict):
            header = {**header, "__metadata__": {**header["__metadata__"], "sha256": "0" * 64}}
        header = json.dumps(header)
    raw = header.encode()
    message = struct.pack("<Q", len(raw)) + raw + body
    digest = hashlib.sha256(message).hexdigest().encode()
    return message.replace(b"0" * 64, digest, 1)


def read(reader, message, limits=None):
    return reader.from_bytes(message) if limits is None else reader.from_bytes(message, limits)


def refused(reader, message, limits=None):
    with pytest.raises(WireError) as caught:
        read(reader, message, limits)
    assert caught.value.code in CODES
    assert str(caught.value).endswith(f"[{caught.value.code}]")
    return caught.value.code


def edited(name, **changes):
    """The message with arrays replaced (None: left out), digest recomputed."""
    reader, message = MESSAGES[name]
    kind, arrays = kind_and_arrays(message)
    for array, change in changes.items():
        if change is None:
            del arrays[array]
        else:
            arrays[array] = change(arrays[array]) if callable(change) else np.asarray(change)
    return reader, wire.encode(kind, arrays)


def reheaded(name, edit):
    """The message with an edited header, digest recomputed."""
    reader, message = MESSAGES[name]
    header, body = parts(message)
    return reader, seal(edit(header) or header, body)


def relabelled(labels):
    return np.frombuffer(json.dumps(labels).encode(), np.uint8)


def at(index, value):
    def change(array):
        array = array.copy()
        array[index] = value
        return array

    return change


def entry(array, **changes):
    def edit(header):
        header[array].update(changes)

    return edit


def raw(text):
    return lambda header: text


BIG = 2**47


def about(change):
    reader, message = MESSAGES["head"]
    kind, arrays = kind_and_arrays(message)
    described = json.loads(arrays["about"].tobytes())
    change(described)
    return reader, wire.encode(kind, {**arrays, "about": relabelled(described)})

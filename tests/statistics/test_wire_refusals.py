"""The decoder: one exception with a stable code for anything that is not a message of ours."""

import numpy as np
import pytest

from headstart import ClassSums, ClientMeans, Moments, WireError
from headstart.statistics import wire
from headstart.statistics.wire import CODES, Limits

from .messages import (
    BIG,
    MESSAGES,
    about,
    at,
    edited,
    entry,
    kind_and_arrays,
    raw,
    refused,
    reheaded,
    relabelled,
)


def meta(**changes):
    def edit(header):
        header["__metadata__"].update(changes)

    return edit


def dropped(array):
    def edit(header):
        del header[array]

    return edit


EXACT_ONE = Moments.measure(np.full((1, 6), 3.0), [0], exact=True, secret=b"s")


DEEP = "[" * 6000


ENVELOPE = '"__metadata__":{"headstart":"1","kind":"gram","sha256":"' + "0" * 64 + '"}'


TWICE = "{" + ENVELOPE + ',"a":1,"a":1}'


DIGITS = "{" + ENVELOPE + ',"a":' + "9" * 5000 + "}"


SURROGATE = '{"__metadata__":{"headstart":"1","kind":"gram","sha256":"\\ud800"}}'


# (code, a message that earns it, limits)
REFUSED = {
    # not a message
    "nothing": ("malformed", lambda: (Moments, b"")),
    "a header longer than all": ("malformed", lambda: (Moments, b"\xff" * 8 + b"{}")),
    "no JSON": ("malformed", lambda: reheaded("gram", raw("{" + "0" * 64))),
    "a list": ("malformed", lambda: reheaded("gram", raw("[]"))),
    "deep JSON": ("malformed", lambda: reheaded("gram", raw(DEEP))),
    "a number of 5000 digits": ("malformed", lambda: reheaded("gram", raw(DIGITS))),
    "a name twice": ("malformed", lambda: reheaded("gram", raw(TWICE))),
    "no metadata": ("malformed", lambda: reheaded("gram", dropped("__metadata__"))),
    "metadata a list": ("malformed", lambda: reheaded("gram", lambda h: {**h, "__metadata__": []})),
    "metadata a number": ("malformed", lambda: reheaded("gram", meta(kind=3))),
    "more metadata": ("malformed", lambda: reheaded("gram", meta(note="hello"))),
    "entry a number": ("malformed", lambda: reheaded("gram", lambda h: {**h, "a": 3})),
    "entry empty": ("malformed", lambda: reheaded("gram", lambda h: {**h, "a": {}})),
    "entry with more": ("malformed", lambda: reheaded("gram", entry("a", more=1))),
    "shape negative": ("malformed", lambda: reheaded("gram", entry("a", shape=[-1]))),
    "shape of floats": ("malformed", lambda: reheaded("gram", entry("a", shape=[21.0]))),
    "shape of bools": ("malformed", lambda: reheaded("gram", entry("a", shape=[True]))),
    "shape a number": ("malformed", lambda: reheaded("gram", entry("a", shape=21))),
    "shape nested": ("malformed", lambda: reheaded("gram", entry("a", shape=[[21]]))),
    "shape of many axes": ("malformed", lambda: reheaded("gram", entry("a", shape=[21, 1, 1]))),
    "shape huge": ("malformed", lambda: reheaded("gram", entry("a", shape=[2**62]))),
    "shape beyond the data": ("malformed", lambda: reheaded("gram", entry("a", shape=[BIG]))),
    "product huge": ("malformed", lambda: reheaded("gram", entry("b", shape=[BIG, BIG]))),
    "offsets text": ("malformed", lambda: reheaded("gram", entry("a", data_offsets="ab"))),
    "offsets overlap": ("malformed", lambda: reheaded("gram", entry("b", data_offsets=[0, 144]))),
    "offsets one": ("malformed", lambda: reheaded("gram", entry("b", data_offsets=[0]))),
    "head: about is no JSON": ("malformed", lambda: edited("head", about=np.zeros(3, np.uint8))),
    "head: about is a list": ("malformed", lambda: edited("head", about=relabelled([]))),
    "head: about is deep": (
        "malformed",
        lambda: edited("head", about=np.frombuffer(DEEP.encode() * 20, np.uint8)),
    ),
    "head: a map with nonsense": (
        "malformed",
        lambda: about(lambda a: a["feature_map"].update(dimension="x")),
    ),
    "head: a map with no bandwidth": (
        "malformed",
        lambda: about(lambda a: a["feature_map"].update(bandwidth=-1)),
    ),
    "head: a map with a strange seed": (
        "malformed",
        lambda: about(lambda a: a["feature_map"].update(seed=[1])),
    ),
    "head: temperature is text": ("malformed", lambda: about(lambda a: a.update(temperature="x"))),
    "head: temperature below 0": ("malformed", lambda: about(lambda a: a.update(temperature=-1))),
    "head: temperature NaN": (
        "malformed",
        lambda: about(lambda a: a.update(temperature=float("nan"))),
    ),
    "head: provenance is text": ("malformed", lambda: about(lambda a: a.update(provenance="x"))),
    # envelope
    "too large": ("size", lambda: (*MESSAGES["gram"], Limits(bytes=100))),
    "version 2": ("version", lambda: reheaded("gram", meta(headstart="2"))),
    "another statistic": ("kind", lambda: (Moments, MESSAGES["head"][1])),
    "an unknown kind": ("kind", lambda: reheaded("gram", meta(kind="sum"))),
    "digest of another": (
        "digest",
        lambda: (Moments, MESSAGES["gram"][1][:-1] + bytes([MESSAGES["gram"][1][-1] ^ 1])),
    ),
    "digest not ASCII": ("digest", lambda: reheaded("gram", raw(SURROGATE))),
    "digest empty": (
        "digest",
        lambda: reheaded("gram", raw(SURROGATE.replace("\\ud800", ""))),
    ),
    # schema
    "array missing": ("arrays", lambda: edited("gram", b=None)),
    "array unknown": ("arrays", lambda: edited("gram", extra=np.zeros(3))),
    "z and rows": ("arrays", lambda: edited("factor float32", rows=np.zeros((5, 6), np.int8))),
    "neither z nor rows": ("arrays", lambda: edited("factor float32", z=None)),
    "scale missing": ("arrays", lambda: edited("factor int8", scale=None)),
    "scale too many": ("arrays", lambda: edited("factor float32", scale=np.ones(5, np.float32))),
    "sums without scale": ("arrays", lambda: edited("class-sums int8", sums_scale=None)),
    "means with scale": (
        "arrays",
        lambda: edited("client-means float64", means_scale=np.ones(9, np.float32)),
    ),
    "dtype unknown": ("dtype", lambda: reheaded("gram", entry("a", dtype="F8_E4M3"))),
    "dtype a list": ("dtype", lambda: reheaded("gram", entry("a", dtype=["F64"]))),
    "dtype of counts": ("dtype", lambda: edited("gram", counts=lambda c: c.astype(float))),
    "dtype of y": ("dtype", lambda: edited("factor float64", y=lambda y: y.astype("f4"))),
    "integers off a lattice": ("dtype", lambda: edited("gram exact", bound=None)),
    "floats on a lattice": ("dtype", lambda: edited("gram", bound=np.array(16.0))),
    "half a lattice": ("dtype", lambda: edited("gram exact", b=lambda b: b.astype(float))),
    "float factor on a lattice": ("dtype", lambda: edited("factor float32", bound=np.array(16.0))),
    "float sums on a lattice": ("dtype", lambda: edited("class-sums float64", bound=np.array(1.0))),
    "axes of a": ("shape", lambda: edited("gram", a=lambda a: a[None])),
    "triangle too small": ("shape", lambda: edited("gram", a=lambda a: a[:-1])),
    "counts too many": ("shape", lambda: edited("gram", counts=lambda c: np.append(c, 1))),
    "b of another dimension": ("shape", lambda: edited("gram", b=lambda b: b[:, :-1])),
    "factor of another size": ("shape", lambda: edited("factor float32", z=lambda z: z[:-1])),
    "more rows than samples": ("shape", lambda: edited("factor float32", counts=[1, 1, 1])),
    "dimension 0": ("shape", lambda: edited("gram", dimension=np.array(0))),
    "factor of dimension -1": ("shape", lambda: edited("empty factor", dimension=np.array(-1))),
    "sums of dimension 0": ("shape", lambda: edited("counts alone", dimension=np.array(0))),
    "sums of dimension -4": ("shape", lambda: edited("counts alone", dimension=np.array(-4))),
    "another dimension than the receiver's": (
        "shape",
        lambda: (*MESSAGES["empty factor"], Limits(dimension=7)),
    ),
    "sums of another dimension than the receiver's": (
        "shape",
        lambda: (*MESSAGES["class-sums int8"], Limits(dimension=7)),
    ),
    "means of another dimension than the receiver's": (
        "shape",
        lambda: (*MESSAGES["client-means int8"], Limits(dimension=7)),
    ),
    "means of another dimension": (
        "shape",
        lambda: edited("client-means float32", dimension=np.array(7)),
    ),
    "squares of another width": (
        "shape",
        lambda: edited("class-sums float64", squares=lambda s: s[:, :2]),
    ),
    "head: classes too few": ("shape", lambda: edited("head", classes=relabelled(["a", "b"]))),
    "head: bias too short": ("shape", lambda: edited("head", bias=lambda b: b[:-1])),
    "head: a map of another dimension": (
        "shape",
        lambda: about(lambda a: a["feature_map"].update(dimension=2**40)),
    ),
    # values
    "NaN in a": ("nonfinite", lambda: edited("gram", a=at(3, np.nan))),
    "infinity in z": ("nonfinite", lambda: edited("factor float16", z=at(3, np.inf))),
    "NaN in a scale": ("nonfinite", lambda: edited("factor int8", scale=at(0, np.nan))),
    "NaN bound": ("nonfinite", lambda: edited("gram exact", bound=np.array(np.nan))),
    "NaN count": ("nonfinite", lambda: edited("client-means float64", counts=at(0, np.nan))),
    "head: infinity in weights": ("nonfinite", lambda: edited("head", weights=at((0, 0), np.inf))),
    "classes unsorted": ("classes", lambda: edited("gram", classes=[1, 0, 2])),
    "classes twice": ("classes", lambda: edited("gram", classes=[0, 1, 1])),
    "text unsorted": ("classes", lambda: edited("gram exact", classes=relabelled(["b", "a", "c"]))),
    "text of numbers": ("classes", lambda: edited("gram exact", classes=relabelled([1, 2, 3]))),
    "text an object": ("classes", lambda: edited("gram exact", classes=relabelled({"a": 1}))),
    "text no JSON": ("classes", lambda: edited("gram exact", classes=np.full(9, 255, np.uint8))),
    "text deep": (
        "classes",
        lambda: edited("gram exact", classes=np.frombuffer(DEEP.encode() * 20, np.uint8)),
    ),
    "text a number of 5000 digits": (
        "classes",
        lambda: edited("gram exact", classes=np.frombuffer(b"[" + b"9" * 5000 + b"]", np.uint8)),
    ),
    "text too long": (
        "classes",
        lambda: edited("gram exact", classes=relabelled(["a", "b", "c" * 300])),
    ),
    "text ending in NUL": (
        "classes",
        lambda: edited("gram exact", classes=relabelled(["a", "b", "c\0"])),
    ),
    "rows unsorted": (
        "classes",
        lambda: edited("client-means float64", classes=lambda c: c[::-1].copy()),
    ),
    "count below 0": ("counts", lambda: edited("gram", counts=at(0, -1))),
    "too many samples": ("counts", lambda: (*MESSAGES["gram"], Limits(samples=39))),
    "counts that overflow": ("counts", lambda: edited("gram", counts=[2**62, 2**62, 2**62])),
    "row without samples": ("counts", lambda: edited("client-means float64", counts=at(0, 0.0))),
    "too many in rows": ("counts", lambda: (*MESSAGES["client-means int8"], Limits(samples=39))),
    "another lattice": ("bound", lambda: (*MESSAGES["gram exact"], Limits(bound=8.0))),
    "a lattice of -1": ("bound", lambda: edited("gram exact", bound=np.array(-1.0))),
    "trace beyond the bound": ("bound", lambda: (*MESSAGES["gram"], Limits(bound=0.5))),
    "factor beyond the bound": ("bound", lambda: (*MESSAGES["factor float32"], Limits(bound=0.3))),
    "means beyond the bound": (
        "bound",
        lambda: (*MESSAGES["client-means float32"], Limits(bound=0.1)),
    ),
    "sums beyond the bound": (
        "bound",
        lambda: (*MESSAGES["class-sums float32"], Limits(bound=0.1)),
    ),
    "sums off the lattice": (
        "bound",
        lambda: edited("class-sums exact", sums=lambda s: s + 2**30, squares=lambda s: s + 2**60),
    ),
    "squares off the lattice": (
        "bound",
        lambda: edited("class-sums exact", squares=lambda s: s + 2**61),
    ),
    "squares beyond the bound": (
        "bound",
        lambda: (
            *edited("class-sums float64", squares=lambda s: s * 1e6),
            Limits(bound=4.0),
        ),
    ),
    "means off the lattice": (
        "bound",
        lambda: edited("client-means exact", means=lambda m: m + 16.0),
    ),
    "Gram parity": (
        "parity",
        lambda: edited("gram exact", a=lambda a: a + np.eye(1, 21, 0, int)[0]),
    ),
    "factor parity": (
        "parity",
        lambda: broken(EXACT_ONE, z=lambda z: np.sqrt(z**2 + (np.arange(6) == 2))),
    ),
    "sums parity": (
        "parity",
        lambda: edited("class-sums exact", squares=lambda s: s + np.eye(3, 1, dtype=int)),
    ),
    "factor not whole": ("integral", lambda: edited("factor exact", z=lambda z: z + 0.3)),
    # no dataset
    "labels larger than the counts": (
        "impossible",
        lambda: edited("factor float64", y=lambda y: y * 1.5),
    ),
    "labels smaller than the counts": (
        "impossible",
        lambda: edited("factor float64", y=lambda y: y * 0.5),
    ),
    "counts of another": ("impossible", lambda: edited("factor float64", counts=[1, 2, 2])),
    "labels of many too large": (
        "impossible",
        lambda: edited("factor of many", y=lambda y: y * 3),
    ),
    "labels beyond all numbers": (
        "impossible",
        lambda: edited("factor float64", y=lambda y: y * 1e200),
    ),
    "scale negative": ("impossible", lambda: edited("factor int8", scale=at(0, -1.0))),
    "Gram not positive": ("impossible", lambda: edited("gram", a=at(1, 1e3))),
    "sum of squares negative": ("impossible", lambda: edited("gram", a=at(0, -1.0))),
    "sums too large for A": ("impossible", lambda: edited("gram", b=lambda b: b + 100)),
    "Gram of zeros with sums": ("impossible", lambda: edited("gram", a=lambda a: a * 0)),
    "a class of nobody": ("counts", lambda: edited("gram", counts=at(0, 0), b=at(0, 0.0))),
    "sums for nobody": ("counts", lambda: edited("gram", counts=at(0, 0))),
    "class sums for nobody": ("counts", lambda: edited("class-sums float64", counts=at(0, 0))),
    "squares too small": (
        "impossible",
        lambda: edited("class-sums float64", squares=lambda s: s * 0.001),
    ),
    "squares negative": (
        "impossible",
        lambda: edited("class-sums float64", sums=None, squares=lambda s: -s),
    ),
    "Gram beyond all numbers": (
        "impossible",
        lambda: edited("gram", a=lambda a: np.full(21, 1e308)),
    ),
    "sums beyond all numbers": (
        "impossible",
        lambda: edited("gram", b=lambda b: np.full((3, 6), 1e308)),
    ),
    "class sums beyond all numbers": (
        "bound",
        lambda: edited("class-sums float64", sums=lambda s: s * 1e200),
    ),
    "factor beyond all numbers": (
        "impossible",
        lambda: edited("factor float64", z=lambda z: z * 1e200),
    ),
    "head: a prior below 0": ("impossible", lambda: edited("head", prior=lambda p: p - 0.5)),
}


def broken(stat, **changes):
    arrays = stat.to_arrays()
    for name, change in changes.items():
        arrays[name] = change(arrays[name])
    return type(stat), wire.encode("factor", arrays)


@pytest.mark.parametrize("case", REFUSED)
def test_each_refusal_has_its_code(case):
    code, build = REFUSED[case]
    assert refused(*build()) == code


def test_every_code_is_earned():
    assert {code for code, _ in REFUSED.values()} == set(CODES)


@pytest.mark.parametrize(
    "case",
    [
        case
        for case, (code, _) in REFUSED.items()
        if code not in ("malformed", "size", "version", "kind", "digest") and "head" not in case
    ],
)
def test_arrays_are_checked_like_messages(case):
    """`from_arrays` is a door as well (other transports carry arrays): the same codes."""
    code, build = REFUSED[case]
    reader, message, *limits = build()
    try:
        _, arrays = kind_and_arrays(message)
    except Exception:  # safetensors' own reader has many
        pytest.skip("not even safetensors")
    with pytest.raises(WireError) as caught:
        reader.from_arrays(arrays, *limits)
    assert caught.value.code == code


@pytest.mark.parametrize("reader", [Moments, ClassSums, ClientMeans])
@pytest.mark.parametrize("arrays", [{}, {"a": np.zeros(3)}, {"classes": np.zeros(3)}])
def test_missing_arrays_are_a_wire_error(reader, arrays):
    with pytest.raises(WireError):
        reader.from_arrays(arrays)

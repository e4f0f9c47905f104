"""Whatever bytes come, a party answers or refuses with a `WireError`; nothing else, ever."""

import json

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.privacy.client import Client
from headstart.privacy.messages import FROM_CLIENT, FROM_SERVER
from headstart.privacy.terms import Terms
from headstart.statistics import wire

from .parties import LOOSE, Round
from .secure_rounds import planned

TYPES = {"I64": np.int64, "U8": np.uint8, "F64": np.float64}


def arrays(schema, widths):
    """Arrays of the right names and types, of shapes and values that are right now and then."""

    def one(field, sizes):
        shape = tuple(sizes[symbol] for symbol in field.shape)
        low, high = (-2, 6) if field.dtypes[0] == "I64" else (0, 255)
        size = int(np.prod(shape))
        values = st.lists(st.integers(low, high), min_size=1, max_size=6)
        return values.map(
            lambda some: (
                np.resize(np.array(some), size).astype(TYPES[field.dtypes[0]]).reshape(shape)
            )
        )

    symbols = sorted({symbol for field in schema.values() for symbol in field.shape})
    sizes = st.fixed_dictionaries(
        {s: st.sampled_from([widths.get(s, 3)] * 5 + [0, 1, 4]) for s in symbols}
    )
    return sizes.flatmap(
        lambda known: st.fixed_dictionaries({n: one(f, known) for n, f in schema.items()})
    )


WIDTHS = {"T": 32, "P": 96, "G": 64, "S": 92, "K": 32, "N": 15, "m": 4, "s": 4, "x": 0, "R": 32}


@settings(max_examples=150, deadline=None)
@given(data=st.data(), signed=st.booleans(), steps=st.integers(1, 4))
def test_a_client_meets_any_arrays(data, signed, steps):
    found = Round(4, threshold=3, signed=signed)
    for _ in range(min(steps, len(found.server._stages) - 1)):
        found.stage()
    kind = data.draw(st.sampled_from(sorted(FROM_SERVER)))
    drawn = data.draw(arrays(FROM_SERVER[kind], WIDTHS))
    drawn["terms"] = np.frombuffer(found.terms.digest, np.uint8)
    try:
        found.clients["c1"].answer(wire.encode(kind, drawn))
    except hs.WireError:
        assert found.clients["c1"].aborted


@settings(max_examples=150, deadline=None)
@given(data=st.data(), signed=st.booleans(), steps=st.integers(0, 4))
def test_a_server_meets_any_arrays(data, signed, steps):
    found = Round(4, threshold=3, signed=signed)
    for _ in range(min(steps, len(found.server._stages) - 1)):
        found.stage()
    kind = data.draw(st.sampled_from(sorted(FROM_CLIENT)))
    drawn = data.draw(arrays(FROM_CLIENT[kind], WIDTHS))
    drawn["terms"] = np.frombuffer(found.terms.digest, np.uint8)
    before = found.server.stage
    try:
        found.server.receive("c1", wire.encode(kind, drawn))
    except hs.WireError:
        assert "c1" in found.server.waiting
    assert found.server.stage == before


@settings(max_examples=100, deadline=None)
@given(
    members=st.one_of(
        st.lists(st.text(max_size=4), max_size=6).map(sorted), st.recursive(st.none(), st.lists)
    ),
    numbers=st.fixed_dictionaries(
        {
            n: st.integers(-(2**63), 2**63 - 1)
            for n in ("threshold", "samples", "signed", "dimension")
        }
    ),
    bound=st.floats(allow_nan=True),
    tables=st.lists(st.integers(-3, 5), max_size=4),
)
@example(
    members=["a", "b", "c"],
    numbers={"threshold": 3, "samples": 9, "signed": 0, "dimension": 2**40},
    bound=16.0,
    tables=[1, 1, 0],
)
def test_any_terms(members, numbers, bound, tables):
    made = {
        "round": np.zeros(32, np.uint8),
        "members": np.frombuffer(json.dumps(members).encode(), np.uint8),
        "classes": np.arange(3),
        "bound": np.array(bound),
        "tables": np.array(tables, np.int64),
        **{name: np.array(value, np.int64) for name, value in numbers.items()},
    }
    try:
        terms = Terms.from_bytes(wire.encode("secure-terms", made))
    except hs.WireError:
        return
    assert Terms.from_bytes(terms.to_bytes()).digest == terms.digest


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes(data):
    terms, statistic = planned()
    client = Client("c1", terms, statistic, policy=LOOSE)
    client.start()
    for read in (client.answer, Terms.from_bytes):
        try:
            read(data)
        except hs.WireError:
            continue
        raise AssertionError(data)

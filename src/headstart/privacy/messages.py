"""The messages of a round, on the wire of all statistics: fixed schemas, a digest, known sizes.

Members go by their place in the terms. Every message carries the digest of the terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import WireError
from headstart.privacy.keys import PUBLIC, SEALED, SIGNATURE
from headstart.privacy.refusals import Abort
from headstart.privacy.shares import SIZE
from headstart.privacy.terms import Terms
from headstart.statistics import wire
from headstart.statistics.wire import Arrays, Field, Limits, Schema

Array = NDArray[Any]
STAGES = ("advertise", "share", "mask", "confirm", "unmask")  # confirm: signed rounds only
_TERMS = Field(("U8",), ("T",))
_IDS = Field(("I64",), ("m",))
_LISTS = {"survivors": Field(("I64",), ("s",)), "dropped": Field(("I64",), ("x",))}
_SIGNED = Field(("U8",), ("m", "G"), optional=True)
_WIDTHS = {
    "public": PUBLIC,
    "signature": SIGNATURE,
    "signatures": SIGNATURE,
    "sealed": SEALED,
    "seeds": SIZE,
    "keys": SIZE,
}

FROM_CLIENT: dict[str, Schema] = {
    "secure-advertise": {
        "terms": _TERMS,
        "public": Field(("U8",), ("P",)),
        "signature": Field(("U8",), ("G",), optional=True),
    },
    "secure-share": {"terms": _TERMS, "ids": _IDS, "sealed": Field(("U8",), ("m", "S"))},
    "secure-mask": {"terms": _TERMS, "vector": Field(("I64",), ("N",))},
    "secure-confirm": {"terms": _TERMS, "signature": Field(("U8",), ("G",))},
    "secure-unmask": {
        "terms": _TERMS,
        **_LISTS,
        "seeds": Field(("U8",), ("s", "K")),
        "keys": Field(("U8",), ("x", "K")),
    },
}
# What a server asks at each stage but the first, whose question is the terms themselves.
FROM_SERVER: dict[str, Schema] = {
    "secure-ask-share": {
        "terms": _TERMS,
        "ids": _IDS,
        "public": Field(("U8",), ("m", "P")),
        "signatures": _SIGNED,
    },
    "secure-ask-mask": {"terms": _TERMS, "ids": _IDS, "sealed": Field(("U8",), ("m", "S"))},
    "secure-ask-confirm": {"terms": _TERMS, "ids": _IDS},
    "secure-ask-unmask": {
        "terms": _TERMS,
        **_LISTS,
        "ids": Field(("I64",), ("m",), optional=True),
        "signatures": _SIGNED,
    },
}


def encode(kind: str, terms: Terms, arrays: Mapping[str, Array]) -> bytes:
    return wire.encode(kind, {"terms": np.frombuffer(terms.digest, np.uint8), **arrays})


def decode(data: bytes, schemas: Mapping[str, Schema], terms: Terms) -> tuple[str, Arrays]:
    """A message of this round: kind and arrays; its size is checked before anything else."""
    n = len(terms.members)
    longest = 4096 + n * (2 * 8 + max(_WIDTHS.values()) + SIGNATURE)
    if "secure-mask" in schemas:
        longest = max(longest, 4096 + 8 * terms.layout.size)
    kind, arrays = wire.decode(data, schemas, Limits(bytes=longest))
    if arrays["terms"].tobytes() != terms.digest:
        raise Abort("round", "message: of another round (or version) than this one")
    for name, width in _WIDTHS.items():
        if name in arrays and arrays[name].shape[-1] != width:
            raise WireError("shape", f"{name}: expected {width} bytes each")
    return kind, arrays


def stage_of(kind: str) -> str:
    return kind.rpartition("-")[2]


def ids_of(values: Array, among: Iterable[int], what: str) -> tuple[int, ...]:
    """A list of members, each once, all of them among those who can stand in it; in order."""
    ids = [int(at) for at in values]
    if len(set(ids)) != len(ids):
        raise Abort("duplicate", f"{what}: expected each member once")
    known = set(among)
    unknown = [at for at in ids if at not in known]
    if unknown:
        raise Abort("unknown", f"{what}: member {unknown[0]} does not belong there")
    return tuple(sorted(ids))


def id_array(ids: Sequence[int]) -> Array:
    return np.array(ids, np.int64)


def table(rows: Sequence[bytes], width: int) -> Array:
    """Byte strings of one length as the rows of an array."""
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), width)


def rows_by_id(ids: Array, rows: Array) -> dict[int, bytes]:
    return {int(at): row.tobytes() for at, row in zip(ids, rows, strict=True)}

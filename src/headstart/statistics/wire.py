"""The wire: named arrays as safetensors, under a fixed schema and a SHA-256 of every byte.

The format is plain safetensors (any reader opens it). The library's decoder has no checksum and
accepts duplicate names, so decoding is ours: strict, without copies, every size known before any
allocation, and one exception (`WireError`) with a stable code for everything that is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from headstart.errors import WireError
from headstart.labels import Labels
from headstart.statistics.exact import Lattice

VERSION = "1"
CODES = {
    "malformed": "not a safetensors message of this kind",
    "size": "larger than the limit",
    "version": "an unknown version of the format",
    "kind": "another statistic than the expected one",
    "digest": "the SHA-256 does not fit the bytes",
    "arrays": "missing or unknown arrays",
    "dtype": "an array of the wrong type",
    "shape": "an array of the wrong shape",
    "nonfinite": "NaN or infinity",
    "classes": "labels not sorted, not unique or not text",
    "counts": "negative or too many samples",
    "bound": "values beyond the public bound",
    "parity": "exact sums that break diag(A) ≡ Σ B (mod 2)",
    "integral": "exact statistics that are not whole numbers",
    "impossible": "statistics no dataset can have produced",
}
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I8": "|i1", "U8": "|u1"}
_NO_DIGEST = "0" * 64
_HEADER_LIMIT = 16_384
_LABEL_LIMIT = 256

Array = NDArray[Any]
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Limits:
    """What a receiver accepts from one client: bytes, samples, an elementwise bound (if any)."""

    bytes: int = 2**31
    samples: int = 2**32
    bound: float | None = None


@dataclass(frozen=True)
class Field:
    """One array of a schema: its types, and its shape in sizes that must agree across arrays."""

    dtypes: tuple[str, ...]
    shape: tuple[str, ...]
    optional: bool = False


Schema = Mapping[str, Field]
CLASSES = Field(("I64", "U8"), ("L",))  # U8: the labels as a JSON list of strings


def encode(kind: str, arrays: Arrays) -> bytes:
    """Arrays → bytes. The digest covers everything: it is taken with its own place zeroed."""
    tensors = {
        name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()
    }
    meta = {"headstart": VERSION, "kind": kind, "sha256": _NO_DIGEST}
    message = bytearray(save(tensors, metadata=meta))
    digest = hashlib.sha256(message).hexdigest().encode()
    start = message.index(_NO_DIGEST.encode())
    message[start : start + 64] = digest
    return bytes(message)


def decode(
    data: bytes | bytearray | memoryview, schemas: Mapping[str, Schema], limits: Limits
) -> tuple[str, dict[str, Array]]:
    """Bytes → (kind, arrays): read-only views into `data`, of the right names, types and shapes."""
    view = memoryview(data).cast("B")
    if len(view) > limits.bytes:
        raise WireError("size", f"message: expected at most {limits.bytes} bytes, got {len(view)}")
    header, start = _header(view)
    kind = _check_metadata(header.pop("__metadata__", None), view[:start], view[start:], schemas)
    entries = _check_entries(header, len(view) - start)
    _check_schema(kind, entries, schemas[kind])
    arrays = {
        name: np.frombuffer(view[start + low : start + high], _DTYPES[dtype]).reshape(shape)
        for name, (dtype, shape, low, high) in entries.items()
    }
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise WireError("nonfinite", f"{name}: expected finite numbers, got NaN or infinity")
    return kind, arrays


def _header(view: memoryview) -> tuple[dict[str, Any], int]:
    if len(view) < 8:
        raise WireError("malformed", f"message: expected at least 8 bytes, got {len(view)}")
    (length,) = struct.unpack("<Q", view[:8])
    if length > min(_HEADER_LIMIT, len(view) - 8):
        raise WireError("malformed", f"header: {length} bytes announced, {len(view) - 8} follow")
    try:
        header = json.loads(bytes(view[8 : 8 + length]), object_pairs_hook=_unique)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise WireError("malformed", f"header: expected JSON, got {error}") from None
    if not isinstance(header, dict):
        raise WireError("malformed", "header: expected a JSON object")
    return header, 8 + length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise WireError("malformed", "header: a name stands twice")
    return result


def _check_metadata(
    meta: Any, head: memoryview, body: memoryview, schemas: Mapping[str, Schema]
) -> str:
    if not isinstance(meta, dict) or not all(isinstance(value, str) for value in meta.values()):
        raise WireError("malformed", "header: expected text metadata")
    if meta.get("headstart") != VERSION:
        raise WireError(
            "version", f"format: expected version {VERSION}, got {meta.get('headstart')!r}"
        )
    if set(meta) != {"headstart", "kind", "sha256"}:
        raise WireError("malformed", f"header: unexpected metadata {sorted(meta)}")
    if meta["kind"] not in schemas:
        raise WireError("kind", f"kind: expected {' or '.join(schemas)}, got {meta['kind']!r}")
    digest = meta["sha256"].encode()
    zeroed = bytes(head).replace(digest, _NO_DIGEST.encode(), 1)
    state = hashlib.sha256(zeroed)
    state.update(body)
    if len(digest) != 64 or state.hexdigest().encode() != digest:
        raise WireError("digest", "message: the SHA-256 does not fit; it was damaged or altered")
    return str(meta["kind"])


_Entry = tuple[str, tuple[int, ...], int, int]


def _check_entries(header: dict[str, Any], size: int) -> dict[str, _Entry]:
    """Types known, shapes whole numbers, offsets without gaps or overlaps up to the very end."""
    entries = {name: _entry(name, info) for name, info in header.items()}
    end = 0
    for name, (dtype, shape, low, high) in sorted(entries.items(), key=lambda item: item[1][2:]):
        length = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
        if low != end or high - low != length:
            raise WireError("malformed", f"{name}: its place does not fit its type and shape")
        end = high
    if end != size:
        raise WireError("malformed", f"message: {size} bytes of data, {end} described")
    return entries


def _entry(name: str, info: Any) -> _Entry:
    if not isinstance(info, dict) or set(info) != {"dtype", "shape", "data_offsets"}:
        raise WireError("malformed", f"{name}: expected dtype, shape and data_offsets")
    dtype, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise WireError("dtype", f"{name}: expected one of {', '.join(_DTYPES)}, got {dtype!r}")
    if not _naturals(shape) or len(shape) > 2 or not _naturals(offsets) or len(offsets) != 2:
        raise WireError("malformed", f"{name}: shape and offsets must be whole numbers")
    return dtype, tuple(shape), offsets[0], offsets[1]


def _naturals(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < 2**48 for value in values
    )


def _check_schema(kind: str, entries: dict[str, _Entry], schema: Schema) -> None:
    missing = [name for name, f in schema.items() if name not in entries and not f.optional]
    unknown = [name for name in entries if name not in schema]
    if missing or unknown:
        raise WireError("arrays", f"{kind}: missing arrays {missing}, unknown arrays {unknown}")
    sizes: dict[str, int] = {}
    for name, (dtype, shape, _, _) in entries.items():
        field = schema[name]
        if dtype not in field.dtypes:
            raise WireError("dtype", f"{name}: expected {' or '.join(field.dtypes)}, got {dtype}")
        if len(shape) != len(field.shape):
            raise WireError("shape", f"{name}: expected {len(field.shape)} axes, got {len(shape)}")
        for symbol, length in zip(field.shape, shape, strict=True):
            if sizes.setdefault(symbol, length) != length:
                raise WireError("shape", f"{name}: {symbol} is {length}, elsewhere {sizes[symbol]}")


def pack_labels(labels: Labels) -> Array:
    """Labels as an array the wire carries."""
    if labels.dtype.kind == "U":
        return np.frombuffer(json.dumps(labels.tolist()).encode(), np.uint8)
    return labels.astype("<i8")


def unpack_labels(packed: Array, *, unique: bool = True) -> Labels:
    """The inverse, refusing what is not sorted (and, for classes, not unique)."""
    labels: Labels = packed.astype(np.int64) if packed.dtype.kind == "i" else _texts(packed)
    if labels.size > 1:
        ordered = labels[:-1] < labels[1:] if unique else labels[:-1] <= labels[1:]
        if not ordered.all():
            raise WireError("classes", "classes: expected sorted labels, each once")
    return labels


def _texts(packed: Array) -> NDArray[np.str_]:
    try:
        texts = json.loads(packed.tobytes())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise WireError("classes", "classes: expected a JSON list of strings") from None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise WireError("classes", "classes: expected a JSON list of strings")
    if (
        max(map(len, texts), default=0) > _LABEL_LIMIT
    ):  # an array gives every label the longest's room
        raise WireError("classes", f"classes: expected labels of at most {_LABEL_LIMIT} characters")
    labels = np.array(texts, dtype=np.str_)
    if labels.tolist() != texts:  # trailing NULs do not survive an array of text
        raise WireError("classes", "classes: labels may not end in NUL")
    return labels


def lattice_of(arrays: Arrays, limits: Limits) -> Lattice | None:
    """The lattice of an exact message (its `bound`), which must be the receiver's own."""
    if "bound" not in arrays:
        return None
    bound = float(arrays["bound"])
    if not bound > 0 or bound != (limits.bound or bound):
        raise WireError("bound", f"bound: expected {limits.bound or 'above 0'}, got {bound}")
    return Lattice(bound)


def check_counts(counts: Array, limits: Limits, classes: int) -> NDArray[np.int64]:
    """Counts as int64: one a class, none negative, within what one client may have."""
    if len(counts) != classes:
        raise WireError("shape", f"counts: expected {classes}, got {len(counts)}")
    if counts.size and int(counts.min()) < 0:
        raise WireError("counts", f"counts: expected none below 0, got {int(counts.min())}")
    total = sum(int(count) for count in counts)
    if total > limits.samples:
        raise WireError("counts", f"counts: expected at most {limits.samples} samples, got {total}")
    return counts.astype(np.int64)

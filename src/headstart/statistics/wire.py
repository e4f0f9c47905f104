"""The wire: named arrays as safetensors, under a fixed schema and a SHA-256 of every byte.

The format is plain safetensors (any reader opens it). The library's encoder writes its metadata in
any order and its decoder has no checksum and accepts duplicate names, so both are ours: a message
is a function of its arrays; decoding is strict, without copies, every size known before any
allocation, with one exception (`WireError`) and a stable code for everything that is refused.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import DataError, WireError
from headstart.labels import Labels
from headstart.statistics.exact import MOST_SAMPLES, Lattice

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
    "classes": "too many labels, or not sorted, not unique or not text",
    "counts": "no samples of a class, or too many in all",
    "bound": "values beyond the public bound",
    "parity": "exact sums that break diag(A) ≡ Σ B (mod 2)",
    "integral": "exact statistics that are not whole numbers",
    "impossible": "statistics no dataset can have produced",
}
_DTYPES = {
    name: np.dtype(code)
    for name, code in {
        "F64": "<f8",
        "F32": "<f4",
        "F16": "<f2",
        "I64": "<i8",
        "I8": "|i1",
        "U8": "|u1",
    }.items()
}
_NO_DIGEST = "0" * 64
_HEADER_LIMIT = 16_384
_AXES_LIMIT = 2
LABEL_LIMIT = 256
_LABEL_BYTES = 2**24  # bytes; beyond, an array of the labels may be 32 times their text
_LABEL_JSON = 12 * LABEL_LIMIT + 4  # bytes of one label, where every character is two escapes

Array = NDArray[Any]
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Limits:
    """What a receiver accepts from one client: sizes, and bounds on its features (if any).

    bytes, samples, classes  the most of each; more is refused before any work
    bound      the largest magnitude of a feature
    dimension  that of the federation's features. A message without rows may claim any, and a sum
               takes memory for its square: a receiver who knows it says it
    norm       the largest Euclidean norm of a sample's features
    total      whether this is a sum of messages, or one that was sent on: the rounding of every
               precision may be in it, and is allowed for
    """

    bytes: int = 2**31
    samples: int = 2**32
    bound: float | None = None
    dimension: int | None = None
    classes: int = 2**16
    norm: float | None = None
    total: bool = False


OWN = Limits(classes=2**24, total=True)  # of what this program, or its user, has written


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
    head, order = _head(kind, _outline(arrays))
    body = [np.ascontiguousarray(arrays[name], _DTYPES[dtype]).tobytes() for name, dtype in order]
    message = b"".join([head, *body])
    digest = hashlib.sha256(message).hexdigest().encode()
    return message.replace(_NO_DIGEST.encode(), digest, 1)


def size(kind: str, arrays: Arrays) -> int:
    """How many bytes a message has, without making it."""
    head, _ = _head(kind, _outline(arrays))
    return len(head) + sum(array.nbytes for array in arrays.values())


_Outline = tuple[tuple[str, str, tuple[int, ...]], ...]  # name, type and shape of each array


def _outline(arrays: Arrays) -> _Outline:
    return tuple((name, _name_of(name, array), array.shape) for name, array in arrays.items())


@functools.lru_cache(maxsize=64)  # rounds of training say the same thousands of times
def _head(kind: str, outline: _Outline) -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """What stands before the arrays, and these in their order."""
    header: dict[str, Any] = {
        "__metadata__": {"headstart": VERSION, "kind": kind, "sha256": _NO_DIGEST}
    }
    order, end = [], 0  # the widest numbers first: aligned
    for name, dtype, shape in sorted(
        outline, key=lambda entry: (-_DTYPES[entry[1]].itemsize, entry[0])
    ):
        low, end = end, end + math.prod(shape) * _DTYPES[dtype].itemsize
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [low, end]}
        order.append((name, dtype))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, tuple(order)


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
    arrays = _views(view[start:], entries)
    _check_finite(arrays)
    return kind, arrays


def decode_file(data: bytes, kind: str) -> dict[str, Array]:
    """The arrays of a file that this machine wrote with `encode`, of any number, name and shape."""
    view = memoryview(data)
    header, start = _header(view, len(view))
    _check_metadata(header.pop("__metadata__", None), view[:start], view[start:], {kind: {}})
    entries = _check_entries(header, len(view) - start, axes=32)
    return _views(view[start:], entries)


def checked(kind: str, arrays: Arrays, schema: Schema) -> Arrays:
    """Arrays that came by another way than `decode`, held to the same schema."""
    entries = {name: (_name_of(name, array), array.shape, 0, 0) for name, array in arrays.items()}
    _check_schema(kind, entries, schema)
    _check_finite(arrays)
    return arrays


def _name_of(name: str, array: Array) -> str:
    for code, dtype in _DTYPES.items():
        if array.dtype == dtype:
            return code
    raise WireError("dtype", f"{name}: expected one of {', '.join(_DTYPES)}, got {array.dtype}")


def _check_finite(arrays: Arrays) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise WireError("nonfinite", f"{name}: expected finite numbers, got NaN or infinity")


def _header(view: memoryview, limit: int = _HEADER_LIMIT) -> tuple[dict[str, Any], int]:
    if len(view) < 8:
        raise WireError("malformed", f"message: expected at least 8 bytes, got {len(view)}")
    (length,) = struct.unpack("<Q", view[:8])
    if length > min(limit, len(view) - 8):
        raise WireError("malformed", f"header: {length} bytes announced, {len(view) - 8} follow")
    try:
        header = _JSON.decode(str(view[8 : 8 + length], "utf-8"))
    except WireError:
        raise
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, numbers of 5000 digits
        raise WireError("malformed", f"header: expected JSON, got {error}") from None
    if not isinstance(header, dict):
        raise WireError("malformed", "header: expected a JSON object")
    return header, 8 + length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise WireError("malformed", "header: a name stands twice")
    return result


_JSON = json.JSONDecoder(object_pairs_hook=_unique)


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
    digest = meta["sha256"].encode(errors="replace")
    zeroed = bytes(head).replace(digest, _NO_DIGEST.encode(), 1)
    state = hashlib.sha256(zeroed)
    state.update(body)
    if len(digest) != 64 or state.hexdigest().encode() != digest:
        raise WireError("digest", "message: the SHA-256 does not fit; it was damaged or altered")
    return str(meta["kind"])


_Entry = tuple[str, tuple[int, ...], int, int]


def _views(body: memoryview, entries: Mapping[str, _Entry]) -> dict[str, Array]:
    """Read-only arrays, without a copy."""
    return {
        name: np.frombuffer(body[low:high], _DTYPES[dtype]).reshape(shape)
        for name, (dtype, shape, low, high) in entries.items()
    }


def _check_entries(header: dict[str, Any], size: int, axes: int = _AXES_LIMIT) -> dict[str, _Entry]:
    """Types known, shapes whole numbers, offsets without gaps or overlaps up to the very end."""
    entries = {name: _entry(name, info, axes) for name, info in header.items()}
    end = 0
    for name, (dtype, shape, low, high) in sorted(entries.items(), key=lambda item: item[1][2:]):
        length = math.prod(shape) * _DTYPES[dtype].itemsize
        if low != end or high - low != length:
            raise WireError("malformed", f"{name}: its place does not fit its type and shape")
        end = high
    if end != size:
        raise WireError("malformed", f"message: {size} bytes of data, {end} described")
    return entries


def _entry(name: str, info: Any, axes: int) -> _Entry:
    if not isinstance(info, dict) or set(info) != {"dtype", "shape", "data_offsets"}:
        raise WireError("malformed", f"{name}: expected dtype, shape and data_offsets")
    dtype, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise WireError("dtype", f"{name}: expected one of {', '.join(_DTYPES)}, got {dtype!r}")
    if not _naturals(shape) or len(shape) > axes or not _naturals(offsets) or len(offsets) != 2:
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
    if labels.dtype.kind == "U" and labels.size:  # none are none, of either kind
        return np.frombuffer(json.dumps(labels.tolist()).encode(), np.uint8)
    return labels.astype("<i8")


def labels_of(arrays: Arrays, limits: Limits, *, unique: bool = True) -> Labels:
    """The labels of a message, one for each of its counts; too many are refused unread."""
    packed, many = arrays["classes"], len(arrays["counts"])
    if unique:
        _check_many(many, limits)
    if packed.dtype.kind == "u" and packed.size > _LABEL_JSON * many + 2:
        raise WireError("classes", f"classes: {packed.size} bytes are too many for {many} labels")
    labels = unpack_labels(packed, unique=unique)
    if not unique:  # sorted, so a class ends where its neighbour differs
        _check_many(int((labels[:-1] != labels[1:]).sum()) + 1, limits)
    return labels


def _check_many(classes: int, limits: Limits) -> None:
    if classes > limits.classes:
        raise WireError("classes", f"classes: expected at most {limits.classes}, got {classes}")


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
    except (ValueError, RecursionError):
        raise WireError("classes", "classes: expected a JSON list of strings") from None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise WireError("classes", "classes: expected a JSON list of strings")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:  # "\ud800" is JSON, and no file can hold it
        raise WireError("classes", "classes: expected labels that UTF-8 can write") from None
    longest = max(map(len, texts), default=0)
    if longest > LABEL_LIMIT:
        raise WireError("classes", f"classes: expected labels of at most {LABEL_LIMIT} characters")
    size = 4 * longest * len(texts)  # an array gives every label the longest's
    if size > max(_LABEL_BYTES, 32 * packed.size):
        raise WireError("classes", f"classes: one label of {longest} characters among many short")
    labels = np.array(texts, dtype=np.str_)
    if labels.tolist() != texts:  # trailing NULs do not survive an array of text
        raise WireError("classes", "classes: labels may not end in NUL")
    return labels


def lattice_of(arrays: Arrays, limits: Limits) -> Lattice | None:
    """The lattice of an exact message (its `bound`), which must be the receiver's own."""
    if "bound" not in arrays:
        return None
    bound = float(arrays["bound"])
    try:
        lattice = Lattice(bound)
    except DataError as error:
        raise WireError("bound", str(error)) from None
    if bound != (limits.bound or bound):
        raise WireError("bound", f"bound: expected {limits.bound}, got {bound}")
    return lattice


def dimension_of(arrays: Arrays, limits: Limits) -> int:
    """The dimension a message claims, which must be the receiver's own (if it has one)."""
    dimension = int(arrays["dimension"])
    if dimension < 1 or dimension != (limits.dimension or dimension):
        expected = limits.dimension or "at least 1"
        raise WireError("shape", f"dimension: expected {expected}, got {dimension}")
    return dimension


def check_counts(arrays: Arrays, limits: Limits, classes: int) -> NDArray[np.int64]:
    """Counts as int64: one per class, none below 1, in all within what one client may have.

    Of exact statistics also within what a sum of whole numbers has bits for.
    """
    counts = arrays["counts"]
    most = min(limits.samples, MOST_SAMPLES) if "bound" in arrays else limits.samples
    if len(counts) != classes:
        raise WireError("shape", f"counts: expected {classes}, got {len(counts)}")
    if counts.size and int(counts.min()) < 1:
        raise WireError("counts", f"counts: expected none below 1, got {int(counts.min())}")
    total = sum(counts.tolist())  # whole numbers of any size: no overflow
    if total > most:
        raise WireError("counts", f"counts: expected at most {most} samples, got {total}")
    return counts.astype(np.int64)

"""What the two halves say to each other: a step and its arrays go out, a statistic's bytes return.

Steps are plain JSON, arrays are Flower's (NumPy's format, never pickled), and what comes back is
the wire's own message, so that the server checks the very bytes a simulation checks. A client that
cannot or will not answer says so in words, with a code for programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from headstart.errors import HeadstartError, WireError
from headstart.federation.protocol import Arrays, Step
from headstart.privacy.refusals import CODES as SECURE_CODES

_ABOUT, _ARRAYS, _UPLOAD, _SECURE = "about", "arrays", "upload", "secure"
_STAGE = ("terms", "asked")  # of a secure sum
_WIRE = "headstart.wire"  # how an answer's bytes are to be read: by `from_bytes`
VERSION = 3  # of questions and replies
_TOLD = ("precision", "training", "turn", "last", "news", "nonce", "agreement")
_LONGEST = 20_000  # characters about an answer
# With which a client may refuse.
OWN_CODES = ("failed", "small", "plugin", "budget", "train", "trust", "agreement", *SECURE_CODES)


def packed(broadcast: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in broadcast.items()})


def _raw(data: bytes) -> Array:
    """Bytes that are read by a `from_bytes` of ours."""
    return Array("uint8", (len(data),), _WIRE, data)


@dataclass(frozen=True, eq=False)
class Question:
    """One thing asked of one client; without a step there is only news.

    `precision` is that of the wire. `training` names the training a client's memories belong to: a
    client that hears a new name begins without memories. `turn` is its place among the questions of
    that training, `last` the turn of this client's last answer that the server has (0: none), to
    which a client goes back. `news`: what became of its last upload.
    `nonce`: a random text that only the asked node is told, and says again; Flower itself does not
    keep one node from answering a question to another whose identity it can guess. `plugins`: the
    server's (name → SHA-256), which the node compares with its own; it is never told to load any.
    `agreement`: the terms of the contract, with the question by which one joins.
    `terms`: of a secure sum, of which this is a stage; `asked`: what the stage asks this member
    (the first one asks nothing).
    """

    step: Step | None = None
    broadcast: Arrays = field(default_factory=dict)
    precision: str | None = None
    training: str = ""
    turn: int = 0
    last: int = 0
    news: Mapping[str, Any] | None = None
    nonce: str = ""
    plugins: Mapping[str, str] = field(default_factory=dict)
    agreement: Mapping[str, Any] | None = None
    terms: bytes = b""
    asked: bytes = b""

    def to_content(self, arrays: ArrayRecord | None = None) -> RecordDict:
        """`arrays`: the broadcast as it was packed for another client."""
        step = None
        if self.step is not None:
            step = [self.step.name, dict(self.step.params), self.step.silent]
        about = {
            "version": VERSION,
            "step": step,
            "precision": self.precision,
            "training": self.training,
            "turn": self.turn,
            "last": self.last,
            "news": None if self.news is None else dict(self.news),
            "nonce": self.nonce,
            "plugins": dict(self.plugins),
            "agreement": None if self.agreement is None else dict(self.agreement),
        }
        packed_ = packed(self.broadcast) if arrays is None else arrays
        content = RecordDict({_ABOUT: ConfigRecord({"json": json.dumps(about)}), _ARRAYS: packed_})
        if self.terms:
            stage = zip(_STAGE, (self.terms, self.asked), strict=True)
            content[_SECURE] = ArrayRecord({name: _raw(data) for name, data in stage})
        return content

    @classmethod
    def from_content(cls, content: RecordDict) -> Question:
        try:
            about = json.loads(str(content.config_records[_ABOUT]["json"]))
            if about.get("version") != VERSION:
                raise HeadstartError(
                    f"question: expected version {VERSION} of the protocol, got "
                    f"{about.get('version')!r}; install the same version of Headstart everywhere"
                )
            step = None if about["step"] is None else Step(*about["step"])
            arrays = {name: array.numpy() for name, array in content.array_records[_ARRAYS].items()}
            told = {key: about[key] for key in _TOLD}
            named = {str(name): str(digest) for name, digest in about["plugins"].items()}
            stage: Mapping[str, Array] = content.array_records.get(_SECURE, {})
            terms, asked = (bytes(stage[name].data) if stage else b"" for name in _STAGE)
            return cls(step, arrays, **told, plugins=named, terms=terms, asked=asked)
        except HeadstartError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise HeadstartError(f"question: expected a step and arrays, got {error!r}") from None


@dataclass(frozen=True)
class Reply:
    """What a client replies: the bytes of a statistic, or why there are none.

    `extractor`: what made its features (None: they are features as they are).
    """

    client: str
    payload: bytes = b""
    extractor: Mapping[str, Any] | None = None
    code: str = ""
    text: str = ""
    nonce: str = ""

    def to_content(self) -> RecordDict:
        about = {
            "client": self.client,
            "extractor": None if self.extractor is None else dict(self.extractor),
            "code": self.code,
            "text": self.text,
            "nonce": self.nonce,
        }
        array = _raw(self.payload)
        return RecordDict(
            {
                _ABOUT: ConfigRecord({"json": json.dumps(about)}),
                _ARRAYS: ArrayRecord({_UPLOAD: array}),
            }
        )

    @classmethod
    def from_content(cls, content: RecordDict, limit: int) -> Reply:
        """Whoever wrote it: of the right form and size, or refused."""
        try:
            told = str(content.config_records[_ABOUT]["json"])
            payload = content.array_records[_ARRAYS][_UPLOAD].data
        except (KeyError, TypeError, ValueError, AttributeError):
            raise WireError("malformed", "answer: expected a text and an upload") from None
        if len(payload) > limit or len(told) > _LONGEST:
            raise WireError("size", f"answer: expected at most {limit} bytes, got {len(payload)}")
        try:
            about = json.loads(told)
            json.dumps(about, ensure_ascii=False, allow_nan=False).encode()  # as files will hold it
            texts = [about[key] for key in ("client", "code", "text", "nonce")]
            extractor = about["extractor"]
        except (KeyError, TypeError, ValueError, RecursionError):
            raise WireError("malformed", "answer: expected its client, code and text") from None
        known = all(isinstance(value, str) for value in texts)
        if not known or not isinstance(extractor, dict | None):
            raise WireError("malformed", "answer: expected its client, code and text")
        client, code, text, nonce = texts
        if code and code not in OWN_CODES:
            code = "failed"  # other codes are the server's to give
        return cls(client, bytes(payload), extractor, code, text, nonce)

"""A node as a member of masked groups: a stage per question, and all that it remembers on its disk.

Flower answers every question in a process of its own, so a round's secrets are a private file
between two stages. What was answered is in the history before the answer leaves, and the history
before the secrets; an answer that was lost is not given again: the node has left that round. The
history is for ever: neither another run nor another server is told a sum that the earlier ones
would give its samples away by.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headstart.deploy.failpoints import reached
from headstart.deploy.flower.messages import Question
from headstart.deploy.flower.settings import NodeSettings
from headstart.deploy.log import sync_folder
from headstart.deploy.private import private_folder
from headstart.errors import DataError, HeadstartError
from headstart.federation.protocol import Step
from headstart.files import PRIVATE, locked, write_bytes, write_text
from headstart.privacy.client import Client
from headstart.privacy.groups import RoundHistory
from headstart.privacy.keys import Entropy, Identity, read_identity
from headstart.privacy.masked import maskable, task_of
from headstart.privacy.messages import FROM_SERVER, decode, stage_of
from headstart.privacy.refusals import Abort
from headstart.privacy.sensitivity import Noise
from headstart.privacy.terms import Policy, Terms
from headstart.statistics import wire

FOLDER, HISTORY = "secure", "history.json"
_STATE = "secure-state"
_ARRAYS = ("done", "secrets", "roster", "public", "holds", "held", "survivors")
MEASURED = ("advertise", "mask")  # stages that look at the samples


def answered(
    question: Question,
    step: Step,
    node: NodeSettings,
    folder: Path,
    *,
    measured: Callable[[], Any],
    samples: str,
    entropy: Entropy,
    spend: Callable[[str, Noise], None],
) -> bytes:
    """The answer to one stage, or `WireError`.

    `measured` gives this node's statistic, `samples` is the digest of what it is of, and `spend`
    charges a release before anything of it leaves.
    """
    private_folder(folder / FOLDER)
    with locked(folder / f"{FOLDER}.lock"):  # a second process would answer the same stage
        terms = Terms.from_bytes(question.terms)
        check_task(terms, step, question.broadcast)
        stage = _stage(question.asked, terms)
        memory = Memory.read(folder / FOLDER)
        apart = terms.noise is not None and policy_of(node).apart
        if stage in MEASURED and not apart:
            memory.check_samples(samples)
        path = folder / FOLDER / f"{terms.round.hex()}.safetensors"
        statistic = maskable(measured()) if stage in MEASURED else terms.layout.empty()
        client = _client(path, terms, statistic, node, memory.history, entropy)
        if stage == "mask" and terms.noise is not None:
            spend(terms.round.hex(), terms.noise)
        try:
            message = client.answer(question.asked) if question.asked else client.start()
        except BaseException:
            path.unlink(missing_ok=True)  # its secrets are of no more use
            raise
        finally:
            if stage == "mask" and not apart:
                memory.samples = samples
            memory.write()
        reached("remembered")
        if stage == "unmask":
            path.unlink(missing_ok=True)
        else:
            state = {**client.to_arrays(), "terms": np.frombuffer(terms.digest, np.uint8)}
            write_bytes(path, wire.encode(_STATE, state), PRIVATE)
        sync_folder(path.parent)
        reached("ready")
        return message


def check_task(terms: Terms, step: Step, broadcast: Mapping[str, Any]) -> None:
    """Refuse terms of another question than the one that came with them, or of other noise."""
    if terms.task != task_of(step, broadcast):
        raise Abort("terms", "task: expected the digest of the question that came with the terms")
    plain = step.params.get("noise")
    asked = None if plain is None else Noise.from_plain(plain)
    if (asked and asked.to_text()) != (terms.noise and terms.noise.to_text()):
        raise Abort("noise", "terms: expected the noise that the step asks for")


def _stage(asked: bytes, terms: Terms) -> str:
    return stage_of(decode(asked, FROM_SERVER, terms)[0]) if asked else "advertise"


def _client(
    path: Path,
    terms: Terms,
    statistic: Any,
    node: NodeSettings,
    history: RoundHistory,
    entropy: Entropy,
) -> Client:
    """The member as it was after its last answer; a new one where it has answered nothing."""
    how: dict[str, Any] = {
        "policy": policy_of(node),
        "history": history,
        "identity": identity_of(node),
        "entropy": entropy,
    }
    if not path.exists():
        for other in path.parent.glob("*.safetensors"):  # one round at a time: it has left that one
            other.unlink()
        return Client(node.client, terms, statistic, **how)
    arrays = _state(path)
    if arrays.pop("terms").tobytes() != terms.digest:
        raise Abort("stories", "terms: other ones of this round were answered before")
    return Client.from_arrays(arrays, node.client, terms, statistic, **how)


def _state(path: Path) -> dict[str, Any]:
    """What a member kept between two stages."""
    try:
        arrays = wire.decode_file(path.read_bytes(), _STATE)
    except (OSError, ValueError):
        raise HeadstartError("secure: the state of this round is damaged; it is left") from None
    if set(arrays) != {*_ARRAYS, "terms"}:
        raise HeadstartError("secure: the state of this round is of another version; it is left")
    return arrays


def policy_of(node: NodeSettings) -> Policy:
    """What the owner insists on in every masked group."""
    mu = 1 / node.least_noise if node.least_noise else None
    return Policy(node.least_group, mu=mu, apart=node.most_epsilon > 0)


def identity_of(node: NodeSettings) -> Identity | None:
    """The node's signing key and its peers' public ones, all from its own files."""
    return read_identity(Path(node.sign), Path(node.peers)) if node.sign else None


@dataclass
class Memory:
    """The history of a node, and the digest of the samples that went into its exact sums."""

    path: Path
    history: RoundHistory = field(default_factory=RoundHistory)
    samples: str = ""

    @classmethod
    def read(cls, folder: Path) -> Memory:
        path = folder / HISTORY
        if not path.exists():
            if any(folder.glob("*.safetensors")):
                raise HeadstartError(f"secure: {HISTORY} is missing in the private folder")
            return cls(path)
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            samples = plain["samples"]
            if not isinstance(samples, str):
                raise ValueError(samples)
            return cls(path, RoundHistory.from_text(plain["history"]), samples)
        except (OSError, ValueError, KeyError, TypeError, RecursionError, DataError):
            raise HeadstartError(
                f"secure: {HISTORY} in the private folder is damaged; this node joins no sum until "
                "its owner has restored it"
            ) from None

    def check_samples(self, samples: str) -> None:
        """A sum of the same group over changed samples differs by what has changed."""
        if self.samples not in ("", samples):
            raise Abort(
                "differencing",
                "samples: expected those that went into an earlier sum, got others: the difference "
                "of the two sums would show what has changed",
            )

    def write(self) -> None:
        plain = {"history": self.history.to_text(), "samples": self.samples}
        write_text(self.path, json.dumps(plain), PRIVATE)
        with suppress(OSError):
            sync_folder(self.path.parent)

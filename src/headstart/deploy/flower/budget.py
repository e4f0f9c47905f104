"""How many questions about its samples a node answers: so many, for ever, whoever asks.

An answer to `calibrate` is a few numbers, and looks harmless; but each question may bring another
head, and 64 heads that a server chooses give back a sample of 64 features. No bound per head or per
run helps, for the next question belongs to another one. So a node keeps count in its private folder
of every different question that it has answered, through restarts and changes of its data (most
samples are the same afterwards), and refuses the one that would be too many. The same question
again (the same step, parameters and broadcast, on the same samples and memories) has the same
answer, and is not counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headstart.deploy.admission import UploadRejected
from headstart.deploy.flower.messages import Question
from headstart.deploy.log import sync_folder
from headstart.errors import HeadstartError
from headstart.federation.protocol import EXTRACTOR, Arrays, ClientData, Step, step_kind
from headstart.files import PRIVATE, locked, write_text

KINDS = ("measure", "calibrate", "personal", "training")  # and settings of node.toml
FILE = "budget.json"


def network_of(step: Step) -> Any:
    """The network that a step brings along for a client's samples to go through, if it does."""
    networks = [job["spec"]["network"] for job in jobs_of(step)]
    return step.params.get(EXTRACTOR) or next(filter(None, networks), None)


def jobs_of(step: Step) -> list[Mapping[str, Any]]:
    """What a step trains, if it trains."""
    return [step.params[name] for name in ("job", "begin") if name in step.params]


def charged(step: Step) -> str:
    """What a question counts as; empty: it shows nothing of single samples, and is free."""
    kind = step_kind(step.name)
    if step.silent or not kind.discloses:
        return ""
    own = kind.budget if kind.budget in KINDS else "training"  # of a plugin that says no other
    return "training" if network_of(step) else own


def mark(question: Question, step: Step, client: ClientData) -> str:
    """One name for a question and all that its answer depends on."""
    digest = hashlib.sha256()
    asked = [step.name, dict(step.params), step.silent, question.precision]
    digest.update(json.dumps(asked, sort_keys=True).encode())
    for arrays in (question.broadcast, client.memory):
        _add(digest, arrays)
    digest.update(content(client).encode())
    return digest.hexdigest()


def content(client: ClientData) -> str:
    """The digest of a client's samples, those it tests with among them."""
    digest = hashlib.sha256()
    for samples in (client.samples, client.test):
        if samples is not None:
            _add(digest, {"labels": samples.labels})
            for part in samples.content():
                digest.update(part)
    return digest.hexdigest()


def _add(digest: Any, arrays: Arrays) -> None:
    """Names, types, shapes and bytes of arrays."""
    there = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    outline = [[name, there[name].dtype.str, there[name].shape] for name in sorted(there)]
    digest.update(json.dumps(outline).encode())
    for name in sorted(there):
        digest.update(there[name].tobytes())


@dataclass(frozen=True)
class Budget:
    """The questions that were answered, in a node's private folder; `most` of each kind may be."""

    folder: Path
    most: Mapping[str, int]

    def spend(self, kind: str, question: str) -> None:
        """Count a question before it is answered, on the disk; refuse (`budget`) one too many."""
        with locked(self.folder / f"{FILE}.lock"):  # two at once are counted one after the other
            asked = self._read()
            own = asked.setdefault(kind, [])
            if question in own:
                return
            if len(own) >= self.most[kind]:
                raise UploadRejected(
                    "budget",
                    f"budget: {kind}: this node answers {self.most[kind]} different questions "
                    f"about its samples, and has; left: {_listed(self._left(asked))}. Its "
                    f"owner sets {kind} in node.toml",
                )
            own.append(question)
            text = json.dumps({"version": 1, "asked": asked}, indent=1)
            write_text(self.folder / FILE, text, PRIVATE)
            sync_folder(self.folder)

    def left(self) -> dict[str, int]:
        """How many more questions of each kind will be answered."""
        return self._left(self._read())

    def _left(self, asked: Mapping[str, list[str]]) -> dict[str, int]:
        return {kind: max(0, self.most[kind] - len(asked.get(kind, ()))) for kind in KINDS}

    def _read(self) -> dict[str, list[str]]:
        path = self.folder / FILE
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            asked = {str(kind): _marks(kind, own) for kind, own in plain["asked"].items()}
            if type(plain["version"]) is not int or plain["version"] != 1:
                raise ValueError(plain["version"])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise HeadstartError(
                "budget: expected the count of answered questions in the private folder, got a "
                "damaged file; this node answers none until its owner has restored it"
            ) from None
        return asked


def _marks(kind: str, own: Any) -> list[str]:
    """The questions of one kind, each once; `ValueError` where they are something else."""
    sound = kind in KINDS and isinstance(own, list) and len(set(own)) == len(own)
    if not sound or not all(isinstance(one, str) and one for one in own):
        raise ValueError(kind)
    return list(own)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())

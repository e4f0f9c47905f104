"""A federation over Flower's Grid: what the simulator does in a process, done over a network.

Answers are taken as they come, a few at a time, and each goes through the same checks of the wire.
A client that says nothing by the deadline, fails, refuses, or answers what the step did not promise
is written down and left out: the sum is that of the others.
"""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid
from numpy.typing import NDArray

from headstart.data.samples import ArraySamples
from headstart.deploy.admission import Contract
from headstart.deploy.agreement import Agreement
from headstart.deploy.flower.messages import Question, Reply, packed
from headstart.deploy.flower.waiting import Waiting
from headstart.deploy.nodes import ClientFailure
from headstart.errors import DataError, HeadstartError, NoAnswerError, WireError
from headstart.federation.promises import sound
from headstart.federation.protocol import (
    Answer,
    Arrays,
    ClientData,
    Step,
    added,
    broadcast_bytes,
    chosen,
    step_kind,
)
from headstart.statistics.wire import Limits

JOINING = ("measure", "unit-sums")  # questions that carry the contract's terms
TOGETHER = 8  # replies fetched at once: what the server holds does not grow with clients
PUSHED = 64  # questions sent at once; what they share is sent once


@dataclass
class FlowerFederation:
    """Clients on other machines, by name. `nodes`: Flower's number of each.

    `deadline`: seconds that a step may take. `contract`: what all answers must fit, beyond what
    their step promised of them: kind and list of classes, samples, bound. `failures`: everything
    that was expected and did not come, or was refused. `run` tells the trainings of one run from
    those of another. `turn` counts the questions of a training and `last` holds the turn of each
    client's last answer, by which a client knows what of its memories the server has not heard of.
    """

    grid: Grid
    nodes: Mapping[str, int]
    deadline: float = 600.0
    precision: str | None = None
    limits: Limits = field(default_factory=Limits)
    poll: float = 0.5
    contract: Contract | None = None
    samples: Mapping[str, int] = field(default_factory=dict)  # of the uploads that were admitted
    failures: list[ClientFailure] = field(default_factory=list)
    news: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # to go with the next question
    run: str = ""
    training: str = ""
    turn: int = 0
    last: dict[str, int] = field(default_factory=dict)
    nonces: dict[str, str] = field(default_factory=dict)
    plugins: Mapping[str, str] = field(default_factory=dict)  # that clients must have, too
    patience: float = 60.0  # seconds for the rest of those asked at a stage, once it can go on

    def __post_init__(self) -> None:
        if not self.deadline > 0:
            raise HeadstartError(f"deadline: expected seconds above 0, got {self.deadline!r}")

    @property
    def clients(self) -> Sequence[str]:
        return tuple(self.nodes)

    @cached_property
    def _terms(self) -> Mapping[str, Any] | None:
        """What a client agrees to that joins."""
        return None if self.contract is None else Agreement.of(self.contract).to_plain()

    # -- questions and answers -----------------------------------------------------------------

    def ask(
        self,
        names: Sequence[str],
        step: Step | None,
        broadcast: Arrays | None = None,
        ttl: float | None = None,
        stage: Mapping[str, tuple[bytes, bytes]] | None = None,
    ) -> dict[str, str]:
        """Send a question to each; the names, by the identity of their message.

        `stage`: of a secure sum, the terms and what each is asked.
        """
        shared, asked = packed(broadcast or {}), dict[str, str]()
        for at in range(0, len(names), PUSHED):
            some = names[at : at + PUSHED]
            messages = [
                self._question(name, step, shared, ttl, (stage or {}).get(name, (b"", b"")))
                for name in some
            ]
            asked |= self._push(some, messages)
        return asked

    def _question(
        self,
        name: str,
        step: Step | None,
        shared: ArrayRecord,
        ttl: float | None,
        stage: tuple[bytes, bytes],
    ) -> Message:
        self.nonces[name] = secrets.token_hex(16)
        question = Question(
            step,
            precision=self.precision,
            training=self.training,
            turn=self.turn,
            last=self.last.get(name, 0),
            news=self.news.pop(name, None),
            nonce=self.nonces[name],
            plugins=self.plugins,
            terms=stage[0],
            asked=stage[1],
            agreement=self._terms if step is not None and step.name in JOINING else None,
        )
        return Message(
            question.to_content(shared),
            dst_node_id=self.nodes[name],
            message_type=MessageType.QUERY,
            ttl=ttl or self.deadline,
        )

    def _push(self, names: Sequence[str], messages: list[Message]) -> dict[str, str]:
        ids = list(self.grid.push_messages(messages)) or [""] * len(names)  # none: too large
        for name, id_ in zip(names, ids, strict=True):
            if not id_:
                self.failures.append(
                    ClientFailure(name, "unreachable", f"{name}: could not be asked")
                )
        return {id_: name for name, id_ in zip(names, ids, strict=True) if id_}

    def arrived(self, asked: dict[str, str]) -> Iterator[tuple[str, Reply | ClientFailure]]:
        """What has come by now, taken from `asked`: an answer, or what went wrong."""
        waiting = list(asked)
        for at in range(0, len(waiting), TOGETHER):
            for reply in self.grid.pull_messages(waiting[at : at + TOGETHER]):
                name = asked.pop(reply.metadata.reply_to_message_id, None)
                if name is not None:  # a reply that comes twice is heard once
                    yield name, self._heard(name, reply)

    def _heard(self, name: str, reply: Message) -> Reply | ClientFailure:
        if reply.has_error():
            text = f"{name}: {reply.error.reason or 'no reason given'}"
            return ClientFailure(name, "unreachable", text)
        try:
            answer = Reply.from_content(reply.content, self.limits.bytes)
        except WireError as error:
            return ClientFailure(name, error.code, f"{name}: {error}")
        if answer.nonce != self.nonces.get(name):
            return ClientFailure(name, "identity", f"{name}: another node answered in its place")
        if answer.client != name:
            text = f"{name}: expected this name in its own configuration, got {answer.client!r}"
            return ClientFailure(name, "identity", text)
        if answer.code:
            return ClientFailure(name, answer.code, f"{name}: {answer.text}")
        return answer

    def replies(
        self,
        step: Step | None,
        broadcast: Arrays | None = None,
        cohort: Sequence[str] | None = None,
    ) -> Iterator[tuple[str, Reply]]:
        """Replies as they come, until all have or the deadline has."""
        self.turn += 1
        asked = self.ask(chosen(self.clients, cohort), step, broadcast)
        for name, found in self._gathered(asked):
            if isinstance(found, ClientFailure):
                self.failures.append(found)
            else:
                yield name, found

    def _gathered(
        self, asked: dict[str, str], enough: int | None = None
    ) -> Iterator[tuple[str, Reply | ClientFailure]]:
        """What comes, and at the end who is missing: when time is up, or when `enough` have
        answered and the rest had as long again, or their patience if that is longer."""
        began, wait, answered = time.monotonic(), Waiting(), 0
        until = began + self.deadline
        while asked:
            for name, found in self.arrived(asked):
                answered += isinstance(found, Reply)
                if answered == enough and isinstance(found, Reply):
                    now = time.monotonic()
                    until = min(until, now + max(self.patience, now - began))
                yield name, found
            if asked and time.monotonic() > until:
                for name in asked.values():
                    text = f"{name}: no answer in {time.monotonic() - began:.3g} s"
                    yield name, ClientFailure(name, "missing", text)
                return
            if asked:
                wait({"asked": sorted(asked.values())})
                time.sleep(self.poll)

    # -- secure sums ---------------------------------------------------------------------------

    def blank(self) -> ClientData:
        """A client of the agreed dimension without samples."""
        if self.contract is None:
            raise DataError("secure: expected a contract, which gives the form of all answers")
        rows = np.zeros((0, self.contract.dimension))
        labels = np.zeros(0, np.int64 if self.contract.labels == "integer" else "<U1")
        return ClientData(ArraySamples(rows, labels))

    def stage(
        self,
        step: Step,
        broadcast: Arrays,
        terms: bytes,
        asked: Mapping[str, bytes],
        enough: int,
    ) -> Iterator[tuple[str, bytes | WireError]]:
        """What each member says at a stage of a secure sum, or why it says nothing.

        Once `enough` have answered, the others have as long again, and `patience` at least.
        """
        there = [name for name in asked if name in self.nodes]
        stage = {name: (terms, asked[name]) for name in there}
        sent = self.ask(there, step, broadcast, stage=stage)
        for name, found in self._gathered(sent, enough):
            contract = self.contract
            if (
                isinstance(found, Reply)
                and contract
                and not contract.same_features(found.extractor)
            ):
                text = f"{name}: features of another extractor than was agreed"
                found = ClientFailure(name, "extractor", text)
            if isinstance(found, Reply):
                yield name, found.payload
                continue
            self.failures.append(found)
            if found.code not in ("missing", "unreachable"):  # these have left, and said no reason
                yield name, WireError(found.code, found.text)

    def answers(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Answer]:
        """Of those who answer something that can be read; the others are among the failures.

        Bytes down are the method's, as a simulation counts them. (What a client keeps for a
        training goes with every question here.)
        """
        read = self._read(step, broadcast, cohort)
        for answer in sound(read, step, broadcast, self._failed, self._limits(step)):
            self.last[answer.clients[0]] = self.turn
            yield answer

    def _read(
        self, step: Step, broadcast: Arrays | None, cohort: Sequence[str] | None
    ) -> Iterator[Answer]:
        """What came of the kind that the step asks for, of classes that were agreed."""
        kind = step_kind(step.name).answer_type(step)
        every, once = broadcast_bytes(step, broadcast or {})
        for name, reply in self.replies(step, broadcast, cohort):
            try:
                statistic = kind.from_bytes(reply.payload, self.limits)
                if self.contract is not None and hasattr(statistic, "classes"):
                    self.contract.check_classes(statistic.classes)
            except WireError as error:
                self._failed((name,), error)
                continue
            down = every if name in self.last else every + once
            yield Answer((name,), statistic, len(reply.payload), down, reply.payload)

    def _failed(self, clients: Sequence[str], error: WireError) -> None:
        for name in clients:
            self.failures.append(ClientFailure(name, error.code, f"{name}: {error}"))

    def _limits(self, step: Step) -> Callable[[Sequence[str]], Limits]:
        """What a client was admitted with; its test part, which is not, may be as large as any."""
        contract, tests = self.contract, step_kind(step.name).tests

        def limits(clients: Sequence[str]) -> Limits:
            if contract is None:
                return self.limits
            (name,) = clients
            known = {} if tests else self.samples
            agreed = contract.limits(name)
            return replace(agreed, samples=known.get(name, agreed.samples))

        return limits

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Answer:
        """The answers, folded: whole numbers as they come, others in the order of the clients.

        (A sum of floating-point numbers depends on its order, and must not on who is fastest.)
        """
        found = self.answers(step, broadcast, cohort)
        if not step.params.get("exact"):
            found = iter(sorted(found, key=lambda answer: self.clients.index(answer.clients[0])))
        first = next(found, None)
        if first is None:
            reasons = "; ".join(failure.text for failure in self.failures[-3:])
            raise NoAnswerError(
                f"{step.name}: expected an answer of some client, got none"
                f"{reasons and f' ({reasons})'}"
            )
        try:
            return added(itertools.chain([first], found))
        except DataError as error:
            raise DataError(f"{step.name}: {error}") from None

    # -- trainings -----------------------------------------------------------------------------

    def begin_training(self, name: str) -> None:
        """Clients put their memories away when they hear a new name; "" leaves them alone."""
        self.training, self.turn, self.last = name and f"{self.run}/{name}", 0, {}

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Clients keep their memories themselves; a resumed server tells them where it goes on."""
        about = {"training": self.training, "turn": self.turn, "last": self.last}
        return {"training": np.frombuffer(json.dumps(about).encode(), np.uint8)}

    def restore(self, arrays: Arrays) -> None:
        about = json.loads(arrays["training"].tobytes())
        self.training, self.turn, self.last = about["training"], about["turn"], about["last"]

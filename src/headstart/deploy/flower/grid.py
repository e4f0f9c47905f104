"""A federation over Flower's Grid: what the simulator does in a process, done over a network.

Answers are taken as they come, a few at a time, and each goes through the same checks of the wire.
A client that says nothing by the deadline, fails or refuses is written down and left out: the sum
is that of the others.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid
from numpy.typing import NDArray

from headstart.deploy.flower.messages import Answer, Question, packed
from headstart.deploy.nodes import Trouble
from headstart.deploy.steps import answer_kind
from headstart.errors import DataError, HeadstartError, WireError
from headstart.federation.protocol import Arrays, Step, Upload
from headstart.statistics.base import total
from headstart.statistics.wire import Limits

TOGETHER = 8  # replies fetched at once: what the server holds does not grow with clients
PUSHED = 64  # questions sent at once; what they share is sent once
Reply = tuple[str, Answer | Trouble]


@dataclass
class GridFederation:
    """Clients on other machines, by name. `nodes`: Flower's number of each.

    `deadline`: seconds that a step may take. `sent`: bytes up, by client. `troubles`: everything
    that was expected and did not come, or was refused.
    """

    grid: Grid
    nodes: Mapping[str, int]
    deadline: float = 600.0
    precision: str | None = None
    limits: Limits = field(default_factory=Limits)
    poll: float = 0.5
    sent: Counter[str] = field(default_factory=Counter)
    troubles: list[Trouble] = field(default_factory=list)
    news: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # to go with the next question
    training: str = ""
    nonces: dict[str, str] = field(default_factory=dict)
    plugins: Mapping[str, str] = field(default_factory=dict)  # that clients must have, too

    def __post_init__(self) -> None:
        if not self.deadline > 0:
            raise HeadstartError(f"deadline: expected seconds above 0, got {self.deadline!r}")

    @property
    def clients(self) -> Sequence[str]:
        return tuple(self.nodes)

    # -- questions and answers -----------------------------------------------------------------

    def ask(
        self,
        names: Sequence[str],
        step: Step | None,
        broadcast: Arrays | None = None,
        ttl: float | None = None,
    ) -> dict[str, str]:
        """Send a question to each; the names, by the identity of their message."""
        shared, asked = packed(broadcast or {}), dict[str, str]()
        for at in range(0, len(names), PUSHED):
            some = names[at : at + PUSHED]
            asked |= self._push(some, [self._question(name, step, shared, ttl) for name in some])
        return asked

    def _question(
        self, name: str, step: Step | None, shared: ArrayRecord, ttl: float | None
    ) -> Message:
        self.nonces[name] = secrets.token_hex(16)
        question = Question(
            step,
            precision=self.precision,
            training=self.training,
            news=self.news.pop(name, None),
            nonce=self.nonces[name],
            plugins=self.plugins,
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
                self.troubles.append(Trouble(name, "unreachable", f"{name}: could not be asked"))
        return {id_: name for name, id_ in zip(names, ids, strict=True) if id_}

    def arrived(self, asked: dict[str, str]) -> Iterator[Reply]:
        """What has come by now, taken from `asked`: an answer, or what went wrong."""
        waiting = list(asked)
        for at in range(0, len(waiting), TOGETHER):
            for reply in self.grid.pull_messages(waiting[at : at + TOGETHER]):
                name = asked.pop(reply.metadata.reply_to_message_id, None)
                if name is not None:  # a reply that comes twice is heard once
                    yield name, self._heard(name, reply)

    def _heard(self, name: str, reply: Message) -> Answer | Trouble:
        if reply.has_error():
            text = f"{name}: {reply.error.reason or 'no reason given'}"
            return Trouble(name, "unreachable", text)
        try:
            answer = Answer.from_content(reply.content, self.limits.bytes)
        except WireError as error:
            return Trouble(name, error.code, f"{name}: {error}")
        if answer.nonce != self.nonces.get(name):
            return Trouble(name, "identity", f"{name}: another node answered in its place")
        if answer.client != name:
            text = f"{name}: expected this name in its own configuration, got {answer.client!r}"
            return Trouble(name, "identity", text)
        if answer.code:
            return Trouble(name, answer.code, f"{name}: {answer.text}")
        self.sent[name] += len(answer.payload)
        return answer

    def answers(
        self,
        step: Step | None,
        broadcast: Arrays | None = None,
        cohort: Sequence[str] | None = None,
    ) -> Iterator[tuple[str, Answer]]:
        """Answers as they come, until all have or the deadline has."""
        asked = self.ask(self._chosen(cohort), step, broadcast)
        until = time.monotonic() + self.deadline
        while asked:
            for name, found in self.arrived(asked):
                if isinstance(found, Trouble):
                    self.troubles.append(found)
                else:
                    yield name, found
            if asked and time.monotonic() > until:
                for name in asked.values():
                    text = f"{name}: no answer in {self.deadline:g} s"
                    self.troubles.append(Trouble(name, "missing", text))
                return
            if asked:
                time.sleep(self.poll)

    # -- the federation ------------------------------------------------------------------------

    def uploads(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Upload]:
        kind = answer_kind(step)
        for name, answer in self.answers(step, broadcast, cohort):
            try:
                yield (name,), kind.from_bytes(answer.payload, self.limits)
            except WireError as error:
                self.troubles.append(Trouble(name, error.code, f"{name}: {error}"))

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Any:
        """The uploads, folded: whole numbers as they come, others in the order of the clients.

        (A sum of floating-point numbers depends on its order, and must not on who is fastest.)
        """
        found = self.uploads(step, broadcast, cohort)
        if not step.params.get("exact"):
            found = iter(sorted(found, key=lambda upload: self.clients.index(upload[0][0])))
        try:
            return total(statistic for _, statistic in found)
        except DataError as error:
            said = "; ".join(trouble.text for trouble in self.troubles[-3:])
            raise DataError(f"{step.name}: {error}{said and f' ({said})'}") from None

    def evaluate(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """Each client's own tally; those that did not answer are not in it."""
        found = {ids[0]: tally.values for ids, tally in self.uploads(step, broadcast, cohort)}
        return {name: found[name] for name in self._chosen(cohort) if name in found}

    def _chosen(self, cohort: Sequence[str] | None) -> Sequence[str]:
        unknown = [name for name in cohort or () if name not in self.nodes]
        if unknown:
            raise DataError(f"cohort: expected known clients, got {', '.join(unknown[:5])}")
        return self.clients if cohort is None else cohort

"""Fed3R-Sync with secure sums: groups of clients of which the server can see only the sum.

`Masked` is `federation.grouped.Grouped` whose groups go through the masked protocol, client and
server halves exchanging the very bytes that a network would carry; the sums are the same bits. Of a
simulation, whose clients nobody has to be protected from, both halves run in this process; members
behind a network (`Members`) keep their half to themselves.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError, NoAnswerError, StepRefusedError, WireError
from headstart.federation.grouped import Grouped, check_group
from headstart.federation.promises import promised
from headstart.federation.protocol import (
    Answer,
    Arrays,
    ClientData,
    Federation,
    Step,
    added,
    broadcast_bytes,
    chosen,
    perform,
    step_kind,
)
from headstart.privacy.client import Client
from headstart.privacy.groups import OpenedSums, RoundHistory
from headstart.privacy.keys import Entropy
from headstart.privacy.layout import Layout
from headstart.privacy.refusals import Abort
from headstart.privacy.sensitivity import Noise
from headstart.privacy.server import Server
from headstart.privacy.terms import Policy, Terms
from headstart.privacy.unit_sums import rows_of, without_noise
from headstart.statistics.fixed import FixedSums
from headstart.statistics.tally import Tally
from headstart.statistics.vectors import Vectors
from headstart.statistics.wire import Limits

# Steps whose answers are sums of whole numbers.
WHOLE = ("measure", "pseudo-measure", "counts", "unit-sums", "confusion")
FIXED = ("calibrate", "update", "gradient")  # and of others, which go in fixed point
MASKED = (*WHOLE, *FIXED)
VOID = ("void", "share")  # why a sum did not open after its members had given their shares
Group = tuple[str, ...]
# Who vanishes before answering, of those asked at a stage of a round: (number, stage, asked).
Vanish = Callable[[int, str, Sequence[str]], Collection[str]]
# What those asked at a stage answer, as it comes; who says nothing is absent.
Ask = Callable[[str, Mapping[str, bytes]], Iterable[tuple[str, bytes | WireError]]]


# Terms, members, bytes down, and a statistic of the form that the sum is to have.
Seats = tuple[Terms, Ask, int, Any]


def maskable(statistic: Any) -> Any:
    """A statistic as whole numbers: tallies and updates in fixed point."""
    return FixedSums.of(statistic) if isinstance(statistic, (Tally, Vectors)) else statistic


def in_form(found: Any, form: Any) -> Any:
    """A sum in the form of what its members were asked for."""
    return found.like(form) if isinstance(found, FixedSums) else found


class Members(Protocol):
    """A federation whose clients are members themselves: they keep their own secrets and histories,
    and a stage is a question to each."""

    def blank(self) -> ClientData:
        """A client like theirs, without samples: what it answers has the form of all answers."""
        ...

    def stage(
        self,
        step: Step,
        broadcast: Arrays,
        terms: bytes,
        asked: Mapping[str, bytes],
        enough: int,
    ) -> Iterator[tuple[str, bytes | WireError]]:
        """What each says at a stage, or why it says nothing; `enough`: the fewest it needs."""
        ...


def nobody(number: int, stage: str, asked: Sequence[str]) -> Collection[str]:
    return ()


def task_of(step: Step, broadcast: Arrays) -> bytes:
    """The digest of a question: all members of a sum must have been asked the same."""
    plain = json.dumps([step.name, dict(step.params)], sort_keys=True).encode()
    state = hashlib.sha256(b"headstart secure task 1" + plain)
    for name in sorted(broadcast):
        array = np.ascontiguousarray(broadcast[name])
        state.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        state.update(array.tobytes())
    return state.digest()


def seated(
    clients: Mapping[str, Client],
    vanish: Callable[[str, Sequence[str]], Collection[str]] = lambda stage, asked: (),
) -> Ask:
    """Members in this process."""

    def ask(stage: str, asked: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | WireError]]:
        gone = set(vanish(stage, tuple(asked)))
        for name, question in asked.items():
            if name in gone:
                continue
            try:
                client = clients[name]
                yield name, client.answer(question) if question else client.start()
            except WireError as refusal:
                yield name, refusal

    return ask


class Absent(Exception):
    """Some of those who were planned with are not there; `there` are."""

    def __init__(self, there: Group) -> None:
        self.there = there


def carry(
    server: Server,
    names: Iterable[str],
    ask: Ask,
    sent: Callable[[str, int], object] = lambda name, size: None,
    lost: Callable[[str, str], object] = lambda name, why: None,
    begun: Callable[[Group, Group], object] = lambda asked, there: None,
) -> Any:
    """One round: the sum of the survivors, or `Abort`.

    `sent` is told the bytes of each message up, `lost` who left and why (a stage, or a code),
    `begun` who was asked at first and who is there: it may end the round.
    """
    asked: Mapping[str, bytes] = dict.fromkeys(names, b"")
    while (stage := server.stage) != "done":
        silent = dict.fromkeys(asked)
        for name, answer in ask(stage, asked):
            silent.pop(name, None)
            try:
                if isinstance(answer, WireError):
                    raise answer
                sent(name, len(answer))
                server.receive(name, answer)
            except WireError as refusal:
                lost(name, refusal.code)
        for name in silent:
            lost(name, stage)
        if stage == "advertise":
            begun(tuple(asked), tuple(name for name in asked if name not in server.waiting))
        asked = server.close()
    return server.total


@dataclass(frozen=True, eq=False)
class Question:
    """What a sum is asked for: the step without its noise, and the digest of all of it."""

    step: Step
    broadcast: Arrays
    classes: ArrayLike
    noise: Noise | None
    task: bytes

    @property
    def whole(self) -> Step:
        """The step as members are asked."""
        if self.noise is None:
            return self.step
        params = {**self.step.params, "noise": self.noise.to_plain()}
        return replace(self.step, params=params)


@dataclass(frozen=True)
class Masked:
    """Rounds of `size` clients, each once; one answer a round: the sum, opened by its members.

    `classes` is the list agreed beforehand; a client with another class is an error. Statistics
    must be exact sums; noise that a step asks for is added by the members, in shares. A last group
    too small for the policy joins the one before. Who leaves in mid-round is left out; so is a
    whole group when too few remain. `lost` says who, and why. Of false shares the sum is opened
    without, and `liars` says who gave them; a sum that is impossible makes its group void for ever
    (`sums`: in a file, it outlives this process).
    """

    inner: Federation
    size: int
    classes: ArrayLike
    seed: int = 0
    rounds: int | None = None
    policy: Policy = field(default_factory=Policy)
    vanish: Vanish = nobody  # drop-outs, for tests
    entropy: Callable[[str], Entropy] = lambda name: secrets.token_bytes  # for tests, by client
    known: Mapping[str, bytes] | None = None  # Ed25519 keys by name: then rounds are signed
    samples: int | None = None  # the most of one member; None: as many as sums can have
    told: Callable[[str, Sequence[str]], object] = lambda stage, asked: None
    lost: dict[str, str] = field(default_factory=dict)
    books: dict[str, RoundHistory] = field(default_factory=dict)  # what each client remembers
    sums: OpenedSums = field(default_factory=OpenedSums)  # what the server remembers
    liars: dict[str, list[str]] = field(default_factory=dict)  # and of whose secrets

    def __post_init__(self) -> None:
        check_group(self.size, len(self.inner.clients), self.policy.group)

    @property
    def opened(self) -> list[Group]:
        """The groups of all exact sums so far."""
        return self.sums.opened

    @property
    def clients(self) -> Sequence[str]:
        return self.inner.clients

    def groups(self, names: Sequence[str]) -> list[Group]:
        """Who is asked in each round: groups that were opened, as they were, and of the others
        those of `Grouped`; the last one is never too small."""
        names = chosen(self.clients, names)
        known = [group for group in dict.fromkeys(self.opened) if set(group) <= set(names)]
        spoken = {name for group in known for name in group}
        fresh = [name for name in names if name not in spoken]
        left = None if self.rounds is None else max(0, self.rounds - len(known))
        size = min(self.size, len(self.clients))
        plain = Grouped(self.inner, size, seed=self.seed, rounds=left)
        groups = list(plain.groups(fresh))
        if len(groups) > 1 and len(groups[-1]) < self.policy.group:
            groups[-2:] = [groups[-2] + groups[-1]]
        if known and groups and len(groups[-1]) < self.policy.group:  # who left when theirs opened
            self.lost.update(dict.fromkeys(groups.pop(), "group"))
        return [*known, *groups]

    def answers(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Iterator[Answer]:
        """The sum of each group; a step whose answers masks do not hide is refused."""
        if step.name not in MASKED:
            raise StepRefusedError(
                f"secure: expected a step that masks can hide ({', '.join(MASKED)}), "
                f"got {step.name!r}"
            )
        kind = step_kind(step.name).answer_type(step)
        if not kind.is_sum:
            raise Abort(
                "rows", f"secure sum: {kind.__name__} are rows, not sums; no mask hides them"
            )
        names = self.clients if cohort is None else cohort
        plain, noise = without_noise(step)
        ask = Question(
            plain, broadcast or {}, self._classes(plain), noise, task_of(step, broadcast or {})
        )
        for number, group in enumerate(self.groups(names)):
            self.sums.check(group)  # before anybody is asked
            found = self._round(number, group, ask)
            if found is not None:
                yield found

    def _classes(self, step: Step) -> ArrayLike:
        """Which the sum has a row for."""
        if step.name == "unit-sums":
            return rows_of(step.params)
        return step.params["classes"] if step.name == "confusion" else self.classes

    @property
    def least_survivors(self) -> int:
        """The fewest members whose sum is opened."""
        return min(self.policy.floor(len(group)) for group in self.groups(self.clients))

    def _round(self, number: int, group: Group, question: Question) -> Answer | None:
        """A round of a group, whose members are behind the network or in this process."""
        far = hasattr(self.inner, "stage")
        seat = self._far if far else self._near
        terms, ask, down, form = seat(number, group, question)
        server = Server(terms, earlier=self.opened, least=self.policy.group, known=self.known)
        gone: dict[str, str] = {}
        up = Counter[str]()
        try:
            found = carry(
                server,
                terms.members,
                ask,
                lambda name, size: up.update({name: size}),
                gone.__setitem__,
                functools.partial(self._begun, question) if far else lambda asked, there: None,
            )
            found = in_form(found, form)
            if question.noise is None:
                self._check(question, found, len(server.survivors))
        except Absent as absent:
            self.lost.update(gone)
            return self._round(number, absent.there, question)
        except WireError as refusal:
            self.lost.update(dict.fromkeys(group, refusal.code) | gone)
            if refusal.code in VOID:
                self.sums.add(tuple(server.survivors), void=True)
            return None
        finally:
            self.liars.update(server.liars)
        self.lost.update({name: why for name, why in gone.items() if name not in server.survivors})
        if question.noise is None:
            self.sums.add(tuple(server.survivors))
        return Answer(tuple(server.survivors), found, up.total(), down)

    def _plan(self, names: Iterable[str], layout: Layout, question: Question) -> Terms:
        names = tuple(names)
        return Terms.plan(
            names,
            layout,
            threshold=self.policy.floor(len(names)),
            samples=self.samples and min(self.samples, layout.most_samples // len(names)),
            signed=self.known is not None,
            noise=question.noise,
            task=question.task,
        )

    def _begun(self, question: Question, asked: Group, there: Group) -> None:
        """Plan anew with those who are there; without one of them an opened group is no group."""
        if there == asked or len(there) < self.policy.group:
            return  # of too few, nothing will be opened
        if question.noise is None and any(set(asked) == set(group) for group in self.opened):
            raise Abort("differencing", "group: expected all members of an earlier sum")
        raise Absent(there)

    def _check(self, question: Question, found: Any, members: int) -> None:
        """Hold a sum to what its step promises; where it breaks that, some member lied."""
        try:
            promised(question.step, question.broadcast)(found, Limits(), members)
        except WireError as error:
            raise Abort("void", f"sum of {members} members: {error}") from None

    def _near(self, number: int, group: Group, question: Question) -> Seats:
        """Members in this process, each with its answer to the question."""
        answers = list(self.inner.answers(question.step, question.broadcast, group))
        given = {name: answer.statistic for answer in answers for name in answer.clients}
        if len(given) != len(answers):
            raise DataError("secure: expected an answer of each client, got sums")
        own = {name: maskable(statistic) for name, statistic in given.items()}
        terms = self._plan(own, Layout.of(next(iter(own.values())), question.classes), question)
        members = {
            name: Client(
                name,
                terms,
                statistic,
                policy=self.policy,
                history=self._history(name),
                entropy=self.entropy(name),
            )
            for name, statistic in own.items()
        }
        ask = seated(members, lambda stage, asked: self.vanish(number, stage, asked))
        return terms, ask, sum(answer.down for answer in answers), next(iter(given.values()))

    def _far(self, number: int, group: Group, question: Question) -> Seats:
        """Members who answer for themselves; what is asked gives the form of their answers."""
        inner = cast(Members, self.inner)
        empty = perform(question.step, inner.blank(), question.broadcast)
        terms = self._plan(group, Layout.of(maskable(empty), question.classes), question)
        sent = terms.to_bytes()

        def ask(stage: str, asked: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | WireError]]:
            self.told(stage, tuple(asked))
            # Of those who are not there at the beginning a group needs none: it is planned anew.
            enough = self.policy.group if stage == "advertise" else terms.threshold
            yield from inner.stage(question.whole, question.broadcast, sent, asked, enough)

        every, once = broadcast_bytes(question.step, question.broadcast)
        return terms, ask, len(group) * (every + once + len(sent)), empty

    def _history(self, name: str) -> RoundHistory:
        return self.books.setdefault(name, RoundHistory())

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Answer:
        answers = self.answers(step, broadcast, cohort)
        first = next(answers, None)
        if first is None:
            why = ", ".join(sorted(set(self.lost.values())))
            raise NoAnswerError(f"{step.name}: expected the sum of some group, got none ({why})")
        return added(itertools.chain([first], answers))

    def begin_training(self, name: str) -> None:
        self.inner.begin_training(name)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        return self.inner.snapshot()

    def restore(self, arrays: Arrays) -> None:
        self.inner.restore(arrays)

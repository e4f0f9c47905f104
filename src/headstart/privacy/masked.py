"""Fed3R-Sync with secure sums: groups of clients of which the server can see only the sum.

`Masked` is `federation.grouped.Grouped` whose groups go through the masked protocol, client and
server halves exchanging the very bytes that a network would carry; the sums are the same bits. Both
halves run in this process: it is for simulations, whose clients nobody has to be protected from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError, StepRefusedError, WireError
from headstart.federation.grouped import Grouped, check_group
from headstart.federation.protocol import Answer, Arrays, Federation, Step, added, chosen, step_kind
from headstart.privacy.client import Client
from headstart.privacy.groups import OpenedSums, RoundHistory
from headstart.privacy.layout import Layout
from headstart.privacy.refusals import Abort
from headstart.privacy.sensitivity import Noise
from headstart.privacy.server import Server
from headstart.privacy.terms import Policy, Terms
from headstart.privacy.unit_sums import rows_of, without_noise

# steps whose answers are sums of whole numbers
MASKED = ("measure", "pseudo-measure", "counts", "unit-sums")
VOID = ("void", "share")  # why a sum did not open after its members had given their shares
Group = tuple[str, ...]
# Who vanishes before answering, of those asked at a stage of a round: (number, stage, asked).
Vanish = Callable[[int, str, Sequence[str]], Collection[str]]


def nobody(number: int, stage: str, asked: Sequence[str]) -> Collection[str]:
    return ()


def carry(
    server: Server,
    clients: Mapping[str, Client],
    vanish: Callable[[str, Sequence[str]], Collection[str]] = lambda stage, asked: (),
    sent: Callable[[str, int], object] = lambda name, size: None,
    lost: Callable[[str, str], object] = lambda name, why: None,
) -> Any:
    """One round in this process: the sum of the survivors, or `Abort`.

    `sent` is told the bytes of each message up, `lost` who left and why (a stage, or a code).
    """
    asked: dict[str, bytes] = dict.fromkeys(clients, b"")
    while (stage := server.stage) != "done":
        gone = set(vanish(stage, tuple(asked)))
        for name, question in asked.items():
            if name in gone:
                lost(name, stage)
                continue
            try:
                client = clients[name]
                answer = client.answer(question) if question else client.start()
                sent(name, len(answer))
                server.receive(name, answer)
            except WireError as refusal:
                lost(name, refusal.code)
        asked = server.close()
    return server.total


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
        """Who is asked in each round: the groups of `Grouped`, the last one never too small."""
        plain = Grouped(self.inner, self.size, seed=self.seed, rounds=self.rounds)
        groups = list(plain.groups(chosen(self.clients, names)))
        if len(groups) > 1 and len(groups[-1]) < self.policy.group:
            groups[-2:] = [groups[-2] + groups[-1]]
        return groups

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
        classes = rows_of(step.params) if step.name == "unit-sums" else self.classes
        for number, group in enumerate(self.groups(names)):
            self.sums.check(group)  # before anybody is asked
            answers = list(self.inner.answers(plain, broadcast, group))
            found = self._round(number, answers, classes, noise)
            if found is not None:
                yield found

    @property
    def least_survivors(self) -> int:
        """The fewest members whose sum is opened."""
        return min(self.policy.floor(len(group)) for group in self.groups(self.clients))

    def _round(
        self, number: int, answers: Sequence[Answer], classes: ArrayLike, noise: Noise | None
    ) -> Answer | None:
        own = {name: answer.statistic for answer in answers for name in answer.clients}
        if len(own) != len(answers):
            raise DataError("secure: expected an answer of each client, got sums")
        layout = Layout.of(next(iter(own.values())), classes)
        terms = Terms.plan(own, layout, threshold=self.policy.floor(len(own)), noise=noise)
        server = Server(terms, earlier=self.opened, least=self.policy.group)
        members = {
            name: Client(name, terms, answer, policy=self.policy, history=self._history(name))
            for name, answer in own.items()
        }
        gone: dict[str, str] = {}
        up = Counter[str]()
        try:
            found = carry(
                server,
                members,
                lambda stage, asked: self.vanish(number, stage, asked),
                lambda name, size: up.update({name: size}),
                gone.__setitem__,
            )
        except WireError as refusal:
            self.lost.update(dict.fromkeys(own, refusal.code) | gone)
            if refusal.code in VOID:
                self.sums.add(tuple(server.survivors), void=True)
            return None
        finally:
            self.liars.update(server.liars)
        self.lost.update({name: why for name, why in gone.items() if name not in server.survivors})
        if noise is None:
            self.sums.add(tuple(server.survivors))
        down = sum(answer.down for answer in answers)
        return Answer(tuple(server.survivors), found, up.total(), down)

    def _history(self, name: str) -> RoundHistory:
        return self.books.setdefault(name, RoundHistory())

    def total(
        self, step: Step, broadcast: Arrays | None = None, cohort: Sequence[str] | None = None
    ) -> Answer:
        return added(self.answers(step, broadcast, cohort))

    def begin_training(self, name: str) -> None:
        self.inner.begin_training(name)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        return self.inner.snapshot()

    def restore(self, arrays: Arrays) -> None:
        self.inner.restore(arrays)

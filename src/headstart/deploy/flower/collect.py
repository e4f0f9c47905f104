"""One upload a client, into the ledger: asked as nodes appear, counted as answers come.

Who is in the ledger is not asked again, so that a server that was stopped, or a later run for those
who were late, goes on where the last one ended.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headstart.deploy.admission import UploadRejected
from headstart.deploy.flower.federation import FlowerFederation
from headstart.deploy.flower.messages import Reply
from headstart.deploy.flower.waiting import Waiting
from headstart.deploy.ledger import Ledger, Receipt
from headstart.deploy.nodes import ClientFailure, Registry, online
from headstart.federation.protocol import Step

TRIES = 3  # of a node that Flower could not reach
Heard = Callable[[str, Receipt | ClientFailure], None]


@dataclass
class Collection:
    """The uploads of one run. `heard` is told of every accepted upload and of every failure.

    `expected`: names of nodes that should come, of which one that waits tells who is not there;
    `silent` is told each of those names, and why, when that is news.
    """

    federation: FlowerFederation
    ledger: Ledger
    registry: Registry
    heard: Heard
    wanted: int
    patience: float = 0.0
    expected: Sequence[str] = ()
    silent: Callable[[str, str], None] = lambda client, why: None
    refused: set[str] = field(default_factory=set)  # not asked again in this run
    tries: Counter[str] = field(default_factory=Counter)
    _told: dict[str, str] = field(default_factory=dict, init=False)  # of the silent: why

    def run(self) -> None:
        """Until everybody asked has answered, and the wanted uploads are in; or time is up.

        Once they are in, it waits no longer than `patience` for the rest.
        """
        asked: dict[str, str] = {}
        began, wait = time.monotonic(), Waiting()
        until = began + self.federation.deadline
        while True:
            self._discover()
            asked |= self._ask(set(asked.values()), until - time.monotonic())
            for name, found in self.federation.arrived(asked):
                self._take(name, found)
            now, enough = time.monotonic(), len(self.ledger.members()) >= self.wanted
            if enough:
                until = min(until, now + self.patience)
            if (enough and not asked) or now > until:
                break
            silent, more = self._silent(asked.values())
            if wait(silent, more):
                self._tell_silent(silent)
            time.sleep(self.federation.poll)
        for name in sorted(asked.values()):
            text = f"{name}: no answer in {time.monotonic() - began:.0f} s"
            self._failed(ClientFailure(name, "missing", text))

    def _tell_silent(self, silent: Mapping[str, Sequence[str]]) -> None:
        known = {*self.expected, *self.registry.keys, *self._online}
        for why, names in silent.items():
            for name in names:
                if name in known and self._told.get(name) != why:
                    self._told[name] = why
                    self.silent(name, why)

    def _silent(self, asked: Iterable[str]) -> tuple[dict[str, list[str]], str]:
        """Whose uploads are not in, by what is known of them; and how many are."""
        members = self.ledger.members()
        absent = [
            name
            for name in dict.fromkeys((*self.expected, *self.registry.keys))
            if name not in members and name not in self._online and not self._gone(name)
        ]
        silent = {"asked": sorted(asked), "not online": sorted(absent)}
        lacking = self.wanted - len(members)
        if not any(silent.values()) and lacking > 0:
            others = f"{lacking} more node{'s' * (lacking > 1)}"
            silent["not online"] = [others]
        return silent, f"; {len(members)} of {self.wanted} uploads are in"

    def _discover(self) -> None:
        """Whoever is online now; those who were stay known, though they may not answer."""
        there = [node for node in online(self.federation.grid) if not self._gone(node.name)]
        nodes, strangers = self.registry.known(there)
        self.federation.nodes = {
            **self.federation.nodes,
            **{node.name: node.id for node in nodes},
        }
        self._online = [node.name for node in nodes]
        for failure in strangers:
            if failure.client not in self.refused:
                self._failed(failure)

    def _gone(self, name: str) -> bool:
        """A forgotten client is not asked, and its name is not written down again."""
        return self.ledger.forgotten(name)

    def _ask(self, busy: set[str], left: float) -> dict[str, str]:
        ready = [
            name
            for name in self.ledger.missing(self._online)
            if name not in busy and name not in self.refused and self.tries[name] < TRIES
        ]
        self.tries.update(ready)
        return self.federation.ask(ready, self.step, ttl=max(left, 1.0))

    @property
    def step(self) -> Step:
        return Step("measure", self.ledger.contract.step)

    def _take(self, name: str, found: Reply | ClientFailure) -> None:
        if isinstance(found, ClientFailure):
            self._failed(found)
            return
        try:
            contract = self.ledger.contract
            if not contract.same_features(found.extractor):
                expected, got = (_called(one) for one in (contract.extractor, found.extractor))
                raise UploadRejected("extractor", f"features: expected {expected}, got {got}")
            receipt = self.ledger.accept(name, contract.round, contract.round, found.payload)
        except UploadRejected as refused:
            self.federation.news[name] = {"refused": refused.code, "text": str(refused)}
            self._failed(ClientFailure(name, refused.code, f"{name}: {refused}"))
            return
        self.federation.news[name] = {"receipt": receipt.to_plain()}
        self.heard(name, receipt)

    def _failed(self, failure: ClientFailure) -> None:
        if failure.code != "unreachable":  # which may pass; a refusal does not
            self.refused.add(failure.client)
        self.federation.failures.append(failure)
        self.heard(failure.client, failure)


def tell(federation: FlowerFederation, cohort: Sequence[str]) -> None:
    """News that no other question will carry, to those of the cohort that it is for."""
    for _ in federation.replies(None, cohort=[name for name in cohort if name in federation.news]):
        pass


def due(number: int, last: int) -> bool:
    """Whether to solve after this upload: after each of the first hundred, then every 5% more."""
    return number <= 100 or number >= 1.05 * last


def _called(extractor: Mapping[str, Any] | None) -> str:
    """What made features, as a person recognizes it; a client may have chosen the words."""
    if extractor is None:
        return "features as they are"
    return f"those of {extractor.get('name')!s:.80} (identity {extractor.get('identity')!s:.12}…)"

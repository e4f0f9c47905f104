"""The server of a deployment that sees sums alone: of masked groups, or with noise.

Groups are fixed for as long as the ledger lives: whose sum was opened is asked again as that group
or not at all, by this server's own list and by every member's history. A group's sum is an upload
like any other: admitted, made durable, forgotten as one.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.deploy.admission import UploadRejected
from headstart.deploy.flower.collect import Collection
from headstart.deploy.flower.federation import FlowerFederation
from headstart.deploy.flower.settings import UNITS, ServerSettings
from headstart.deploy.flower.waiting import Waiting
from headstart.deploy.ledger import Ledger
from headstart.deploy.nodes import GROUPS, ClientFailure
from headstart.errors import DataError, HeadstartError
from headstart.federation.protocol import Answer, Federation
from headstart.files import PRIVATE, write_text
from headstart.privacy.budget import Budget
from headstart.privacy.differential import Private
from headstart.privacy.plan import PrivacyPlan

RELEASES, COHORT = "releases", "cohort.json"  # what was released, and of whom
LEAST = 3  # members of a group
# Settings of a release, beside ε.
PROMISED = ("delta", "unit", "trust", "samples", "clip", "colluding", "mean", "residual")
log = logging.getLogger("flwr")
Told = Callable[[str, Sequence[str]], object]


def plan_of(settings: ServerSettings, classes: Sequence[int | str]) -> PrivacyPlan | None:
    """The promise of a run with differential privacy; None where there is none."""
    said = {name: value for name, value in settings.private.items() if value not in ("", None)}
    if not said.get("epsilon"):
        return None
    fields = {*PROMISED, "epsilon"}
    if unknown := set(said) - fields:
        raise HeadstartError(f"run: unknown key 'private.{min(unknown)}'")
    if not classes:
        raise HeadstartError("class-list: expected the agreed classes of a private release")
    if said.get("unit", "sample") not in UNITS:
        raise HeadstartError(f"unit: expected one of {', '.join(UNITS)}, got {said['unit']!r}")
    said["clip"] = said.get("clip") or None
    how = {"delta": 1e-5, "samples": 0, "dimension": settings.dimension}
    return PrivacyPlan(classes=list(classes), **{**how, **said})


def check_secure(settings: ServerSettings, classes: Sequence[int | str], phases: int) -> None:
    """Refuse, before anybody is asked, what masks cannot hide."""
    if not settings.secure:
        return
    if not settings.exact:
        raise HeadstartError("secure: expected exact = true: masks hide whole numbers")
    if not classes:
        raise HeadstartError("class-list: expected the agreed classes of a secure sum")
    if settings.group_size and settings.group_size < LEAST:
        raise HeadstartError(
            f"group-size: expected at least {LEAST} nodes, got {settings.group_size}"
        )
    if phases > 1 or settings.personal:
        raise HeadstartError("secure: expected a head alone, got phases that ask single clients")


def masked(
    federation: FlowerFederation, settings: ServerSettings, ledger: Ledger, told: Told
) -> Any:
    """The federation in masked groups; the members keep their own halves."""
    from headstart.privacy.groups import OpenedSums
    from headstart.privacy.masked import Masked
    from headstart.privacy.terms import MOST_MEMBERS

    there = len(federation.clients)
    if there < LEAST:
        raise DataError(f"secure: expected at least {LEAST} nodes for a sum, got {there}")
    size = min(settings.group_size or MOST_MEMBERS, there)
    contract = ledger.contract
    return Masked(
        federation,
        size,
        list(contract.class_list),
        seed=settings.seed,
        sums=OpenedSums(ledger.path / GROUPS),
        known=read_peers(settings.peers),
        samples=max([contract.samples, *contract.caps.values()]),
        told=told,
    )


def read_peers(path: str) -> Mapping[str, bytes] | None:
    """The public keys by which rounds are signed; None: they are not."""
    if not path:
        return None
    from headstart.privacy.keys import read_keys

    try:
        return read_keys(json.loads(Path(path).expanduser().read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, HeadstartError):
            raise
        raise HeadstartError(f"peers: cannot read {path}") from None


@dataclass
class Gathering(Collection):
    """Waits for nodes, and asks them nothing: who is to be in a sum must be there at its start."""

    sum: Callable[[Sequence[str]], object] = lambda names: None
    there: list[str] = field(default_factory=list, init=False)

    def run(self) -> None:
        """Until the wanted nodes are online, or time is up; then `sum` them."""
        until, wait = time.monotonic() + self.federation.deadline, Waiting()
        while True:
            self._discover()
            members = self.ledger.members()
            self.there = list(self.ledger.missing(self._online))
            there = len(members) + len(self.there)
            if there >= self.wanted or time.monotonic() > until:
                break
            silent, more = self._silent(())
            if wait(silent, more):
                self._tell_silent(silent)
            time.sleep(self.federation.poll)
        self.sum(self.there)

    # -- the sums of groups --------------------------------------------------------------------

    def uploads(self, federation: Any, names: Sequence[str]) -> None:
        """One upload per group; whose group cannot be summed is among the failures."""
        names = self._whole(federation, names)
        if not names:
            return
        for answer in federation.answers(self.step, cohort=names):
            self._accepted(answer)
        self.reported(federation)

    def too_few(self, names: Sequence[str]) -> bool:
        """Whether these late ones are no group; then they are said to wait for others."""
        if len(names) >= LEAST:
            return False
        for name in names:
            text = f"{name}: waits for others who are in no sum yet ({LEAST} make a group)"
            self._failed(ClientFailure(name, "group", text))
        return True

    def _whole(self, federation: Any, names: Sequence[str]) -> list[str]:
        """Without members of void groups, and of opened ones that are not all there."""
        out: dict[str, tuple[str, str]] = {}
        for group in federation.sums.void:
            out |= dict.fromkeys(
                group, ("void", "its group's sum was void: nobody of it is summed")
            )
        for group in federation.opened:
            if not set(group) <= set(names):
                why = f"its sum was opened with {', '.join(group)}, who are not all there"
                out |= dict.fromkeys(group, ("differencing", why))
        for name in names:
            if name in out:
                code, why = out[name]
                self._failed(ClientFailure(name, code, f"{name}: {why}"))
        return [name for name in names if name not in out]

    def _accepted(self, answer: Answer) -> None:
        contract, names = self.ledger.contract, answer.clients
        payload = answer.statistic.to_bytes()
        try:
            receipt = self.ledger.accept(names, contract.round, contract.round, payload)
        except UploadRejected as refused:
            who = ", ".join(names)
            self._failed(ClientFailure(who, refused.code, f"{who}: {refused}"))
            return
        for name in names:
            self.federation.news[name] = {"receipt": receipt.to_plain()}
        self.heard(", ".join(names), receipt)

    def reported(self, federation: Any) -> None:
        """Who left, who lied, and which groups are void, among the failures."""
        said = {failure.client for failure in self.federation.failures}
        for name, why in federation.lost.items():
            if name not in said:
                self._failed(ClientFailure(name, why, f"{name}: not in a sum ({why})"))
        for name, of in federation.liars.items():
            text = f"{name}: gave false shares of the secrets of {', '.join(of)}"
            self._failed(ClientFailure(name, "share", text))


# -- noise -----------------------------------------------------------------------------------------


def private(inner: Federation, plan: PrivacyPlan, ledger: Ledger) -> Private:
    """The federation behind noise; what was charged and released is in the ledger's folder."""
    return Private(inner, plan, Budget(plan.mu, ledger.path / RELEASES))


def kept_cohort(ledger: Ledger) -> tuple[str, ...]:
    """Of whom something was released before; nobody where nothing was charged."""
    path = ledger.path / COHORT
    if not path.exists() or not any((ledger.path / RELEASES).glob("*.json")):
        return ()
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(names)
    except (OSError, ValueError, RecursionError):
        raise HeadstartError(f"{COHORT} in the ledger is damaged; name a new ledger") from None
    return tuple(names)


def keep_cohort(ledger: Ledger, names: Sequence[str]) -> None:
    write_text(ledger.path / COHORT, json.dumps(list(names)), PRIVATE)

"""What a client remembers, so that no differences of sums and no second answers show anybody.

A server that knows Σ over {a,b,c,d} and over {a,b,c} knows d. It may also know {a,b,c}, {d,e,f} and
{a,…,g}, of which every client knows two at most and finds nothing wrong, and g is the difference.
So over one data set a client joins the sums of one group only, whatever is asked: two sums that
were opened have the same members or none in common, and no combination of them weighs the members
of a group differently. Noisy sums are apart: what they show is bounded by their own noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headstart.errors import DataError
from headstart.files import PRIVATE, write_text
from headstart.privacy.refusals import Abort

Group = frozenset[str]


def check_sums(earlier: Iterable[Collection[str]], group: Collection[str], least: int) -> None:
    """Refuse a sum over fewer than `least`, or over some of the members of an earlier one."""
    members = set(group)
    if len(members) < least:
        raise Abort("group", f"group: expected at least {least} members, got {len(members)}")
    for other in map(set, earlier):
        if other & members and other != members:
            raise Abort(
                "differencing",
                f"group: expected the {len(other)} members of an earlier sum over the same data or "
                f"none of them, got {len(members - other)} more and {len(other - members)} less",
            )


@dataclass
class OpenedSums:
    """What a server remembers of the sums it opened over one data set; in a file, if `path` is one.

    `opened`: the members of each. `void`: those of sums that came out impossible, or did not open
    for false shares: somebody lied, nobody knows who, and what was opened may be the others' sum.
    No part of such a group is summed again, nor is the whole.
    """

    path: Path | None = None
    opened: list[tuple[str, ...]] = field(default_factory=list)
    void: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path is None or not self.path.exists():
            return
        try:
            plain = json.loads(self.path.read_text(encoding="utf-8"))
            self.opened = [tuple(sorted(_names(group))) for group in plain["opened"]]
            self.void = [tuple(sorted(_names(group))) for group in plain["void"]]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise DataError(
                f"groups: {self.path} is damaged; what was opened is not known"
            ) from None

    def check(self, group: Collection[str]) -> None:
        """Refuse a group with a member of a void one."""
        members = set(group)
        for other in self.void:
            if found := members & set(other):
                raise Abort(
                    "void",
                    f"group: expected no member of a sum that was void, got {min(found)!r} of one "
                    f"of {len(other)} members",
                )

    def add(self, group: Collection[str], *, void: bool = False) -> None:
        """Remember a sum, durably, before it is used."""
        (self.void if void else self.opened).append(tuple(group))
        self._save()

    def leave(self, gone: Callable[[str], bool]) -> None:
        """Without the groups of those who are forgotten. The others' own histories still say what
        they were in, so nothing can be opened that could not be before."""
        for groups in (self.opened, self.void):
            groups[:] = [group for group in groups if not any(map(gone, group))]
        self._save()

    def _save(self) -> None:
        if self.path is not None:
            plain = {"opened": self.opened, "void": self.void}
            write_text(self.path, json.dumps(plain, indent=1), PRIVATE)


@dataclass
class RoundHistory:
    """What a client remembers of the rounds it joined with one data set; keep it between rounds.

    `rounds`: for each round id the members of the sum its data went into, as far as it was told.
    `asked`: for each round id its stages, with the digest of the question each was answered to; so
    a client restored from an older state knows what has left. Save it before an answer is sent;
    begin a new one for new data.
    """

    rounds: dict[bytes, Group] = field(default_factory=dict)
    asked: dict[bytes, dict[str, str]] = field(default_factory=dict)

    def note(self, round_id: bytes, done: Sequence[str], stage: str, question: bytes) -> None:
        """A stage is answered once, by a client whose answers so far (`done`) are all in here."""
        asked, digest = self.asked.get(round_id, {}), hashlib.sha256(question).hexdigest()
        if asked.get(stage) == digest:
            raise Abort("replay", f"{stage}: it was answered already")
        if stage in asked:
            raise Abort("stories", f"{stage}: another question of it was answered already")
        if list(asked) != list(done):
            want, have = (", ".join(stages) or "none" for stages in (done, asked))
            raise Abort("history", f"history: expected {want} of this round in it, got {have}")
        self.asked[round_id] = {**asked, stage: digest}

    def add(self, round_id: bytes, group: Collection[str], least: int) -> None:
        """My data go into the sum of this group, if it is that of all earlier sums.

        Within a round first those who shared, then those who survived: `note` sees to it that
        neither comes twice.
        """
        earlier = [sums for known, sums in self.rounds.items() if known != round_id]
        check_sums(earlier, group, least)
        self.rounds[round_id] = frozenset(group)

    def to_text(self) -> str:
        rounds = {known.hex(): sorted(names) for known, names in self.rounds.items()}
        asked = {known.hex(): stages for known, stages in self.asked.items()}
        return json.dumps({"rounds": rounds, "asked": asked})

    @classmethod
    def from_text(cls, text: str) -> RoundHistory:
        try:
            plain = json.loads(text)
            return cls(
                {bytes.fromhex(known): _names(group) for known, group in plain["rounds"].items()},
                {bytes.fromhex(known): _stages(asked) for known, asked in plain["asked"].items()},
            )
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise DataError("history: expected the text that RoundHistory.to_text writes") from None


def _names(group: object) -> Group:
    if not isinstance(group, list) or not all(isinstance(name, str) for name in group):
        raise TypeError
    return frozenset(group)


def _stages(asked: object) -> dict[str, str]:
    if not isinstance(asked, dict) or not all(isinstance(one, str) for one in asked.values()):
        raise TypeError
    return asked

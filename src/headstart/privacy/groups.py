"""Which sums may be opened over the same data, so that their differences show nobody.

A server that knows Σ over {a,b,c,d} and over {a,b,c} knows d. Cut the clients into parts: those
that were in exactly the same sums. Whatever a server adds and subtracts weighs the clients of a
part alike, so if no part has fewer than `least` clients, no difference concerns fewer than `least`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from headstart.errors import DataError
from headstart.privacy.refusals import Abort

Group = frozenset[str]


def smallest_part(sums: Iterable[Collection[str]]) -> int:
    """The fewest clients that were in exactly the same sums."""
    seen: dict[str, list[int]] = {}
    for number, group in enumerate(sums):
        for name in group:
            seen.setdefault(name, []).append(number)
    return min(Counter(map(tuple, seen.values())).values(), default=0)


def check_sums(earlier: Iterable[Collection[str]], group: Collection[str], least: int) -> None:
    """Refuse a sum over `group` when earlier ones over the same data leave a part too small."""
    found = smallest_part([*filter(None, earlier), group])
    if found < least:
        raise Abort(
            "differencing",
            f"group: with the earlier sums over the same data it would show {found} "
            f"client{'s' * (found != 1)} alone, expected at least {least} in every difference",
        )


@dataclass
class Book:
    """What a client remembers of the rounds it joined with one data set; keep it between rounds.

    For each round id the members of the sum its data went into, as far as it was told (none while
    its data have not left). Save it before an answer is sent; begin a new one for new data.
    """

    rounds: dict[bytes, Group] = field(default_factory=dict)

    def join(self, round_id: bytes) -> None:
        """A round id is answered once."""
        if round_id in self.rounds:
            raise Abort("replay", "round: expected a new one, got an id that was answered before")
        self.rounds[round_id] = frozenset()

    def add(self, round_id: bytes, group: Collection[str], least: int) -> None:
        """My data go into the sum of this group, if earlier sums allow it."""
        earlier = [sums for known, sums in self.rounds.items() if known != round_id]
        check_sums(earlier, group, least)
        self.rounds[round_id] = frozenset(group)

    def to_text(self) -> str:
        return json.dumps({known.hex(): sorted(names) for known, names in self.rounds.items()})

    @classmethod
    def from_text(cls, text: str) -> Book:
        try:
            plain = json.loads(text)
            return cls({bytes.fromhex(known): _names(group) for known, group in plain.items()})
        except (ValueError, AttributeError, TypeError, RecursionError):
            raise DataError("book: expected the text that Book.to_text writes") from None


def _names(group: object) -> Group:
    if not isinstance(group, list) or not all(isinstance(name, str) for name in group):
        raise TypeError
    return frozenset(group)

"""The terms of a round, the same for all members, and what a client insists on before it joins."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headstart.errors import HeadstartError
from headstart.labels import as_labels
from headstart.privacy import layout as layouts
from headstart.privacy.layout import Layout
from headstart.privacy.refusals import Abort
from headstart.privacy.sensitivity import Noise
from headstart.statistics import wire
from headstart.statistics.wire import Field, Limits, Schema

ROUND = 32  # bytes of a round id
TASK = 32  # bytes of the digest of what is summed
_VERSION = b"headstart secure 3"  # of all messages of a round; 3: terms name what is summed
MOST_MEMBERS = 256  # Shamir's shares cost their square
_MOST_BYTES = 2**24
_SCHEMA: dict[str, Schema] = {
    "secure-terms": {
        "round": Field(("U8",), ("R",)),
        "members": Field(("U8",), ("M",)),  # as labels are: a JSON list, in order
        "threshold": Field(("I64",), ()),
        "samples": Field(("I64",), ()),
        "signed": Field(("I64",), ()),
        "noise": Field(("U8",), ("J",), optional=True),  # JSON
        "task": Field(("U8",), ("K",), optional=True),
        **layouts.SCHEMA,
    }
}


def threshold_for(members: int) -> int:
    """More than two thirds: with signed keys enough against a server that lies (Bonawitz 2017)."""
    return 2 * members // 3 + 1


@dataclass(frozen=True, eq=False)
class Terms:
    """One round: its id, the group as planned, who must stay, what is added, how much of it.

    `samples` caps those of one member, so that no sum of all can overflow. A `signed` round has
    one stage more: members sign their keys and the list of survivors. With `noise` every member
    adds its share of it: so many of them as must be in the sum, less those who may collude, have
    all of it together.
    """

    round: bytes
    members: tuple[str, ...]
    threshold: int
    layout: Layout
    samples: int
    signed: bool = False
    noise: Noise | None = None
    task: bytes = b""

    def __post_init__(self) -> None:
        n = len(self.members)
        if len(self.round) != ROUND:
            raise Abort("terms", f"round: expected {ROUND} bytes, got {len(self.round)}")
        if len(self.task) not in (0, TASK):
            raise Abort("terms", f"task: expected a digest of {TASK} bytes, got {len(self.task)}")
        if not all(isinstance(name, str) for name in self.members):
            raise Abort("terms", "members: expected names")
        if len(set(self.members)) != n:
            raise Abort("duplicate", "members: expected each once")
        if list(self.members) != sorted(self.members) or not 2 <= n <= MOST_MEMBERS:
            raise Abort("terms", f"members: expected 2 to {MOST_MEMBERS} in order, got {n}")
        if not n // 2 < self.threshold <= n:
            raise Abort(
                "terms", f"threshold: expected {n // 2 + 1} to {n} of {n}, got {self.threshold}"
            )
        if not 1 <= self.samples <= self.layout.most_samples // n:
            raise Abort(
                "overflow",
                f"samples: expected 1 to {self.layout.most_samples // n} a member of {n}, so that "
                f"sums stay within 62 bits, got {self.samples}",
            )
        if self.noise is not None:
            self._check_noise(self.noise)

    def _check_noise(self, noise: Noise) -> None:
        noise.check(self.layout)
        if noise.colluding is None or self.honest < 1:
            raise Abort(
                "terms",
                f"colluding: expected fewer than the threshold of {self.threshold}, "
                f"got {noise.colluding}",
            )
        noise.check_room(len(self.members) / self.honest)

    @property
    def honest(self) -> int:
        """Members of a sum who keep their shares of the noise: together they have all of it."""
        return self.threshold - ((self.noise and self.noise.colluding) or 0)

    @classmethod
    def plan(
        cls,
        members: Iterable[str],
        layout: Layout,
        *,
        threshold: int | None = None,
        samples: int | None = None,
        signed: bool = False,
        round_id: bytes | None = None,
        noise: Noise | None = None,
        task: bytes = b"",
    ) -> Terms:
        """A new round of these members; what is not said is chosen: see `threshold_for`."""
        names = tuple(sorted(members))
        most = layout.most_samples // max(1, len(names))
        return cls(
            round_id or secrets.token_bytes(ROUND),
            names,
            threshold_for(len(names)) if threshold is None else threshold,
            layout,
            most if samples is None else samples,
            signed,
            noise,
            task,
        )

    @cached_property
    def digest(self) -> bytes:
        """The hash that every message of the round carries and every key is bound to."""
        return hashlib.sha256(_VERSION + self.to_bytes()).digest()

    def names(self, ids: Iterable[int]) -> list[str]:
        return [self.members[at] for at in ids]

    def to_bytes(self) -> bytes:
        return wire.encode(
            "secure-terms",
            {
                "round": np.frombuffer(self.round, np.uint8),
                "members": wire.pack_labels(as_labels(list(self.members), "members")),
                "threshold": np.array(self.threshold, np.int64),
                "samples": np.array(self.samples, np.int64),
                "signed": np.array(self.signed, np.int64),
                **self.layout.to_arrays(),
                **({"noise": np.frombuffer(self.noise.to_text(), np.uint8)} if self.noise else {}),
                **({"task": np.frombuffer(self.task, np.uint8)} if self.task else {}),
            },
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Terms:
        _, arrays = wire.decode(data, _SCHEMA, Limits(bytes=_MOST_BYTES))
        members = wire.unpack_labels(arrays["members"], unique=False)
        if int(arrays["signed"]) not in (0, 1):
            raise Abort("terms", f"signed: expected 0 or 1, got {int(arrays['signed'])}")
        return cls(
            arrays["round"].tobytes(),
            tuple(members.tolist()),
            int(arrays["threshold"]),
            Layout.from_arrays(arrays),
            int(arrays["samples"]),
            bool(arrays["signed"]),
            Noise.from_text(arrays["noise"].tobytes()) if "noise" in arrays else None,
            arrays["task"].tobytes() if "task" in arrays else b"",
        )


@dataclass(frozen=True)
class Policy:
    """What a client insists on, whatever a server proposes.

    `group`: the fewest members whose sum it joins, at every stage and in every difference of sums.
    `share`: a threshold must be above this part of the group; never below one half, where a server
    could have both secrets of a client from two halves of the group.
    `mu`: the most that one unit of its data may move a sum by, in deviations of the noise; None: it
    joins sums without noise as well. `apart`: whether sums with noise may be of any groups; not
    unless a budget bounds them all together, for draws average, and hardly any noise is none.
    """

    group: int = 3
    share: float = 2 / 3
    mu: float | None = None
    apart: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.group, int) or self.group < 2:
            raise HeadstartError(f"group: expected at least 2 members, got {self.group!r}")
        if not isinstance(self.share, (int, float)) or not 0.5 <= self.share < 1:
            raise HeadstartError(f"share: expected a number from 0.5 to 1, got {self.share!r}")
        if self.mu is not None and not (isinstance(self.mu, (int, float)) and self.mu > 0):
            raise HeadstartError(f"mu: expected a number above 0, got {self.mu!r}")

    def floor(self, members: int) -> int:
        """The lowest threshold for so many members."""
        return math.floor(self.share * members + 1e-9) + 1

    def check(self, terms: Terms) -> None:
        n = len(terms.members)
        self.check_group(n)
        if terms.threshold < self.floor(n):
            raise Abort(
                "threshold",
                f"threshold: expected at least {self.floor(n)} of {n} members, "
                f"got {terms.threshold}",
            )
        found = terms.noise.unit_mu if terms.noise else math.inf
        if self.mu is not None and found > self.mu * (1 + 1e-9):
            raise Abort("noise", f"noise: expected μ of at most {self.mu:g}, got {found:g}")

    def check_group(self, members: int) -> None:
        if members < self.group:
            raise Abort("group", f"group: expected at least {self.group} members, got {members}")

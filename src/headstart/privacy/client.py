"""A client's half of a secure sum: bytes in, bytes out, one stage after the other.

In the manner of Bonawitz et al. 2017: y_u = x_u + PRG(b_u) + Σ_{u<v} PRG(s_uv) − Σ_{u>v} PRG(s_uv)
(mod 2^64). Peers hold shares of b_u and of the key behind s_uv, and give a server one or the other,
never both: b_u when u's vector came, the key when it did not. On anything else the client aborts,
for good, and forgets its secrets.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.privacy import keys as crypto
from headstart.privacy import shares
from headstart.privacy.groups import RoundHistory
from headstart.privacy.keys import Entropy, Identity, Keys
from headstart.privacy.masks import add_mask
from headstart.privacy.messages import (
    FROM_SERVER,
    STAGES,
    decode,
    encode,
    id_array,
    ids_of,
    rows_by_id,
    stage_of,
    table,
)
from headstart.privacy.refusals import Abort
from headstart.privacy.terms import Policy, Terms
from headstart.statistics.wire import Arrays

Array = NDArray[Any]
Ids = tuple[int, ...]


class Client:
    """One member in one round; refuses to be made when the terms are not to its policy.

    `start` gives its first message, `answer` the one to each message of the server. `history` is
    what it remembers between rounds, `identity` what it signs with (then it joins signed rounds
    only). `entropy` is there for tests.
    """

    def __init__(
        self,
        name: str,
        terms: Terms,
        statistic: Any,
        *,
        policy: Policy | None = None,
        history: RoundHistory | None = None,
        identity: Identity | None = None,
        entropy: Entropy = secrets.token_bytes,
    ) -> None:
        self._terms, self._policy = terms, policy or Policy()
        self._history = RoundHistory() if history is None else history
        self._identity = identity
        self._check_terms(name, statistic)
        self._me = terms.members.index(name)
        self._statistic = statistic
        self._stages = [s for s in STAGES if terms.signed or s != "confirm"]
        self._done = 0  # stages answered
        self._aborted = False
        self._entropy = entropy
        self._keys: Keys | None = Keys.draw(entropy)
        self._roster: dict[int, bytes] = {}  # U1: everybody's public keys
        self._held: dict[int, bytes] = {}  # shares of U2, mine among them
        self._context = b""
        self._survivors: Ids = ()  # U3, once confirmed

    def _check_terms(self, name: str, statistic: Any) -> None:
        terms = self._terms
        if name not in terms.members:
            raise Abort("self", f"members: expected {name!r} among them")
        self._policy.check(terms)
        if terms.signed != (self._identity is not None):
            expected = "a signed round" if self._identity else "a round without signatures"
            raise Abort("signature", f"terms: this client expects {expected}")
        terms.layout.check(statistic)
        if statistic.samples > terms.samples:
            raise Abort(
                "overflow",
                f"samples: expected at most {terms.samples} a member, got {statistic.samples}",
            )

    @property
    def aborted(self) -> bool:
        return self._aborted

    def to_arrays(self) -> dict[str, Array]:
        """What a client that ends between two messages must keep until the next, with its history.

        It is secret. Save both before the answer is sent, the history first, and never bring back
        an older copy of both: what left since would leave again (see docs/secure.md).
        """
        keys = self._keys
        return {
            "done": np.array([self._done, self._aborted], np.int64),
            "secrets": table([keys.seal, keys.mask, keys.seed] if keys else [], 32),
            "roster": id_array(tuple(self._roster)),
            "public": table(list(self._roster.values()), crypto.PUBLIC),
            "holds": id_array(tuple(self._held)),
            "held": table(list(self._held.values()), 2 * shares.SIZE),
            "survivors": id_array(self._survivors),
        }

    @classmethod
    def from_arrays(
        cls, arrays: Arrays, name: str, terms: Terms, statistic: Any, **how: Any
    ) -> Client:
        """The client again, made with the same arguments as before, its history among them."""
        client = cls(name, terms, statistic, **how)
        client._done, client._aborted = int(arrays["done"][0]), bool(arrays["done"][1])
        secret = [row.tobytes() for row in arrays["secrets"]]
        client._keys = Keys(*secret) if secret else None
        client._roster = rows_by_id(arrays["roster"], arrays["public"])
        client._context = crypto.context_of(terms.digest, client._roster)
        client._held = rows_by_id(arrays["holds"], arrays["held"])
        client._survivors = tuple(arrays["survivors"].tolist())
        return client

    # -- the stages ----------------------------------------------------------------------------

    def start(self) -> bytes:
        """Advertise: my public keys of this round."""
        return self._guarded(lambda: self._advertise(self._turn("advertise", b"")))

    def answer(self, message: bytes) -> bytes:
        """The answer to the server's next message; `WireError` when refused, and then for good."""

        def work() -> bytes:
            kind, arrays = decode(message, FROM_SERVER, self._terms)
            stage = stage_of(kind)
            return getattr(self, f"_{stage}")(arrays, self._turn(stage, message))

        return self._guarded(work)

    def _guarded(self, work: Callable[[], bytes]) -> bytes:
        if self._aborted:
            raise Abort("over", "client: it has aborted this round")
        try:
            answer = work()
        except BaseException:  # whatever it was, no second answer to this stage
            self._aborted = True
            self._forget()
            raise
        if self._done == len(self._stages):
            self._forget()
        return answer

    def _forget(self) -> None:
        self._keys, self._held, self._statistic = None, {}, None

    def _turn(self, stage: str, question: bytes) -> Keys:
        """The secrets, if it is this stage's turn, by this client's count and by its history."""
        if stage not in self._stages:
            raise Abort("order", f"{stage}: not a stage of this round")
        if self._stages.index(stage) > self._done:
            raise Abort("order", f"{stage}: expected {self._stages[self._done]} first")
        self._history.note(self._terms.round, self._stages[: self._done], stage, question)
        if self._keys is None:
            raise Abort("over", f"{stage}: this client has forgotten its secrets")
        self._done += 1
        return self._keys

    def _advertise(self, keys: Keys) -> bytes:
        public = keys.public(self._terms.digest)
        arrays = {"public": np.frombuffer(public, np.uint8)}
        if self._identity:
            text = crypto.keys_text(self._terms.digest, self._me, public)
            arrays["signature"] = np.frombuffer(self._identity.sign(text), np.uint8)
        return encode("secure-advertise", self._terms, arrays)

    def _share(self, arrays: Arrays, keys: Keys) -> bytes:
        """Shares of both secrets for everybody on the roster, each sealed."""
        self._roster = self._read_roster(arrays, keys)
        self._context = crypto.context_of(self._terms.digest, self._roster)
        t, n = self._terms.threshold, len(self._terms.members)
        pieces = [
            a + b
            for a, b in zip(
                shares.split(keys.mask, t, n), shares.split(keys.seed, t, n), strict=True
            )
        ]
        self._held = {self._me: pieces[self._me]}
        others = [at for at in sorted(self._roster) if at != self._me]
        sealed = [
            crypto.seal(keys.seal, self._roster[v][:32], self._context, self._me, v, pieces[v])
            for v in others
        ]
        answer = {"ids": id_array(others), "sealed": table(sealed, crypto.SEALED)}
        return encode("secure-share", self._terms, answer)

    def _read_roster(self, arrays: Arrays, keys: Keys) -> dict[int, bytes]:
        members = range(len(self._terms.members))
        ids = ids_of(arrays["ids"], members, "roster")
        self._check_size(ids)
        roster = rows_by_id(arrays["ids"], arrays["public"])
        if self._me not in roster:
            raise Abort("self", "roster: expected this client on it")
        if roster[self._me] != keys.public(self._terms.digest):
            raise Abort("keys", "roster: this client's keys were altered")
        parts = [public[i : i + 32] for public in roster.values() for i in (0, 32, 64)]
        if len(set(parts)) != len(parts):
            raise Abort("duplicate", "roster: expected different keys of everybody")
        if self._identity:
            self._check_roster(self._identity, arrays, roster)
        return roster

    def _check_roster(self, identity: Identity, arrays: Arrays, roster: dict[int, bytes]) -> None:
        if "signatures" not in arrays:
            raise Abort("signature", "roster: expected signed keys")
        for at, signature in rows_by_id(arrays["ids"], arrays["signatures"]).items():
            if at != self._me:
                text = crypto.keys_text(self._terms.digest, at, roster[at])
                identity.verify(self._terms.members[at], signature, text)

    def _mask(self, arrays: Arrays, keys: Keys) -> bytes:
        """My vector under the masks that I share with everybody who shared, and my own."""
        senders = ids_of(arrays["ids"], self._roster, "delivery")
        if self._me in senders:
            raise Abort("self", "delivery: shares from this client to itself")
        self._check_size((*senders, self._me))
        for at, sealed in rows_by_id(arrays["ids"], arrays["sealed"]).items():
            peer = self._roster[at][:32]
            self._held[at] = crypto.unseal(keys.seal, peer, self._context, at, self._me, sealed)
        self._enter(self._held)
        vector = self._vector()
        add_mask(vector, crypto.self_key(keys.seed, self._context, self._me))
        for at in senders:
            peer = self._roster[at][32:64]
            key = crypto.pair_key(keys.mask, peer, self._context, self._me, at)
            add_mask(vector, key, 1 if self._me < at else -1)
        return encode("secure-mask", self._terms, {"vector": vector.view(np.int64)})

    def _vector(self) -> NDArray[np.uint64]:
        """My numbers; with this member's share of the noise, drawn here and nowhere kept."""
        terms, layout = self._terms, self._terms.layout
        if terms.noise is None:
            return layout.flatten(self._statistic)
        numbers = terms.noise.vector(layout, self._statistic)
        noisy = terms.noise.added(layout, numbers, self._entropy, shares=terms.honest)
        return noisy.view(np.uint64)

    def _confirm(self, arrays: Arrays, _: Keys) -> bytes:
        """Sign the survivors, so that a server cannot tell members of different ones."""
        survivors = ids_of(arrays["ids"], self._held, "survivors")
        self._check_survivors(survivors)
        self._survivors = survivors
        text = crypto.survivors_text(self._context, survivors)
        assert self._identity is not None  # signed rounds have one
        signature = np.frombuffer(self._identity.sign(text), np.uint8)
        return encode("secure-confirm", self._terms, {"signature": signature})

    def _unmask(self, arrays: Arrays, _: Keys) -> bytes:
        """The seed's share of whoever survived, the key's share of whoever dropped out."""
        survivors, dropped = self._read_lists(arrays)
        if self._identity:
            self._check_confirmed(self._identity, arrays, survivors)
        self._enter(survivors)
        return encode(
            "secure-unmask",
            self._terms,
            {
                "survivors": id_array(survivors),
                "dropped": id_array(dropped),
                "seeds": table([self._held[at][32:] for at in survivors], shares.SIZE),
                "keys": table([self._held[at][:32] for at in dropped], shares.SIZE),
            },
        )

    def _read_lists(self, arrays: Arrays) -> tuple[Ids, Ids]:
        survivors = ids_of(arrays["survivors"], self._held, "survivors")
        dropped = ids_of(arrays["dropped"], self._held, "dropped")
        if set(survivors) & set(dropped):
            raise Abort("overlap", "request: both kinds of shares asked for one member")
        self._check_survivors(survivors)
        if len(survivors) + len(dropped) != len(self._held):
            raise Abort("cover", "request: a member is neither among survivors nor dropped")
        return survivors, dropped

    def _check_survivors(self, survivors: Ids) -> None:
        if self._me not in survivors:
            raise Abort("self", "survivors: this client is listed as dropped")
        self._check_size(survivors)

    def _check_confirmed(self, identity: Identity, arrays: Arrays, survivors: Ids) -> None:
        """As many as the threshold have signed the very list that I was told."""
        if survivors != self._survivors:
            raise Abort("changed", "survivors: other ones than were confirmed")
        if "ids" not in arrays or "signatures" not in arrays:
            raise Abort("signature", "request: expected signatures of the survivors")
        signers = ids_of(arrays["ids"], survivors, "signers")
        if len(signers) < self._terms.threshold:
            raise Abort("few", f"signers: expected {self._terms.threshold}, got {len(signers)}")
        text = crypto.survivors_text(self._context, survivors)
        for at, signature in rows_by_id(arrays["ids"], arrays["signatures"]).items():
            if at != self._me:
                identity.verify(self._terms.members[at], signature, text)

    def _check_size(self, ids: Collection[int]) -> None:
        self._policy.check_group(len(ids))
        if len(ids) < self._terms.threshold:
            raise Abort(
                "few", f"members: expected at least {self._terms.threshold}, got {len(ids)}"
            )

    def _enter(self, ids: Collection[int]) -> None:
        """Into the history, if the sums I was in before allow it; of a budget noise protects."""
        if self._terms.noise is not None and self._policy.apart:
            return
        self._history.add(self._terms.round, self._terms.names(ids), self._policy.group)

"""The server's half of a secure sum: it collects a stage, closes it, and asks the next.

Masked vectors are added as they come; when enough members have answered the last stage, the masks
are taken away from their sum. What does not open exactly is refused, never guessed. Where a share
is false, the secret is put together from others and the sender is named; a sum that no samples have
cannot be blamed on anybody, and is void.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from headstart.errors import WireError
from headstart.privacy import keys as crypto
from headstart.privacy import shares
from headstart.privacy.groups import check_sums
from headstart.privacy.layout import Layout
from headstart.privacy.masks import add_mask
from headstart.privacy.messages import (
    FROM_CLIENT,
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
from headstart.privacy.terms import Terms
from headstart.statistics.wire import Arrays

Ids = tuple[int, ...]


class Server:
    """One round. `receive` takes a member's message (refusing one harms no other), `close` ends
    the stage: it gives what each member left is to be sent, nothing after the last, and `Abort`
    when too few are left.

    `earlier`: the members of sums already opened over the same data; a sum that has some of them
    and not all, or fewer than `least` members, is not opened. `known`: Ed25519 keys by name, to
    refuse false signatures before they make everybody abort.
    """

    def __init__(
        self,
        terms: Terms,
        *,
        earlier: Sequence[Collection[str]] = (),
        least: int = 3,
        known: Mapping[str, bytes] | None = None,
    ) -> None:
        if terms.noise is None:
            check_sums(earlier, terms.members, least)
        self._terms, self._earlier, self._least, self._known = terms, earlier, least, known
        self._stages = [s for s in STAGES if terms.signed or s != "confirm"]
        self._at = 0
        self._left: Ids = tuple(range(len(terms.members)))  # asked in this stage
        self._came: dict[int, Arrays] = {}  # its answers
        self._roster: dict[int, bytes] = {}
        self._sharing: Ids = ()
        self._survivors: Ids = ()
        self._context = b""
        self._sum = np.zeros(0, np.uint64)
        self._total: Any = None
        self._false: dict[int, list[int]] = {}  # who gave false shares, and of whom

    @property
    def stage(self) -> str:
        """The stage whose answers are awaited; "done" after the last."""
        return self._stages[self._at] if self._at < len(self._stages) else "done"

    @property
    def waiting(self) -> list[str]:
        """Whose answers are still missing."""
        return self._terms.names(at for at in self._left if at not in self._came)

    @property
    def survivors(self) -> list[str]:
        """Whose vectors are in the sum."""
        return self._terms.names(self._survivors)

    @property
    def liars(self) -> dict[str, list[str]]:
        """Who gave a share that is none, and of whose secrets.

        Of a single secret its owner may have lied instead, and sealed a false share for a peer.
        """
        names = self._terms.members
        return {names[at]: self._terms.names(of) for at, of in sorted(self._false.items())}

    @property
    def total(self) -> Any:
        """The statistic of the survivors together."""
        if self._total is None:
            raise Abort("order", f"total: the round is at {self.stage}")
        return self._total

    def receive(self, name: str, message: bytes) -> None:
        """One member's answer to this stage; `WireError` when it is refused."""
        if name not in self._terms.members or self._index(name) not in self._left:
            raise Abort("unknown", f"client: {name!r} is not (or no longer) in this round")
        at = self._index(name)
        if at in self._came:
            raise Abort("replay", f"{self.stage}: {name!r} has answered already")
        kind, arrays = decode(message, FROM_CLIENT, self._terms)
        if stage_of(kind) != self.stage:
            early = stage_of(kind) in self._stages[self._at :]
            code = "order" if early else "replay"
            raise Abort(code, f"message: expected {self.stage}, got {stage_of(kind)}")
        getattr(self, f"_take_{self.stage}")(at, arrays)

    def close(self) -> dict[str, bytes]:
        """End the stage: what to send to whom next."""
        came, least = tuple(sorted(self._came)), self._terms.threshold
        if self.stage == "done":
            raise Abort("over", "round: it has ended")
        try:
            if len(came) < least:
                raise Abort(
                    "few", f"{self.stage}: expected at least {least} members, got {len(came)}"
                )
            answers = getattr(self, f"_close_{self.stage}")(came)
        except BaseException:
            self._at = len(self._stages)  # nothing of an aborted round is taken up again
            raise
        self._at, self._left, self._came = self._at + 1, came, {}
        return {self._terms.members[at]: answer for at, answer in answers.items()}

    def _index(self, name: str) -> int:
        return self._terms.members.index(name)

    # -- advertise -----------------------------------------------------------------------------

    def _take_advertise(self, at: int, arrays: Arrays) -> None:
        public = arrays["public"].tobytes()
        if self._terms.signed != ("signature" in arrays):
            raise Abort("signature", "advertise: signed keys in signed rounds, and only there")
        if self._terms.signed and self._known is not None:
            text = crypto.keys_text(self._terms.digest, at, public)
            name = self._terms.members[at]
            crypto.check_signature(self._known, name, arrays["signature"].tobytes(), text)
        self._came[at] = arrays

    def _close_advertise(self, came: Ids) -> dict[int, bytes]:
        self._roster = {at: self._came[at]["public"].tobytes() for at in came}
        self._context = crypto.context_of(self._terms.digest, self._roster)
        public = table([self._roster[at] for at in came], crypto.PUBLIC)
        arrays = {"ids": id_array(came), "public": public}
        if self._terms.signed:
            signatures = [self._came[at]["signature"].tobytes() for at in came]
            arrays["signatures"] = table(signatures, crypto.SIGNATURE)
        return dict.fromkeys(came, encode("secure-ask-share", self._terms, arrays))

    # -- share ---------------------------------------------------------------------------------

    def _take_share(self, at: int, arrays: Arrays) -> None:
        others = set(self._roster) - {at}
        if set(ids_of(arrays["ids"], others, "shares")) != others:
            raise Abort("cover", "shares: expected one for everybody else on the roster")
        self._came[at] = arrays

    def _close_share(self, came: Ids) -> dict[int, bytes]:
        self._sharing = came
        self._sum = np.zeros(self._terms.layout.size, np.uint64)
        sealed = {u: rows_by_id(self._came[u]["ids"], self._came[u]["sealed"]) for u in came}
        answers = {}
        for v in came:
            others = [u for u in came if u != v]
            rows = table([sealed[u][v] for u in others], crypto.SEALED)
            arrays = {"ids": id_array(others), "sealed": rows}
            answers[v] = encode("secure-ask-mask", self._terms, arrays)
        return answers

    # -- mask ----------------------------------------------------------------------------------

    def _take_mask(self, at: int, arrays: Arrays) -> None:
        vector = arrays["vector"]
        if len(vector) != self._terms.layout.size:
            raise Abort(
                "layout", f"vector: expected {self._terms.layout.size} numbers, got {len(vector)}"
            )
        self._sum += vector.view(np.uint64)
        self._came[at] = {}

    def _close_mask(self, came: Ids) -> dict[int, bytes]:
        if self._terms.noise is None:
            check_sums(self._earlier, self._terms.names(came), self._least)
        self._survivors = came
        if self._terms.signed:
            arrays = {"ids": id_array(came)}
            return dict.fromkeys(came, encode("secure-ask-confirm", self._terms, arrays))
        return self._ask_unmask(came, {})

    @property
    def _dropped(self) -> Ids:
        return tuple(at for at in self._sharing if at not in self._survivors)

    def _ask_unmask(self, to: Ids, proof: Arrays) -> dict[int, bytes]:
        lists = {"survivors": id_array(self._survivors), "dropped": id_array(self._dropped)}
        return dict.fromkeys(to, encode("secure-ask-unmask", self._terms, {**lists, **proof}))

    # -- confirm (signed rounds) ---------------------------------------------------------------

    def _take_confirm(self, at: int, arrays: Arrays) -> None:
        if self._known is not None:
            text = crypto.survivors_text(self._context, self._survivors)
            name = self._terms.members[at]
            crypto.check_signature(self._known, name, arrays["signature"].tobytes(), text)
        self._came[at] = arrays

    def _close_confirm(self, came: Ids) -> dict[int, bytes]:
        signatures = [self._came[at]["signature"].tobytes() for at in came]
        proof = {"ids": id_array(came), "signatures": table(signatures, crypto.SIGNATURE)}
        return self._ask_unmask(came, proof)

    # -- unmask --------------------------------------------------------------------------------

    def _take_unmask(self, at: int, arrays: Arrays) -> None:
        given = [tuple(arrays[name].tolist()) for name in ("survivors", "dropped")]
        if given != [self._survivors, self._dropped]:
            raise Abort("cover", "unmask: expected shares of those asked for, in order")
        self._came[at] = arrays

    def _close_unmask(self, came: Ids) -> dict[int, bytes]:
        for place, at in enumerate(self._survivors):
            seed = self._combined("seeds", place, at, self._seed_of(self._roster[at][64:]))
            add_mask(self._sum, crypto.self_key(seed, self._context, at), -1)
        for place, at in enumerate(self._dropped):
            key = self._combined("keys", place, at, _key_of(self._roster[at][32:64]))
            self._take_away_pairs(at, key)
        self._total = self._opened(self._terms.layout)
        return {}

    def _opened(self, layout: Layout) -> Any:
        """The statistic of the sum; one with noise is checked for its range alone."""
        noise, members = self._terms.noise, len(self._survivors)
        if noise is None:
            try:
                return layout.restore(self._sum, self._terms.samples * members)
            except WireError as error:
                raise Abort(
                    "void", f"sum of {members} members: no samples have it ({error.code})"
                ) from None
        return noise.restored(layout, self._sum.view(np.int64), members / self._terms.honest)

    def _seed_of(self, committed: bytes) -> Callable[[bytes], bool]:
        return lambda seed: crypto.commitment(seed, self._terms.digest) == committed

    def _combined(
        self, name: str, place: int, owner: int, genuine: Callable[[bytes], bool]
    ) -> bytes:
        """A member's secret, of as many shares as it takes that are true."""
        given = {at: arrays[name][place].tobytes() for at, arrays in self._came.items()}
        least = self._terms.threshold
        trusted = {at: share for at, share in given.items() if at not in self._false}
        found = shares.opened(trusted, least, genuine) or shares.opened(given, least, genuine)
        if found is None:
            member = self._terms.members[owner]
            raise Abort("share", f"shares of {member!r}: they do not give its secret")
        secret, false = found
        for at in false:
            self._false.setdefault(at, []).append(owner)
        return secret

    def _take_away_pairs(self, gone: int, key: bytes) -> None:
        """What the survivors have added for a pair whose other half never came."""
        for at in self._survivors:
            pair = crypto.pair_key(key, self._roster[at][32:64], self._context, gone, at)
            add_mask(self._sum, pair, -1 if at < gone else 1)


def _key_of(announced: bytes) -> Callable[[bytes], bool]:
    return lambda key: crypto.public_of(key) == announced

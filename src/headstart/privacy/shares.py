"""Shamir's shares of a 32-byte secret: any `threshold` give it back, fewer say nothing of it.

The library takes 16 bytes, so the halves are shared apart. It cannot tell wrong or too few shares:
they give another secret, silently. So whoever combines them holds what comes out against the public
key or the commitment of its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, islice

import headstart.privacy.secure  # noqa: F401  # names the extra that is missing

# isort: split
from Crypto.Protocol.SecretSharing import Shamir

from headstart.privacy.refusals import Abort

SIZE = 32
MOST_TRIES = 2000  # subsets of the shares, when some are false: milliseconds each


def split(secret: bytes, threshold: int, members: int) -> list[bytes]:
    """A share for each member, in their order."""
    low, high = (
        Shamir.split(threshold, members, half, ssss=False) for half in (secret[:16], secret[16:])
    )
    return [a + b for (_, a), (_, b) in zip(low, high, strict=True)]


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret of these shares (member → share), of which `threshold` are used."""
    if len(shares) < threshold:
        raise Abort("few", f"shares: expected at least {threshold}, got {len(shares)}")
    used = sorted(shares.items())[:threshold]
    low = Shamir.combine([(at + 1, share[:16]) for at, share in used], ssss=False)
    high = Shamir.combine([(at + 1, share[16:]) for at, share in used], ssss=False)
    return low + high


def opened(
    shares: Mapping[int, bytes], threshold: int, genuine: Callable[[bytes], bool]
) -> tuple[bytes, frozenset[int]] | None:
    """The secret that is `genuine`, and whose shares are not of it; None: no subset gives it.

    First all shares are taken for true, then one is left out, then two, and so on: with m shares
    of which f are false the secret is found if m − f ≥ threshold.
    """
    for left in islice(_subsets(shares, threshold), MOST_TRIES):
        secret = combine(left, threshold)
        if genuine(secret):
            used = dict(sorted(left.items())[:threshold])
            return secret, frozenset(_false(shares, used, secret, threshold))
    return None


def _subsets(shares: Mapping[int, bytes], threshold: int) -> Iterator[dict[int, bytes]]:
    """Without none of the shares, without each of them, without each two, …"""
    for out in range(len(shares) - threshold + 1):
        for gone in combinations(sorted(shares), out):
            yield {at: share for at, share in shares.items() if at not in gone}


def _false(
    shares: Mapping[int, bytes], used: Mapping[int, bytes], secret: bytes, threshold: int
) -> Iterator[int]:
    """A share lies on the polynomial of the others if it gives the same secret in the place of one.

    (threshold − 1 true points and the value at 0 fix the polynomial.)
    """
    others = list(used)[1:]
    for at, share in shares.items():
        if at not in used:
            instead = {**{other: used[other] for other in others}, at: share}
            if combine(instead, threshold) != secret:
                yield at

"""Shamir's shares of a 32-byte secret: any `threshold` give it back, fewer say nothing of it.

The library takes 16 bytes, so the halves are shared apart. It cannot tell wrong or too few shares:
they give another secret, silently. So whoever combines them holds what comes out against the public
key or the commitment of its owner.
"""

from __future__ import annotations

from collections.abc import Mapping

import headstart.privacy.secure  # noqa: F401  # names the extra that is missing

# isort: split
from Crypto.Protocol.SecretSharing import Shamir

from headstart.privacy.refusals import Abort

SIZE = 32


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

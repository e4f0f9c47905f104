"""Keys of one round: X25519 agreement, HKDF-SHA256, sealed shares, and optional signatures.

Every derived key is bound to the context (a hash of the terms, so of the round id, and of all
public keys) and to what it is for: another round or another roster gives other keys.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import headstart.privacy.secure  # noqa: F401  # names the extra that is missing

# isort: split
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from headstart.errors import HeadstartError
from headstart.privacy.refusals import Abort

Entropy = Callable[[int], bytes]
PUBLIC = 96  # bytes a member announces: two X25519 keys and the commitment to its seed
SEALED = 92  # a nonce of 12 bytes, two shares of 32, and the tag
SIGNATURE = 64
_NONCE = 12


@dataclass(frozen=True, repr=False)
class Keys:
    """A client's secrets of one round: for sealing, for pairwise masks, for its own mask."""

    seal: bytes
    mask: bytes
    seed: bytes

    @classmethod
    def draw(cls, entropy: Entropy) -> Keys:
        return cls(entropy(32), entropy(32), entropy(32))

    def public(self, terms: bytes) -> bytes:
        """What all may see: two public keys, and a commitment to the seed."""
        return public_of(self.seal) + public_of(self.mask) + commitment(self.seed, terms)


def public_of(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def commitment(seed: bytes, terms: bytes) -> bytes:
    return hashlib.sha256(b"headstart secure seed 1" + terms + seed).digest()


def context_of(terms: bytes, roster: Mapping[int, bytes]) -> bytes:
    """The hash that binds keys to the round and to all public keys."""
    state = hashlib.sha256(b"headstart secure context 1" + terms)
    for at in sorted(roster):
        state.update(at.to_bytes(4, "little") + roster[at])
    return state.digest()


def derive(secret: bytes, context: bytes, purpose: bytes, one: int, two: int) -> bytes:
    """A 256-bit key for one purpose between two members."""
    about = b"headstart secure 1 " + purpose + one.to_bytes(4, "little") + two.to_bytes(4, "little")
    return HKDF(algorithm=SHA256(), length=32, salt=context, info=about).derive(secret)


def self_key(seed: bytes, context: bytes, at: int) -> bytes:
    """Of the mask that a member alone knows."""
    return derive(seed, context, b"self", at, at)


def pair_key(private: bytes, public: bytes, context: bytes, mine: int, theirs: int) -> bytes:
    """Of the mask that two members share: the lower adds it, the higher takes it away."""
    agreed = _agree(private, public)
    return derive(agreed, context, b"pair", min(mine, theirs), max(mine, theirs))


def seal(
    private: bytes, public: bytes, context: bytes, sender: int, receiver: int, plain: bytes
) -> bytes:
    """Encrypted and authenticated from one member to another, through a server that cannot read.

    The nonce is a keyed hash of the text: other shares, another nonce, whatever was restored.
    """
    agreed = _agree(private, public)
    key = derive(agreed, context, b"seal", sender, receiver)
    hashing = derive(agreed, context, b"nonce", sender, receiver)
    nonce = hmac.digest(hashing, plain, "sha256")[:_NONCE]
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plain, context)


def unseal(
    private: bytes, public: bytes, context: bytes, sender: int, receiver: int, sealed: bytes
) -> bytes:
    key = derive(_agree(private, public), context, b"seal", sender, receiver)
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
    except InvalidTag:
        raise Abort("sealed", f"shares of member {sender}: damaged or altered on the way") from None


def _agree(private: bytes, public: bytes) -> bytes:
    try:
        there = X25519PublicKey.from_public_bytes(public)
        return X25519PrivateKey.from_private_bytes(private).exchange(there)
    except ValueError:  # a point of small order: the secret would be known to all
        raise Abort("keys", "public key: expected an X25519 key, got a degenerate one") from None


@dataclass(frozen=True, repr=False)
class Identity:
    """A client's long-lived signing key, and those of its peers, which it has not from the server.

    `known`: name → 32 bytes of an Ed25519 public key.
    """

    private: bytes
    known: Mapping[str, bytes]

    def __post_init__(self) -> None:
        for name, key in [("private", self.private), *self.known.items()]:
            if not isinstance(key, bytes) or len(key) != 32:
                raise HeadstartError(f"identity: expected 32 bytes as the key of {name!r}")

    def sign(self, message: bytes) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.private).sign(message)

    def verify(self, name: str, signature: bytes, message: bytes) -> None:
        check_signature(self.known, name, signature, message)


def read_identity(private: Path, peers: Path) -> Identity:
    """A key of 32 bytes and a JSON object of names and public keys in hexadecimal digits."""
    try:
        plain = json.loads(peers.read_text(encoding="utf-8"))
        return Identity(private.read_bytes(), read_keys(plain))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, HeadstartError):
            raise
        raise HeadstartError(
            f"identity: expected a key in {private.name} and names with public keys in "
            f"{peers.name}; one of them is missing or damaged"
        ) from None


def read_keys(plain: object) -> dict[str, bytes]:
    """Public keys by name; `HeadstartError` where it is something else."""
    try:
        found = {str(name): bytes.fromhex(key) for name, key in plain.items()}  # type: ignore[attr-defined]
        if not all(len(key) == 32 for key in found.values()):
            raise ValueError
    except (AttributeError, TypeError, ValueError):
        raise HeadstartError("peers: expected names with 64 hexadecimal digits each") from None
    return found


def verifying_key(private: bytes) -> bytes:
    """The public half, to be given to peers by another way than the server."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def check_signature(
    known: Mapping[str, bytes], name: str, signature: bytes, message: bytes
) -> None:
    if name not in known:
        raise Abort("signature", f"signature: no key is known for {name!r}")
    try:
        Ed25519PublicKey.from_public_bytes(known[name]).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise Abort("signature", f"signature: not {name!r}'s own") from None


def keys_text(terms: bytes, at: int, public: bytes) -> bytes:
    """What a member signs of its keys."""
    return b"headstart secure keys 1" + terms + at.to_bytes(4, "little") + public


def survivors_text(context: bytes, survivors: tuple[int, ...]) -> bytes:
    """What a member signs of the survivors it was told."""
    return (
        b"headstart secure survivors 1"
        + context
        + b"".join(at.to_bytes(4, "little") for at in survivors)
    )

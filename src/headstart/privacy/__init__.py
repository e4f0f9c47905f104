"""Secure sums: a server learns what a group of clients adds up to, and nothing else of any of them.

docs/secure.md says what that protects against and what not. Needs `cryptography` (X25519, HKDF,
ChaCha20, Ed25519) and `pycryptodome` (Shamir's shares).
"""

from headstart.optional import check

check("secure")

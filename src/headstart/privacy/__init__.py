"""What a server can learn of a client: secure sums hide it in a group, noise bounds it.

docs/secure.md and docs/differential.md say what each protects against and what not. Secure sums
need `cryptography` (X25519, HKDF, ChaCha20, Ed25519) and `pycryptodome` (Shamir's shares); noise
needs nothing.
"""

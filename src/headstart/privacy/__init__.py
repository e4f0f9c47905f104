"""Secure sums: a server learns what a group of clients adds up to, and nothing else of any of them.

docs/secure.md says what that protects against and what not. Needs `cryptography` (X25519, HKDF,
ChaCha20, Ed25519) and `pycryptodome` (Shamir's shares).
"""

from importlib.util import find_spec

from headstart.errors import HeadstartError

for _module, _package in (("cryptography", "cryptography"), ("Crypto", "pycryptodome")):
    if find_spec(_module) is None:
        raise HeadstartError(
            f'{_package} is needed here and not installed: pip install "headstart[secure]"'
        )

"""Names of clients: one spelling each, and no two that read alike.

A name is kept in Unicode's composed form (NFC), so that é is é however it was typed. Two names that
a reader would take for one, for they differ in case alone, in width, or by letters of another
alphabet that look the same, cannot both be in a federation: who reads a list of clients, or asks
for one to be forgotten, must not meet the wrong one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_LIMIT = 256
# Letters of other alphabets that a reader takes for Latin ones, in lower case.
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕһӏԁԛԝвкмнтαοενρτυχκιѵɡ",
    "aeopcyxijshldqwbkmhtaoevptuxkivg",
)


def is_name(value: object) -> bool:
    """Whether this can be a client's name: printable text, neither empty nor too long."""
    return isinstance(value, str) and 0 < len(value) <= _LIMIT and value.isprintable()


def normalized(name: str) -> str:
    """The one spelling of a name."""
    return unicodedata.normalize("NFC", name)


def read_alike(names: Sequence[str]) -> tuple[str, str] | None:
    """Two of these names that a reader would take for one, if there are any."""
    seen: dict[str, str] = {}
    for name in names:
        read = skeleton(name)
        if read in seen:
            return seen[read], name
        seen[read] = name
    return None


def skeleton(name: str) -> str:
    """What a reader sees: without case, accents' spelling, width and alphabet."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return folded.translate(_LOOKALIKES)

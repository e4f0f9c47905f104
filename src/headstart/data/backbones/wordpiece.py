"""From a sentence to token ids: BERT's uncased words, then their longest known pieces.

Written out here because a tokenizer's library would bring a model hub's client with it. Unlike the
libraries, "[SEP]" in a sentence is three ordinary tokens: no text can pose as a special one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data import checks
from headstart.errors import DataError

PAD, UNKNOWN, BEGIN, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
_LONGEST = 100  # letters of a word; longer ones are unknown
_ASCII_SIGNS = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")  # some are no punctuation to Unicode
_IDEOGRAPHS = (  # each is a word by itself
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


@dataclass(frozen=True)
class Reading:
    """How sentences are cut: at most `length` tokens, the first and the last included."""

    length: int = 256

    def __post_init__(self) -> None:
        checks.count("length", self.length)
        if self.length < 3:
            raise DataError(
                f"length: expected at least 3 (a token and two marks), got {self.length}"
            )

    def settings(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class WordPieces:
    """A vocabulary at work; the ids of a sentence are followed by zeros up to the full length."""

    vocabulary: dict[str, int]
    reading: Reading

    @classmethod
    def load(cls, path: Path, reading: Reading) -> WordPieces:
        """A vocabulary with one piece per line, whose number is the id."""
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: expected a vocabulary in UTF-8: {error}") from error
        vocabulary = {line: number for number, line in enumerate(lines) if line}
        absent = [name for name in (PAD, UNKNOWN, BEGIN, END) if name not in vocabulary]
        if absent or vocabulary[PAD]:
            raise DataError(
                f"{path}: expected one piece per line, {PAD} the first, with {UNKNOWN}, {BEGIN}, "
                f"{END}; got {len(vocabulary)} pieces, "
                f"without {', '.join(absent) or f'{PAD} first'}"
            )
        return cls(vocabulary, reading)

    def settings(self) -> dict[str, Any]:
        return self.reading.settings()

    def __call__(self, sentence: str) -> NDArray[np.int32]:
        most = self.reading.length - 2
        pieces: list[int] = []
        for word in split_words(sentence):
            pieces += self._pieces(word)
            if len(pieces) >= most:
                break
        if not pieces:
            raise DataError(f"sentence: expected words, got {sentence[:40]!r}")
        ids = [self.vocabulary[BEGIN], *pieces[:most], self.vocabulary[END]]
        return np.array(ids + [0] * (self.reading.length - len(ids)), np.int32)

    def _pieces(self, word: str) -> list[int]:
        """Greedy: the longest known beginning, again and again; a rest makes all of it unknown."""
        pieces: list[int] = []
        start, end = 0, len(word)
        while start < len(word) <= _LONGEST:
            piece = ("##" if start else "") + word[start:end]
            if piece in self.vocabulary:
                pieces.append(self.vocabulary[piece])
                start, end = end, len(word)
            elif end > start + 1:
                end -= 1
            else:
                break
        return pieces if start == len(word) else [self.vocabulary[UNKNOWN]]


def split_words(sentence: str) -> Iterator[str]:
    """Words and single signs: no accents, no capitals, no control characters."""
    apart = "".join(map(_spaced, sentence))
    plain = (c for c in unicodedata.normalize("NFD", apart) if unicodedata.category(c) != "Mn")
    # letter by letter: Python's lower() of a text knows Greek's final sigma, the vocabulary not
    word = ""
    for letter in "".join(c.lower() for c in plain):
        if letter.isspace() or _is_sign(letter):
            if word:
                yield word
            if not letter.isspace():
                yield letter
            word = ""
        else:
            word += letter
    if word:
        yield word


def _spaced(letter: str) -> str:
    if letter in "\t\n\r":
        return " "
    if letter == "\ufffd" or unicodedata.category(letter) in ("Cc", "Cf", "Co", "Cs"):
        return ""
    if any(low <= ord(letter) <= high for low, high in _IDEOGRAPHS):
        return f" {letter} "
    return letter


def _is_sign(letter: str) -> bool:
    return letter in _ASCII_SIGNS or unicodedata.category(letter).startswith("P")

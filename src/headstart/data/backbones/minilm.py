"""MiniLM (Wang et al. 2020): BERT's encoder in NumPy, its output averaged and of unit length.

A sentence runs alone and at its own length: there is no padding to mask and nothing of another
sentence to meet. Letters: T tokens, d numbers per token, h heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from headstart.errors import DataError
from headstart.optional import require

Floats: TypeAlias = NDArray[np.float32]
_TINY = np.float32(1e-12)  # added to variances, as in training


@dataclass(frozen=True)
class Size:
    """What the weights must fit: layers, heads, d, the width between, and the longest sentence."""

    layers: int = 6
    heads: int = 12
    dimension: int = 384
    inner: int = 1536
    positions: int = 512

    def shapes(self, vocabulary: int) -> dict[str, tuple[int, ...]]:
        """The name and shape of every tensor that is used."""
        d = self.dimension
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.word_embeddings.weight": (vocabulary, d),
            "embeddings.position_embeddings.weight": (self.positions, d),
            "embeddings.token_type_embeddings.weight": (2, d),
        }
        maps = {
            **{f"attention.self.{name}": (d, d) for name in ("query", "key", "value")},
            "attention.output.dense": (d, d),
            "intermediate.dense": (self.inner, d),
            "output.dense": (d, self.inner),
        }
        norms = ["embeddings.LayerNorm"]
        for layer in range(self.layers):
            prefix = f"encoder.layer.{layer}."
            norms += [f"{prefix}{name}.LayerNorm" for name in ("attention.output", "output")]
            for name, shape in maps.items():
                shapes[f"{prefix}{name}.weight"] = shape
                shapes[f"{prefix}{name}.bias"] = shape[:1]
        for name in norms:
            shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (d,)
        return shapes


@dataclass(frozen=True, eq=False)
class Encoder:
    """Token ids (T,) ↦ features (d,) of unit length."""

    tensors: Mapping[str, Floats] = field(repr=False)
    size: Size

    @classmethod
    def load(cls, path: Path, vocabulary: int, size: Size) -> Encoder:
        """The weights of a safetensors file, every tensor of the expected shape."""
        return cls(_tensors(path, size.shapes(vocabulary)), size)

    def __call__(self, ids: NDArray[np.integer[Any]]) -> Floats:
        x = self._embed(ids)
        for layer in range(self.size.layers):
            x = self._layer(f"encoder.layer.{layer}.", x)
        mean = x.mean(axis=0)
        return np.asarray(mean / np.linalg.norm(mean), np.float32)

    def _embed(self, ids: NDArray[np.integer[Any]]) -> Floats:
        """Word, place and kind; a sentence by itself is of the first kind."""
        kinds = self.tensors["embeddings.token_type_embeddings.weight"]
        places = self.tensors["embeddings.position_embeddings.weight"]
        embeddings = self.tensors["embeddings.word_embeddings.weight"]
        return self._norm("embeddings.", embeddings[ids] + places[: len(ids)] + kinds[0])

    def _layer(self, at: str, x: Floats) -> Floats:
        """x ← norm(x + attention(x)), then x ← norm(x + W₂ gelu(W₁ x))."""
        mixed = self._map(f"{at}attention.output.dense", self._attend(f"{at}attention.self.", x))
        x = self._norm(f"{at}attention.output.", x + mixed)
        wide = _gelu(self._map(f"{at}intermediate.dense", x))
        return self._norm(f"{at}output.", x + self._map(f"{at}output.dense", wide))

    def _attend(self, at: str, x: Floats) -> Floats:
        """softmax(QKᵀ/√(d/h)) V, head by head."""

        def heads(name: str) -> Floats:
            return self._map(at + name, x).reshape(len(x), self.size.heads, -1).transpose(1, 0, 2)

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(query.shape[2]))
        scores = np.exp(scores - scores.max(axis=2, keepdims=True))
        scores /= scores.sum(axis=2, keepdims=True)
        return (scores @ value).transpose(1, 0, 2).reshape(x.shape)

    def _map(self, name: str, x: Floats) -> Floats:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def _norm(self, at: str, x: Floats) -> Floats:
        centred = x - x.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + _TINY)
        scale, shift = (self.tensors[f"{at}LayerNorm.{name}"] for name in ("weight", "bias"))
        return centred / deviation * scale + shift


def _gelu(x: Floats) -> Floats:
    """x·Φ(x), exactly and not by its approximation with tanh."""
    half = np.float32(0.5)
    return np.asarray(half * x * (1 + scipy.special.erf(x * np.sqrt(half))), np.float32)


def _tensors(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Floats]:
    library = require("safetensors")
    try:
        with library.safe_open(path, framework="numpy") as file:
            held = set(file.keys())
            absent = next((name for name in shapes if name not in held), None)
            if absent is not None:
                raise DataError(f"{path}: expected a tensor {absent!r}, got none of that name")
            tensors = {name: np.asarray(file.get_tensor(name)) for name in shapes}
    except (library.SafetensorError, OSError) as error:
        raise DataError(f"{path}: expected a safetensors file: {error}") from error
    for name, shape in shapes.items():
        if tensors[name].shape != shape or tensors[name].dtype.kind != "f":
            raise DataError(
                f"{path}: {name!r}: expected floating point of shape {shape}, "
                f"got {tensors[name].dtype} of shape {tensors[name].shape}"
            )
    return {name: tensor.astype(np.float32, copy=False) for name, tensor in tensors.items()}

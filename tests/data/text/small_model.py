"""A model of sentences that is small enough to write."""

import csv
import io

import numpy as np
import pytest

from headstart.data.backbones.minilm import Size

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]"),
    *("card", "my", "lost", "is", "where", "?", ".", "σ", "##s", "##ing", "pay", "中", "[", "]"),
]


SMALL = Size(layers=2, heads=2, dimension=8, inner=16, positions=16)
LENGTH = 12
SENTENCES = ("Where is my card?", "lost", "My card. Is paying cards lost?", "pay my card .")


def tensors(seed=0, **changes):
    rng = np.random.default_rng(seed)
    shapes = {**SMALL.shapes(len(VOCABULARY)), **changes}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write_model(folder, **held):
    """A random network of the published form, small; what a folder of one's own holds."""
    save = pytest.importorskip("safetensors.numpy").save_file
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    save(held.get("tensors") or tensors(), folder / "model.safetensors")
    return folder


def store(path, rows, header=("text", "label", "client")):
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def ids(pieces, sentence):
    return [int(number) for number in pieces(sentence) if number]

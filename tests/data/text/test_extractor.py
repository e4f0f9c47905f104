"""The extractor of sentences: features depend on the sentence alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data.backbones import text as backbone
from headstart.data.backbones import text_extractor
from headstart.data.backbones.wordpiece import Reading, WordPieces
from headstart.errors import DataError

from .small_model import LENGTH, SENTENCES, SMALL, write_model


@given(
    order=st.permutations(range(len(SENTENCES))),
    start=st.integers(0, 3),
    repeat=st.integers(1, 3),
    workers=st.sampled_from([1, 3]),
)
@settings(deadline=None, max_examples=25)
def test_features_do_not_depend_on_the_batch(model_of_this_module, order, start, repeat, workers):
    """The same bits alone, in any company, at any place, with any number of threads."""
    one = model_of_this_module
    alone = np.concatenate([one.embed([sentence]) for sentence in SENTENCES])
    chosen = (list(order) * repeat)[start:]
    together = replace(one, workers=workers).embed([SENTENCES[i] for i in chosen])
    np.testing.assert_array_equal(together, alone[chosen])


@pytest.fixture(scope="module")
def model_of_this_module(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("model"))
    pieces = WordPieces.load(folder / "vocab.txt", Reading(LENGTH))
    return backbone.TextExtractor("tiny", SMALL, pieces, 1.0, "", folder / "model.safetensors")


def test_features_have_unit_length_within_the_bound(tiny):
    found = tiny.embed(list(SENTENCES))
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert tiny.bound == 1.0
    assert np.abs(found).max() <= tiny.bound


def test_a_row_of_zeros_is_no_sentence(tiny):
    rows = np.stack([np.zeros(LENGTH, np.int32), tiny.preprocess("lost")])
    found = tiny(rows)
    assert not found[0].any()
    np.testing.assert_array_equal(found[1:], tiny.embed(["lost"]))
    assert tiny.embed([]).shape == (0, SMALL.dimension)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.zeros((2, LENGTH)), "ids: expected an array of integers, got float64"),
        (np.zeros((2, 5), int), r"ids: expected shape \(n, 12\), got \(2, 5\)"),
        (np.full((2, LENGTH), 99), "ids: expected 0 to 17, got 99 to 99"),
    ],
)
def test_wrong_ids(tiny, wrong, said):
    with pytest.raises(DataError, match=said):
        tiny(wrong)


def test_a_single_string_is_not_a_list(tiny):
    with pytest.raises(DataError, match="sentences: expected a list of them, got a single one"):
        tiny.embed("lost")


def test_names_and_workers_are_checked():
    with pytest.raises(DataError, match=r"expected one of all_minilm_l6_v2 for .*, got 'resnet18'"):
        text_extractor("resnet18")
    with pytest.raises(DataError, match="workers: expected a positive integer, got 0"):
        text_extractor(workers=0)

"""Words and pieces: any text is tokens, or an error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data.backbones.wordpiece import Reading, WordPieces, split_words
from headstart.errors import DataError

from .small_model import LENGTH, VOCABULARY, ids


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Where is my card?", "where is my card ?"),
        ("  WHERE\tis\nmy\r\ncärd ", "where is my card"),
        ("a\x00b\u200bc\ufffd", "abc"),
        ("don't $5.00", "don ' t $ 5 . 00"),
        ("中文 text", "中 文 text"),
        ("ΣΑΣ İ", "σασ i"),
        ("[SEP] «x»", "[ sep ] « x »"),
        ("\x07 \u200b", ""),
    ],
)
def test_words(sentence, expected):
    assert list(split_words(sentence)) == expected.split()


def test_pieces_are_the_longest_known_ones(tiny):
    pieces = tiny.preprocess
    known = {name: number for number, name in enumerate(VOCABULARY)}
    assert ids(pieces, "cards paying") == [
        known[piece] for piece in ("[CLS]", "card", "##s", "pay", "##ing", "[SEP]")
    ]
    assert ids(pieces, "cardboard card") == [known[p] for p in ("[CLS]", "[UNK]", "card", "[SEP]")]
    assert ids(pieces, "s" * 101) == [known[p] for p in ("[CLS]", "[UNK]", "[SEP]")]
    assert known["[PAD]"] == 0
    assert ids(pieces, "[PAD]") == [known[p] for p in ("[CLS]", "[", "[UNK]", "]", "[SEP]")]


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=200)
def test_any_text_is_tokens_or_an_error(sentence):
    pieces = WordPieces({piece: i for i, piece in enumerate(VOCABULARY)}, Reading(LENGTH))
    if not list(split_words(sentence)):
        with pytest.raises(DataError, match="sentence: expected words, got"):
            pieces(sentence)
        return
    found = pieces(sentence)
    count = np.count_nonzero(found)
    assert found.shape == (LENGTH,)
    assert 3 <= count <= LENGTH
    assert found[0] == VOCABULARY.index("[CLS]")
    assert found[count - 1] == VOCABULARY.index("[SEP]")
    assert not found[count:].any()  # zeros only after the end: the count is the length


def test_a_long_sentence_is_cut_and_still_ends(tiny):
    long, cut = tiny.preprocess("card " * 50), tiny.preprocess("card " * (LENGTH - 2))
    np.testing.assert_array_equal(long, cut)
    assert long[-1] == VOCABULARY.index("[SEP]")


@pytest.mark.parametrize(
    ("text", "said"), [("a\nb", "without \\[PAD\\], "), ("x\n[PAD]\n[UNK]\n[CLS]\n[SEP]", "first")]
)
def test_a_wrong_vocabulary(tmp_path, text, said):
    (tmp_path / "vocab.txt").write_text(text)
    with pytest.raises(DataError, match=f"vocab.txt: expected one piece per line.*{said}"):
        WordPieces.load(tmp_path / "vocab.txt", Reading())


def test_a_length_that_holds_no_token():
    with pytest.raises(DataError, match=r"length: expected at least 3 .*, got 2"):
        Reading(2)

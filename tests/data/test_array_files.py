"""Features from NPZ and Parquet, and every bad file is one clear line."""

import sys

import numpy as np
import pytest

from headstart.data.datasets import load
from headstart.data.table import Columns
from headstart.errors import HeadstartError

from .pets import CLIENTS, SPLIT, X, Y, check, refuse


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

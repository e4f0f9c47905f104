"""Datasets: sources that are unknown, parts and subsets, and mistakes that are named."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data.datasets import Dataset, load
from headstart.errors import DataError

from .pets import CLIENTS, SPLIT, X, Y, refuse, store


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

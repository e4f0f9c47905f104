"""Features from folders of clients and of classes, and what else lies there."""

import os

import numpy as np
import pytest

from headstart.data.datasets import load
from headstart.errors import SkippedWarning

from .pets import refuse, store


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

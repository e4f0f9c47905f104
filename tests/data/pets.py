"""Four samples of cats and dogs, and refusals of files that hold no such thing."""

import numpy as np
import pytest

from headstart.data.datasets import load
from headstart.data.table import Columns
from headstart.errors import DataError

X = np.array([[0.5, 1.0], [2.0, -3.0], [4.0, 1e-3], [7.0, 8.0]])
Y = ["cat", "dog", "cat", "dog"]
CLIENTS = ["a", "a", "b", "b"]
SPLIT = ["train", "train", "train", "test"]


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


def store(root, where, values):
    path = root / where
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.asarray(values))

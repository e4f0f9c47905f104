"""The scikit-learn estimator: its conventions, and that parts merge into the whole."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import check_estimator

import headstart as hs
from headstart.estimator import HeadClassifier


@pytest.fixture(scope="module")
def digits():
    z, y = load_digits(return_X_y=True)
    return z / 16, y


@pytest.mark.parametrize(
    "head", [None, hs.FedNCM(), hs.LDA(), hs.Fed3R(ridge=1.0, bias=True)], ids=str
)
def test_it_follows_every_convention_scikit_learn_checks(head):
    results = check_estimator(HeadClassifier(head), on_skip=None, on_fail=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 30


def test_parts_merge_into_the_whole_bit_for_bit(digits):
    z, y = digits
    whole = HeadClassifier(exact=True).fit(z, y)
    left = HeadClassifier(exact=True).fit(z[:300], y[:300]).partial_fit(z[300:700], y[300:700])
    right = HeadClassifier(exact=True).fit(z[700:], y[700:])
    merged = left.merge(right)
    assert merged.total_.digest() == whole.total_.digest()
    assert (merged.predict(z) == whole.predict(z)).all()
    assert merged.score(z, y) > 0.9


@pytest.mark.parametrize("kind", [float, bool, str, object])
def test_labels_of_any_kind_come_back_as_they_were(digits, kind):
    z, y = digits
    chosen = np.isin(y, (0, 1))
    labels = y[chosen].astype(kind) if kind is not object else y[chosen].astype(str).astype(object)
    model = HeadClassifier().fit(z[chosen], labels)
    assert model.predict(z[chosen]).dtype == model.classes_.dtype
    assert np.mean(model.predict(z[chosen]) == labels) > 0.95


def test_merging_different_heads_is_refused(digits):
    z, y = digits
    one, other = HeadClassifier(hs.Fed3R()).fit(z, y), HeadClassifier(hs.LDA()).fit(z, y)
    with pytest.raises(hs.HeadstartError, match="merge"):
        one.merge(other)

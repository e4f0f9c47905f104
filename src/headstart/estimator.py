"""The same in scikit-learn's conventions: fit, partial_fit, predict, and merge across machines."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from headstart.errors import HeadstartError
from headstart.heads.fed3r import Fed3R
from headstart.heads.linear import LinearHead


class HeadClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A closed-form head as a scikit-learn classifier.

    `partial_fit` adds samples, `merge` adds another fitted classifier's samples: in any order, on
    any machine, the result is that of `fit` on all of them.

    Parameters: `head` a closed-form head (default: Fed3R with λ by GCV), `exact` and `bound` as in
    its `measure`.
    """

    labels_: dict[int | str, Any]
    total_: Any
    model_: LinearHead
    classes_: NDArray[Any]

    def __init__(self, head: Any = None, exact: bool = False, bound: float = 16.0) -> None:
        self.head = head
        self.exact = exact
        self.bound = bound

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget everything, then learn from these samples."""
        for name in ("total_", "model_", "labels_", "classes_"):
            self.__dict__.pop(name, None)
        return self._add(X, y, reset=True)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn from these samples too. Classes may come as they like; `classes` is not needed."""
        return self._add(X, y, reset=not hasattr(self, "total_"))

    def merge(self, other: HeadClassifier) -> Self:
        """Learn all that another fitted classifier has learned."""
        check_is_fitted(self, "total_")
        check_is_fitted(other, "total_")
        if self._head() != other._head():
            raise HeadstartError(f"merge: expected {self._head()}, got {other._head()}")
        self.labels_ = {**self.labels_, **other.labels_}
        return self._solve(self.total_ + other.total_)

    def _head(self) -> Any:
        return Fed3R(ridge="gcv") if self.head is None else self.head

    def _add(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> Self:
        z, labels = validate_data(self, X, y, dtype=np.float64, reset=reset)
        check_classification_targets(labels)
        keys, originals = _keys(labels)
        part = self._head().measure(z, keys, exact=self.exact, bound=self.bound)
        self.labels_ = {**getattr(self, "labels_", {}), **originals}
        return self._solve(part if reset else self.total_ + part)

    def _solve(self, total: Any) -> Self:
        self.total_ = total
        self.model_ = self._head().solve(total)
        self.classes_ = np.array([self.labels_[key] for key in self.model_.classes.tolist()])
        order = np.argsort(self.classes_, kind="stable")
        self.classes_, self.order_ = self.classes_[order], order
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores, one column per class (for two classes: how much the second is ahead)."""
        check_is_fitted(self, "model_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores = self.model_.scores(X)[:, self.order_]
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(int)]
        return self.classes_[np.argmax(scores, axis=1)]


def _keys(y: NDArray[Any]) -> tuple[NDArray[Any], dict[int | str, Any]]:
    """Labels a statistic can carry, and what each stands for (floats and booleans as text)."""
    if y.dtype.kind in "iu":
        keys: NDArray[Any] = y.astype(np.int64)
    elif y.dtype.kind in "UO" and all(isinstance(item, str) for item in y.tolist()):
        keys = y.astype(np.str_)
    else:
        keys = np.array([repr(item) for item in y.tolist()], dtype=np.str_)
    originals = dict(zip(keys.tolist(), y, strict=True))
    return keys, originals

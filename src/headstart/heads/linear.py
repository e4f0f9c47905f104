"""The head: a linear classifier on features, with what a client does to make it its own.

OLL (Only Local Labels; Fanì et al. 2025) is `restrict`: keep the rows of one's own classes. Its
soft form is Bayes' rule, `with_prior`: score(c) + T·log p_k(c), T the calibrated temperature.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headstart.errors import DataError, HeadstartError, WireError
from headstart.files import write_bytes
from headstart.heads.features import RandomFeatures
from headstart.heads.leverage import Leverage
from headstart.labels import Labels, as_labels, same_kind
from headstart.statistics import wire
from headstart.statistics.wire import CLASSES, Field, Limits, Schema

Array = NDArray[np.float64]
TEMPERATURES = np.logspace(-5, 4, 46)
_SCHEMA: dict[str, Schema] = {
    "linear-head": {
        "weights": Field(("F64",), ("C", "d")),
        "bias": Field(("F64",), ("C",)),
        "prior": Field(("F64",), ("C",), optional=True),
        "classes": CLASSES,
        "about": Field(("U8",), ("T",)),
    }
}


@dataclass(frozen=True, eq=False)
class LinearHead:
    """scores = φ(z)·Wᵀ + b, one row of `weights` per class."""

    weights: Array
    bias: Array
    classes: Labels
    feature_map: RandomFeatures | None = None
    prior: Array | None = None  # class frequencies the scores already carry; None: none
    temperature: float | None = None  # softmax(scores / T); None until calibrated
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def dimension(self) -> int:
        """Of the features the weights take (after the feature map, if there is one)."""
        return int(self.weights.shape[1])

    def scores(self, features: ArrayLike) -> Array:
        """Return a row per sample, a column per class; features that are no finite matrix of the
        head's dimension are refused."""
        try:
            z = np.atleast_2d(np.asarray(features))
        except ValueError:
            raise DataError("features: expected rows of one length") from None
        if z.ndim != 2 or z.dtype.kind not in "fiub":
            raise DataError(f"features: expected a matrix of numbers, got shape {z.shape}")
        if not np.isfinite(z).all():
            raise DataError("features: expected finite numbers, got NaN or infinity")
        mapped = self.feature_map(z) if self.feature_map else z
        if mapped.shape[1] != self.weights.shape[1]:
            raise DataError(
                f"features: expected dimension {self.weights.shape[1]}, got {mapped.shape[1]}"
            )
        return mapped @ self.weights.T + self.bias

    def predict(self, features: ArrayLike) -> Labels:
        """The class of the highest score, for each sample."""
        return self.classes[np.argmax(self.scores(features), axis=1)]

    def probabilities(self, features: ArrayLike) -> Array:
        """softmax(scores / T); the temperature must have been calibrated."""
        return np.asarray(scipy.special.softmax(self.scores(features) / self._calibrated(), axis=1))

    def accuracy(self, features: ArrayLike, labels: ArrayLike) -> float:
        """Return the share of samples whose class is predicted; refused where there are none."""
        scores, y = self._scored(features, labels)
        if not len(y):
            raise DataError("labels: expected at least one sample, got none")
        return float(np.mean(self.classes[np.argmax(scores, axis=1)] == y))

    def _scored(self, features: ArrayLike, labels: ArrayLike) -> tuple[Array, Labels]:
        scores, y = self.scores(features), as_labels(labels)
        if len(y) != len(scores):
            raise DataError(f"labels: expected one per sample ({len(scores)}), got {len(y)}")
        if not same_kind(y, self.classes):
            raise DataError(
                f"labels: expected classes like {self.classes[0].item()!r}, got {y[0].item()!r}"
            )
        return scores, y

    # -- temperature ---------------------------------------------------------------------------

    def losses(
        self, features: ArrayLike, labels: ArrayLike, leverage: Leverage | None = None
    ) -> Array:
        """Summed cross-entropy at each of TEMPERATURES: adds over clients, as a sum must.

        With a `leverage`, of the scores that each training sample would have had, left out.
        """
        scores, y = self._scored(features, labels)
        present = np.isin(y, self.classes)
        scores, truth = scores[present], np.searchsorted(self.classes, y[present])
        scores = leverage.left_out(scores, truth) if leverage else scores
        scores -= scores.max(axis=1, keepdims=True, initial=-np.inf)
        true_scores = scores[np.arange(len(truth)), truth].sum()
        return np.array(
            [np.log(np.exp(scores / t).sum(axis=1)).sum() - true_scores / t for t in TEMPERATURES]
        )

    def calibrated(self, losses: Array) -> LinearHead:
        """With the temperature of the lowest total loss (a parabola between the grid's points).

        Of several with the lowest (clients round their losses, and those of samples that a head
        separates without fail are 0 over a range) it is the highest: the least sure of itself.
        """
        self._check_scaled()
        at = int(np.flatnonzero(losses == np.min(losses))[-1])
        step = float(np.log(TEMPERATURES[1] / TEMPERATURES[0]))
        shift = 0.0
        if 0 < at < len(losses) - 1:
            left, low, right = (float(losses[i]) for i in (at - 1, at, at + 1))
            bend = left - 2 * low + right
            shift = 0.5 * (left - right) / bend if bend > 0 else 0.0
        return replace(self, temperature=float(TEMPERATURES[at] * np.exp(shift * step)))

    def calibrate(
        self, features: ArrayLike, labels: ArrayLike, leverage: Leverage | None = None
    ) -> LinearHead:
        """With the temperature of the lowest cross-entropy on these (training) samples.

        A head that nearly interpolates them is far too sure of itself; its `leverage` helps.
        """
        if not np.isin(as_labels(labels), self.classes).any():
            raise DataError("labels: expected samples of the head's classes, got none")
        return self.calibrated(self.losses(features, labels, leverage))

    def _calibrated(self) -> float:
        self._check_scaled()
        if self.temperature is None:
            raise HeadstartError("temperature: not calibrated; call calibrate() on training data")
        return self.temperature

    def _check_scaled(self) -> None:
        """Refuse where each sample's scores have a length of their own."""
        if "private" in self.provenance:
            raise HeadstartError(
                "temperature: a private head has none, for it takes features of any length; "
                "predict and restrict do not need it"
            )

    # -- one client's own ----------------------------------------------------------------------

    def restrict(self, classes: ArrayLike) -> LinearHead:
        """OLL: only these classes can be predicted."""
        wanted = np.unique(as_labels(classes, "classes"))
        unknown = np.setdiff1d(wanted, self.classes)
        if len(unknown) or not len(wanted):
            raise DataError(
                f"classes: expected some of the head's {len(self.classes)}, "
                f"got {unknown.tolist() or 'none'}"
            )
        at = np.searchsorted(self.classes, wanted)
        prior = None if self.prior is None else self.prior[at]
        return replace(
            self,
            weights=self.weights[at],
            bias=self.bias[at],
            classes=self.classes[at],
            prior=prior,
        )

    def with_prior(self, counts: Mapping[Any, float], *, smoothing: float = 0.5) -> LinearHead:
        """Bayes' rule for a client's label frequencies: OLL, and T·log p_k(c) on the scores.

        `counts`: samples of each class the client has; `smoothing` is added to each of them. What
        the scores already carry of the global frequencies is taken out first.
        """
        if not (np.isfinite(smoothing) and smoothing >= 0):
            raise DataError(f"smoothing: expected a number of at least 0, got {smoothing!r}")
        for label, count in counts.items():
            if not (isinstance(count, (int, float, np.number)) and 0 <= count < np.inf):
                raise DataError(f"counts: expected a number for {label!r}, got {count!r}")
        shown = {label: float(count) for label, count in counts.items() if count > 0}
        head = self.restrict(list(shown))
        mass = np.array([shown[label] for label in head.classes.tolist()]) + smoothing
        shift = np.log(mass / mass.sum())
        if head.prior is not None:
            shift = shift - np.log(head.prior)
        bias = head.bias + self._calibrated() * shift
        return replace(head, bias=bias, prior=mass / mass.sum())

    # -- files ---------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return the file that `from_bytes` reads: the same head gives the same bytes."""
        about = {
            "feature_map": self.feature_map.settings() if self.feature_map else None,
            "temperature": self.temperature,
            "provenance": self.provenance,
        }
        arrays: dict[str, NDArray[Any]] = {
            "weights": self.weights,
            "bias": self.bias,
            "classes": wire.pack_labels(self.classes),
            "about": np.frombuffer(json.dumps(about, sort_keys=True).encode(), np.uint8),
        }
        if self.prior is not None:
            arrays["prior"] = self.prior
        return wire.encode("linear-head", arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> LinearHead:
        """Read a head back; a `WireError` where the bytes are not those of one."""
        _, arrays = wire.decode(data, _SCHEMA, Limits())
        classes = wire.unpack_labels(arrays["classes"])
        if len(classes) != len(arrays["weights"]):
            raise WireError("shape", f"weights: expected {len(classes)} rows")
        try:
            about = json.loads(arrays["about"].tobytes())
            map_settings = about["feature_map"]
            feature_map = RandomFeatures(**map_settings) if map_settings else None
            temperature, provenance = about["temperature"], dict(about["provenance"])
            if temperature is not None and not 0 < temperature < np.inf:
                raise ValueError(f"temperature is {temperature!r}")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise WireError("malformed", f"about: not a head's description: {error}") from None
        if feature_map and feature_map.dimension != arrays["weights"].shape[1]:
            raise WireError("shape", f"weights: expected {feature_map.dimension} per row")
        prior = arrays["prior"].copy() if "prior" in arrays else None
        if prior is not None and not (prior > 0).all():
            raise WireError("impossible", "prior: expected numbers above 0")
        return cls(
            arrays["weights"].copy(),
            arrays["bias"].copy(),
            classes,
            feature_map,
            prior,
            temperature,
            provenance,
        )

    def save(self, path: str | Path) -> None:
        """One safetensors file: no code, no pickle, a checksum over every byte."""
        write_bytes(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> LinearHead:
        """Read a saved head; a `HeadstartError` where the file is missing, damaged or no head."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except OSError as error:
            raise DataError(f"model: cannot read {path}: {error.strerror}") from None

"""What a private release promises, fixed before data are seen, and the noise that follows from it.

The budget μ² (of ε and δ) is split among the messages, and in a message among its parts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import HeadstartError
from headstart.labels import Labels, as_labels
from headstart.privacy.accountant import mu_of
from headstart.privacy.refusals import Abort
from headstart.privacy.sensitivity import Noise
from headstart.privacy.statement import TRUSTS
from headstart.statistics.base import LARGEST
from headstart.statistics.exact import MOST_SAMPLES

UNITS = ("sample", "image", "client")
# Of μ²: the part of each message but the last, which has the rest.
MEAN = {"sample": 0.03, "image": 0.03, "client": 0.05}
RESIDUAL = 0.29
# And in each message those of its own parts.
SHARES: dict[str, dict[str, float]] = {
    "mean": {"counts": 0.01, "sums": 0.99},
    "sums": {"counts": 0.01, "sums": 0.99},
    "gram": {"counts": 0.01, "sums": 0.79, "gram": 0.20},
    "residual": {"counts": 0.01, "sums": 0.99},
}
SIGNAL = 3.5  # how far a class's sum must stand out of its noise for ridge to be the better head
HEADS = ("fed3r", "lda", "fedncm")
IMAGE = 0.25  # of the samples of an image: what it counts for, if nobody says
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PrivacyPlan:
    """What is promised, and by whom: all of it public, and fixed before data are seen.

    classes     the list agreed beforehand
    samples     as many as are planned for; images, where these are the unit
    unit        whom it protects: one `sample`, one `image` of many samples, or one `client`
    trust       who adds the noise: `server`, `secure-sum` or `client`
    clip        what an image or a client may count for, in samples (None: a quarter of `rows`,
                √(samples/clients))
    colluding   members of a masked group that may side with the server
    mean        whether the common direction is asked for first; or that direction itself, of public
                data, for which nothing is spent
    dimension   of the features, so that nobody's answer says it for others (None: not known)
    residual    class means are corrected by a third message, what they leave unexplained
    projection  d×p, of public data: features are taken along its columns alone
    rows        the most samples of an image
    careless    allow a δ at which publishing one sample whole would be as private
    """

    epsilon: float
    delta: float
    classes: ArrayLike
    samples: int
    unit: str = "sample"
    trust: str = "server"
    clip: float | None = None
    colluding: int = 0
    mean: bool | ArrayLike = True
    dimension: int | None = None
    residual: bool = False
    projection: ArrayLike | None = None
    rows: int = 1
    careless: bool = False

    @property
    def text(self) -> str:
        """What is promised, in one line; the dimension is the extractor's and promises nothing."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        said |= {"classes": self.labels.tolist(), "dimension": None}
        for name in ("mean", "projection"):
            if isinstance(said[name], np.ndarray):
                said[name] = hashlib.sha256(repr(said[name].shape).encode() + said[name].tobytes())
                said[name] = said[name].hexdigest()
        return repr(said)

    def __post_init__(self) -> None:
        labels = np.unique(as_labels(self.classes, "classes"))
        object.__setattr__(self, "classes", labels)
        if not len(labels):
            raise HeadstartError("classes: expected the list agreed beforehand, got none")
        for name, options in (("unit", UNITS), ("trust", tuple(TRUSTS))):
            if getattr(self, name) not in options:
                said = f"expected one of {', '.join(options)}, got {getattr(self, name)!r}"
                raise HeadstartError(f"{name}: {said}")
        self._check_sizes()
        _ = self.mu  # which refuses ε and δ that promise nothing
        if self.delta > 1 / self.samples and not self.careless:
            raise HeadstartError(
                f"delta: expected at most 1/samples = {1 / self.samples:.3g}, got {self.delta:g}: "
                "to publish one sample whole would be as private"
            )
        self._check_clip()
        self._check_public()
        if self.residual and self.unit == "image":
            raise HeadstartError("residual: expected unit sample or client, got image")

    def _check_sizes(self) -> None:
        if type(self.samples) is not int or not 1 <= self.samples <= MOST_SAMPLES:
            raise HeadstartError(
                f"samples: expected how many are planned (to {MOST_SAMPLES}), got {self.samples!r}"
            )
        if type(self.colluding) is not int or self.colluding < 0:
            raise HeadstartError(f"colluding: expected 0 or more, got {self.colluding!r}")
        if self.dimension is not None and (type(self.dimension) is not int or self.dimension < 1):
            raise HeadstartError(f"dimension: expected 1 or more, got {self.dimension!r}")
        if self.colluding and self.trust != "secure-sum":
            raise HeadstartError("colluding: expected 0 but for trust secure-sum")
        if type(self.rows) is not int or self.rows < 1 or (self.rows > 1 and self.unit != "image"):
            raise HeadstartError(
                f"rows: expected the most samples of an image with unit image, got {self.rows!r}"
            )

    def _check_clip(self) -> None:
        if self.clip is None:
            return
        known = isinstance(self.clip, (int, float)) and 0 < self.clip <= MOST_SAMPLES
        if self.unit == "sample" or not known:
            raise HeadstartError(
                f"clip: expected a number above 0 with unit client or image, got {self.clip!r}"
            )

    def _check_public(self) -> None:
        """The public mean as a direction of length one, the projection as columns."""
        if not isinstance(self.mean, bool):
            mean = _numbers("mean", self.mean, 1)
            length = float(np.linalg.norm(mean))
            if not length > 0:
                raise HeadstartError("mean: expected a mean that points somewhere, got zeros")
            object.__setattr__(self, "mean", mean / length)
        if self.projection is not None:
            columns = _numbers("projection", self.projection, 2)
            object.__setattr__(self, "projection", columns)
            if self.dimension not in (None, len(columns)):
                raise HeadstartError(
                    f"projection: expected {self.dimension} rows, got {len(columns)}"
                )
        given = self.direction
        if given is not None and self.width not in (None, len(given)):
            raise HeadstartError(f"mean: expected {self.width} numbers, got {len(given)}")

    @property
    def direction(self) -> Array | None:
        """The public one."""
        return self.mean if isinstance(self.mean, np.ndarray) else None

    @property
    def width(self) -> int | None:
        """The dimension in which sums are taken; None: not known."""
        if self.projection is not None:
            return int(np.asarray(self.projection).shape[1])
        return self.dimension

    @cached_property
    def mu(self) -> float:
        """Of all messages together."""
        return mu_of(self.epsilon, self.delta)

    @property
    def labels(self) -> Labels:
        return np.asarray(self.classes)

    def messages(self, kind: str) -> tuple[str, ...]:
        """Which are sent for sums of this kind, in their order."""
        first = ("mean",) if self.mean is True else ()
        last = ("residual",) if self.residual else ()
        return (*first, kind, *last)

    def share(self, kind: str) -> float:
        """Of μ², that goes to a message."""
        early = MEAN[self.unit] if self.mean is True else 0.0
        late = RESIDUAL if self.residual else 0.0
        return {"mean": early, "residual": late}.get(kind, 1.0 - early - late)

    def reach(self, kind: str, clients: int) -> float:
        """What one unit may count for in a message, in samples."""
        if self.unit == "sample":
            return 1.0
        if self.unit == "image":  # what all samples share is that of an image's as well
            return self.rows if kind == "mean" else self.clip or max(1.0, IMAGE * self.rows)
        usual = max(1.0, self.samples / clients)
        most = self.clip or math.sqrt(usual)
        # Samples of many classes add up like √n in the sums, and like n along what all share.
        return most**2 if kind == "mean" else most

    def noise(self, kind: str, clients: int) -> Noise:
        """Of one message of so many clients."""
        return Noise.plan(
            self.mu * math.sqrt(self.share(kind)),
            SHARES[kind],
            reach=self.reach(kind, clients),
            clip=self.unit == "client",
            colluding=self.colluding if self.trust == "secure-sum" else None,
            rows=self.rows if self.unit == "image" else None,
        )

    def check_noise(self, kinds: Sequence[str], clients: int) -> None:
        """Refuse ε and δ whose noise, of one of these messages, cannot be drawn."""
        for kind in kinds:
            try:
                self.noise(kind, clients).check_room(clients)
            except Abort as error:
                raise Abort(
                    error.code,
                    f"epsilon: {self.epsilon:g} with δ = {self.delta:g} needs noise that cannot be "
                    f"drawn for {clients} clients ({str(error).removesuffix(f' [{error.code}]')})",
                ) from None

    def signal(self, dimension: int, clients: int) -> float:
        """How far the mean class's sum stands out of its noise.

        (Of images all of which count for the most that they may.)
        """
        copies = clients if self.trust == "client" else 1
        sigma = self.noise("sums", clients).sigma("sums") * math.sqrt(copies)
        samples = self.samples * (self.reach("sums", clients) if self.unit == "image" else 1.0)
        width = dimension if self.width is None else self.width
        return samples / len(self.labels) / (sigma * math.sqrt(width))

    def better_head(self, dimension: int, clients: int) -> str:
        """Class means while their noise is large, ridge regression beyond; a rule of thumb.

        The residual corrects class means.
        """
        strong = self.signal(dimension, clients) >= SIGNAL and not self.residual
        return "fed3r" if strong else "fedncm"


def _numbers(name: str, given: Any, axes: int) -> Array:
    """An array of public numbers, none of them beyond what squares can hold."""
    what = {1: "a vector", 2: "a matrix d×p with p ≤ d"}[axes]
    try:
        found = np.array(given, np.float64, order="C")
    except (TypeError, ValueError):
        found = np.zeros(0)
    wide = axes == 2 and found.ndim == 2 and found.shape[1] > found.shape[0]
    if found.ndim != axes or not found.size or wide or not (np.abs(found) < LARGEST).all():
        raise HeadstartError(f"{name}: expected {what} of numbers, got {given!r:.80}")
    return found

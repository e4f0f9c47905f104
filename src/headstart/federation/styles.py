"""How clients' styles travel: rows of their images, which the server hands to all other clients.

See `headstart.data.styles` for what that reveals. Rows do not add, and no secure sum can hide them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from headstart.data import augment
from headstart.data.augment.restyle import Restyling
from headstart.data.image_samples import ImageSamples
from headstart.data.styles import StyleBank
from headstart.errors import DataError
from headstart.federation.promises import broken
from headstart.federation.protocol import (
    Answer,
    Arrays,
    Check,
    ClientData,
    Federation,
    Step,
    register_step,
)
from headstart.statistics.base import Summable
from headstart.statistics.style_rows import StyleRows
from headstart.statistics.wire import Limits

_LARGEST = 1024.0  # amplitudes reach 255, CIE LAB little more than 100


def styles(how: Restyling) -> Step:
    """Ask for the styles of the images that a client trains on, as an augmentation needs them."""
    settings = {one.name: getattr(how, one.name) for one in dataclasses.fields(how)}  # type: ignore[arg-type]
    return Step("styles", {"augmentation": how.name, "settings": settings})


def banked(federation: Federation, how: Restyling) -> tuple[StyleBank, list[Answer]]:
    """The styles of all clients, and the answers that they came in."""
    answers = list(federation.answers(styles(how)))
    return StyleBank.of({one.clients[0]: one.statistic.rows for one in answers}), answers


def _how(params: Mapping[str, Any]) -> Restyling:
    made = augment.make(str(params["augmentation"]), params["settings"])
    if not isinstance(made, Restyling):
        raise DataError(f"styles: expected an augmentation by styles, got {made.name}")
    return made


def _bounded(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """At most a row per image, of numbers that styles can be."""

    def check(answer: StyleRows, limits: Limits, clients: int) -> None:
        if not 1 <= len(answer.rows) <= limits.samples * clients:
            raise broken(f"expected 1 to {limits.samples * clients} rows, got {len(answer.rows)}")
        if not (np.abs(answer.rows) <= _LARGEST).all():
            raise broken(f"expected numbers within ±{_LARGEST:g}")

    return check


@register_step(
    "styles",
    StyleRows,
    discloses="the colours or low frequencies of its images are broadcast to all clients",
    promise=_bounded,
    budget="measure",
)
def _styles(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    samples, how = client.samples, _how(params)
    if not isinstance(samples, ImageSamples):
        raise DataError(f"styles: expected images, got samples of shape {samples.shape}")
    if not len(samples):
        raise DataError("styles: expected at least one image, got none")
    rows = [how.measured(samples.reader.decoded(row)) for row in samples.rows.tolist()]
    return StyleRows(how.sent(np.stack(rows)).astype(np.float32))

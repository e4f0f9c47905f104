"""How clients' styles travel: rows of their images, which the server hands to all other clients.

See `headstart.data.styles` for what that reveals. Rows do not add, and no secure sum can hide them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.data import augment
from headstart.data.augment.restyle import Restyling
from headstart.data.backbones.preprocess import as_rgb
from headstart.data.cells import CellSamples
from headstart.data.image_samples import ImageSamples
from headstart.data.samples import Samples
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

if TYPE_CHECKING:
    from PIL.Image import Image

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
    how = _how(params)
    rows = [how.measured(image) for image in _decoded(client.samples)]
    if not rows:
        raise DataError("styles: expected at least one image, got none")
    return StyleRows(how.sent(np.stack(rows)).astype(np.float32))


def _decoded(samples: Samples) -> Iterator[Image]:
    """The images that a client trains on, or whose cells it measures."""
    if isinstance(samples, ImageSamples):
        yield from map(samples.reader.decoded, samples.rows.tolist())
    elif isinstance(samples, CellSamples):
        scenes = samples.data.scenes
        yield from (as_rgb(scenes.open(row)) for row in samples.rows[: samples.units].tolist())
    else:
        raise DataError(f"styles: expected images, got samples of shape {samples.shape}")

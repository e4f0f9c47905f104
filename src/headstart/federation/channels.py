"""How clients' channel statistics travel: the mean and deviation of each colour of their images.

Six numbers per client that do not add: the server hands them, without names, to all clients (see
`headstart.data.augment.fedrdn` for what that reveals), and no secure sum can hide them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.augment.fedrdn import ChannelStatistics, averaged_channels
from headstart.data.image_samples import ImageSamples
from headstart.data.samples import blocks
from headstart.errors import DataError
from headstart.federation import promises
from headstart.federation.promises import broken
from headstart.federation.protocol import Arrays, Check, ClientData, Step, register_step
from headstart.statistics.base import Summable
from headstart.statistics.tally import Tally
from headstart.statistics.wire import Limits

_BLOCK = 1024  # images at a time


def channels() -> Step:
    """Ask for the channel statistics of the images that a client trains on."""
    return Step("channels")


def received_channels(values: NDArray[np.float64]) -> ChannelStatistics:
    """The statistics in the values of an answer; refused where they can be none."""
    return ChannelStatistics(values[:3], values[3:])


def _unit(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """Means and deviations of pixels from 0 to 1, of each of three channels."""

    def check(tally: Tally, limits: Limits, clients: int) -> None:
        if (promises.numbers(tally, 6) > clients * (1 + 1e-6)).any():
            raise broken("expected means and deviations of pixels from 0 to 1")

    return check


@register_step(
    "channels",
    Tally,
    discloses="the colours of so few images are broadcast to all clients",
    promise=_unit,
    budget="measure",
)
def _channels(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    samples = client.samples
    if not isinstance(samples, ImageSamples):
        raise DataError(f"channels: expected images, got samples of shape {samples.shape}")
    statistics = averaged_channels(samples.pixels(rows) for rows in blocks(samples, _BLOCK))
    return Tally(np.concatenate([statistics.mean, statistics.deviation]))

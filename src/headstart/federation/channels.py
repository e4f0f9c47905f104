"""FedRDN's question to clients: the mean and deviation of each colour channel of their images.

Six numbers a client that do not add: the server hands them, without names, to all clients (see
`headstart.data.rdn` for what that reveals), and no secure sum can hide them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.backbones.preprocess import Preprocess
from headstart.data.pixels import Images
from headstart.data.rdn import ChannelStatistics, channel_statistics
from headstart.errors import DataError
from headstart.federation import promises
from headstart.federation.promises import broken
from headstart.federation.protocol import Arrays, Check, ClientData, Step, register_step
from headstart.statistics.base import Summable
from headstart.statistics.tally import Tally
from headstart.statistics.wire import Limits


def channels(pixels: Preprocess) -> Step:
    """Ask for them; `pixels`: how the rows of pixels that clients hold were made."""
    return Step("channels", {"mean": list(pixels.mean), "std": list(pixels.std)})


def told(values: NDArray[np.float64]) -> ChannelStatistics:
    """An answer, read."""
    return ChannelStatistics(values[:3], values[3:])


def unit_images(rows: NDArray[Any], mean: Any, std: Any) -> Images:
    """Rows of pixels (x − mean)/std, channel by channel, as images x from 0 to 1."""
    side = math.isqrt(rows.shape[1] // 3) if rows.ndim == 2 else 0
    if rows.ndim != 2 or rows.shape[1] != 3 * side * side:
        raise DataError(f"images: expected rows of 3·side² pixels, got shape {rows.shape}")
    images = np.array(rows, np.float32).reshape(-1, 3, side, side)
    images *= np.asarray(std, np.float32)[:, None, None]
    images += np.asarray(mean, np.float32)[:, None, None]
    return images


def _unit(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """Means and deviations of pixels from 0 to 1, of each of three channels."""

    def check(tally: Tally, limits: Limits, clients: int) -> None:
        if (promises.numbers(tally, 6) > clients * (1 + 1e-6)).any():
            raise broken("expected means and deviations of pixels from 0 to 1")

    return check


@register_step(
    "channels",
    Tally,
    discloses="the colours of so few images are told to all clients",
    promise=_unit,
    budget="measure",
)
def _channels(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    own = channel_statistics(unit_images(client.features, params["mean"], params["std"]))
    return Tally(np.concatenate([own.mean, own.deviation]))

"""What was done to the colours of images: a shift by groups of clients, and FedRDN against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data import rdn
from headstart.data.backbones.preprocess import Preprocess
from headstart.data.datasets import Dataset
from headstart.data.rdn import ChannelStatistics, ChannelTable, Looks
from headstart.data.shift import groups
from headstart.federation.channels import channels, told, unit_images
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator


@dataclass(frozen=True, eq=False)
class Colours:
    """The domain of each client and of each outside test image; all clients' channels.

    `up` and `down`: the bytes that FedRDN's statistics took, of all clients.
    """

    shift: float | None = None
    clients: Mapping[str, str] = field(default_factory=dict)
    test: NDArray[np.str_] | None = None
    table: ChannelTable | None = None
    up: int = 0
    down: int = 0

    @classmethod
    def shifted(cls, delta: float, clients: Sequence[str], tested: int, seed: int) -> Colours:
        """Three groups of clients, and three of test images."""
        names = dict(zip(clients, groups(len(clients), seed).tolist(), strict=True))
        return cls(delta, names, groups(tested, seed))

    def plain(self) -> dict[str, Any] | None:
        """For results and models; None where images are as they were."""
        if self.shift is None and self.table is None:
            return None
        known: dict[str, Any] = {}
        if self.shift is not None:
            known |= {"shift": self.shift, "clients": dict(self.clients)}
        if self.table is not None:
            pair = rdn.middle(self.table)
            means, deviations = pair.mean.tolist(), pair.deviation.tolist()
            known |= {"augment": "fedrdn", "outside": {"mean": means, "deviation": deviations}}
        return known

    def note(self, provenance: dict[str, Any]) -> None:
        """Let a head remember that the images it was made from were changed."""
        if self.shift is not None:
            provenance["shift"] = self.shift

    def by_domain(self, right: NDArray[np.bool_]) -> dict[str, float] | None:
        """The accuracy on the outside test images of each domain."""
        if self.test is None:
            return None
        found = sorted(set(self.test.tolist()))
        return {name: float(right[self.test == name].mean()) for name in found}


def fedrdn(
    clients: Mapping[str, ClientData],
    seed: int,
    test: Dataset,
    made: Mapping[str, Any],
    colours: Colours,
) -> tuple[dict[str, ClientData], Dataset, Colours]:
    """Every client's channels, asked for and handed to all; images as each client sees them.

    A client's own pair, of its training part, normalizes its images; training draws others. What
    no client holds takes the mean of all pairs.
    """
    pixels = Preprocess(**made["preprocess"])
    answers = list(Simulator(clients, seed).answers(channels(pixels)))
    rows = {answer.clients[0]: told(answer.statistic.values) for answer in answers}
    table = rdn.collect(rows.values())

    def seen(features: NDArray[Any], pair: ChannelStatistics) -> NDArray[Any]:
        images = rdn.own(unit_images(features, pixels.mean, pixels.std), pair)
        return images.reshape(features.shape)

    seeing = {}
    for name, client in clients.items():
        own = rows[name]
        rest = client.test_features
        seeing[name] = replace(
            client,
            features=seen(client.features, own),
            test_features=None if rest is None else seen(rest, own),
            looks=Looks(own, table),
        )
    outside = replace(test, features=seen(test.features, rdn.middle(table)))
    up = sum(answer.up for answer in answers)
    down = len(clients) * (table.means.nbytes + table.deviations.nbytes)
    return seeing, outside, replace(colours, table=table, up=up, down=down)

"""What is done to the images of a run: a domain shift by groups of clients, and augmentations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data import augment
from headstart.data.augment import Augmentation
from headstart.data.augment.domain_shift import groups
from headstart.data.augment.fedrdn import ChannelStatistics, ChannelTable, collect, middle
from headstart.data.augment.restyle import Restyling
from headstart.data.image_samples import ImageSamples
from headstart.data.samples import Samples
from headstart.data.styles import StyleBank
from headstart.federation.channels import channels, received_channels
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.federation.styles import banked
from headstart.pipeline.config import RunConfig


@dataclass(frozen=True, eq=False)
class ImageRecord:
    """The domain of each client and of each outside test image; the augmentations of training.

    `table`: all clients' channels, where an augmentation needs them; `up` and `down`: the bytes
    that they and styles took, of all clients. `style_numbers`: how many numbers styles were.
    """

    shift: float | None = None
    clients: Mapping[str, str] = field(default_factory=dict)
    test: NDArray[np.str_] | None = None
    augment: tuple[str, ...] = ()
    table: ChannelTable | None = None
    up: int = 0
    down: int = 0
    style_numbers: int = 0

    @classmethod
    def of_shift(cls, delta: float, clients: Sequence[str], tested: int, seed: int) -> ImageRecord:
        """Three groups of clients, and three of test images."""
        names = dict(zip(clients, groups(len(clients), seed).tolist(), strict=True))
        return cls(delta, names, groups(tested, seed))

    def plain(self) -> dict[str, Any] | None:
        """For results and models; None where images are as they were."""
        plain: dict[str, Any] = {}
        if self.shift is not None:
            plain |= {"shift": self.shift, "clients": dict(self.clients)}
        if self.augment:
            plain["augment"] = ", ".join(self.augment)
        if self.table is not None:
            pair = middle(self.table)
            means, deviations = pair.mean.tolist(), pair.deviation.tolist()
            plain["outside"] = {"mean": means, "deviation": deviations}
        return plain or None

    def note(self, provenance: dict[str, Any]) -> None:
        """Let a head remember that the images it was made from were changed."""
        if self.shift is not None:
            provenance["shift"] = self.shift

    def by_domain(self, right: NDArray[np.bool_]) -> dict[str, float] | None:
        """The accuracy on the outside test images of each domain."""
        if self.test is None:
            return None
        names = sorted(set(self.test.tolist()))
        return {name: float(right[self.test == name].mean()) for name in names}


def augmented(
    config: RunConfig, clients: Mapping[str, ClientData], test: Samples, record: ImageRecord
) -> tuple[dict[str, ClientData], Samples, ImageRecord]:
    """Clients and test set that read their images as the configuration's augmentations say.

    Where one needs the channels of clients they are asked for, and all are handed to all. A
    client's own pair is that of its training part; what no client holds takes the mean of all.
    Styles are asked for as well; a client receives those of all others, for its training part.
    """
    made = [augment.make(spec.name, spec.settings) for spec in config.augment or ()]
    record = replace(record, augment=tuple(augmentation.name for augmentation in made))
    pairs: dict[str, ChannelStatistics] = {}
    if any(augmentation.channels for augmentation in made):
        answers = list(Simulator(clients, config.seed).answers(channels()))
        pairs = {
            answer.clients[0]: received_channels(answer.statistic.values) for answer in answers
        }
        table = collect(pairs.values())
        up = sum(answer.up for answer in answers)
        down = len(clients) * (table.means.nbytes + table.deviations.nbytes)
        record = replace(record, table=table, up=up, down=down)
    banks, record = _banks(made, Simulator(clients, config.seed), record)

    def reading(
        samples: Samples, pair: ChannelStatistics | None, trains: str | None = None
    ) -> Samples:
        assert isinstance(samples, ImageSamples)
        paired = [_with_pair(augmentation, pair, record.table) for augmentation in made]
        if trains is None:  # nothing is restyled but what a client trains on
            return samples.augmented(
                tuple(augmentation for augmentation in paired if not augmentation.styles)
            )
        styled = (
            augmentation.with_styles(banks[augmentation.name].without(trains))
            if augmentation.styles
            else augmentation
            for augmentation in paired
        )
        return samples.augmented(tuple(styled))

    seeing = {
        name: replace(
            client,
            samples=reading(client.samples, pairs.get(name), name),
            test=None if client.test is None else reading(client.test, pairs.get(name)),
        )
        for name, client in clients.items()
    }
    pair = None if record.table is None else middle(record.table)
    return seeing, reading(test, pair), record


def _banks(
    made: Sequence[Augmentation], federation: Simulator, record: ImageRecord
) -> tuple[dict[str, StyleBank], ImageRecord]:
    """The styles that each augmentation needs, and the bytes that they took."""
    banks = {}
    for one in made:
        if isinstance(one, Restyling):
            bank, answers = banked(federation, one)
            banks[one.name] = bank
            # all rows go to all clients but their own
            down = (len(federation.clients) - 1) * bank.nbytes
            record = replace(
                record,
                up=record.up + sum(answer.up for answer in answers),
                down=record.down + down,
                style_numbers=record.style_numbers + bank.rows.size,
            )
    return banks, record


def _with_pair(
    augmentation: Augmentation, pair: ChannelStatistics | None, table: ChannelTable | None
) -> Augmentation:
    return augmentation.with_channels(pair, table) if augmentation.channels else augmentation

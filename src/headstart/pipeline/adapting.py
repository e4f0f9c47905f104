"""LADD in closed form: a labelled source at the server, clients without labels, no gradient.

    1  each client sends the mean styles of its images; the server makes clusters of them
    2  the source is restyled with the styles of a cluster and measured; a head is solved from it
    3  the cluster's clients get that head and send the statistic of the cells it is sure of, once
    4  the head of the cluster: of the source's statistic and `trust` times its clients'
    5  an image belongs to the cluster whose centre is nearest to its style

A statistic of the source in a style is all that the server needs of it from then on; the source
itself may be forgotten. With `trust` = 2 a pseudo-labelled cell counts twice, the source half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from headstart import threads
from headstart.data.augment.restyle import FDA, LAB, Restyling
from headstart.data.backbones.preprocess import as_rgb
from headstart.data.cells import CellExtractor, CellSamples, label_cells
from headstart.data.restyled import restyled
from headstart.data.scenes import VOID, SceneSet
from headstart.data.styles import Floats
from headstart.errors import DataError
from headstart.federation import judging, steps
from headstart.federation.protocol import Federation
from headstart.federation.pseudo import SURE, TOP
from headstart.federation.styles import banked
from headstart.gradient.clusters import Clusters, clustered
from headstart.heads.base import Head, choice
from headstart.heads.linear import LinearHead
from headstart.progress import Progress, silent
from headstart.statistics.base import Summable, total
from headstart.statistics.confusion import Confusion

STYLES: Mapping[str, Restyling] = {"fda": FDA(), "lab": LAB(mean=True)}
BY = "fda"  # the styles that clusters are made by, and that find an image's cluster


@dataclass(frozen=True)
class CellSource:
    """Labelled scenes that the server holds, and the frozen network that makes cells of them."""

    scenes: SceneSet
    network: CellExtractor
    exact: bool = True

    @property
    def how(self) -> dict[str, Any]:
        return {"exact": self.exact, "bound": self.network.bound}

    def measured(
        self,
        head: Head,
        style: str | None = None,
        rows: Floats | None = None,
        seed: int = 0,
        progress: Progress = silent,
    ) -> Summable:
        """A head's statistic of all cells, of images as they are or in the style of these rows.

        An image at a time: nothing of it is kept.
        """
        scenes = self.scenes
        if style is not None and rows is not None:
            scenes = restyled(scenes, STYLES[style], rows, seed)
        return total(self._each(head, scenes, progress))

    def _each(self, head: Head, scenes: SceneSet, progress: Progress) -> Iterator[Summable]:
        names = np.array(scenes.names)
        for i in range(len(scenes)):
            cells = self.network(self.network.preprocess(scenes.open(i))[None])
            cells = cells.reshape(-1, self.network.channels)
            codes = label_cells(scenes.mask(i), self.network.grid, len(names))
            shown = codes != VOID
            yield cast(Summable, head.measure(cells[shown], names[codes[shown]], **self.how))
            progress("source", i + 1, len(scenes))


@dataclass(frozen=True, eq=False)
class ClientStyles:
    """The mean styles of clients: those that clusters are made by, and those that restyle."""

    by_kind: Mapping[str, Mapping[str, Floats]]
    up: int = 0

    @classmethod
    def of(cls, federation: Federation, *kinds: str) -> ClientStyles:
        """Asked of every client; rows, which no secure sum hides."""
        found, up = {}, 0
        for kind in dict.fromkeys(kinds):
            bank, answers = banked(federation, STYLES[choice_of(kind)])
            found[kind] = bank.means()
            up += sum(answer.up for answer in answers)
        return cls(found, up)

    def rows(self, kind: str, clients: Any = None) -> Floats:
        """A row per client, of all or of these."""
        table = self.by_kind[kind]
        return np.stack([table[name] for name in (sorted(table) if clients is None else clients)])

    def clusters(self, seed: int = 0) -> Clusters:
        return clustered(self.by_kind[BY], seed=seed)


@dataclass(frozen=True, eq=False)
class ClusterHeads:
    """A head per cluster; that of an image is of the cluster whose centre its style is nearest."""

    clusters: Clusters
    heads: Mapping[int, LinearHead]
    up: int = 0
    first: Mapping[int, LinearHead] = field(default_factory=dict)  # before any client was asked

    def nearest(self, samples: CellSamples) -> NDArray[np.int64]:
        """The cluster of each image."""
        scenes, how = samples.data.scenes, STYLES[BY]
        images = (as_rgb(scenes.open(row)) for row in samples.rows.tolist())
        return np.array([self.clusters.nearest(how.measured(image)) for image in images], np.int64)

    def states(self, state: Any) -> Mapping[int, LinearHead]:
        """The head of each cluster, to be saved."""
        return self.heads

    def confusion(self, samples: CellSamples, classes: Any = None) -> Confusion:
        """Every image by the head of its own cluster."""
        nearest = self.nearest(samples)
        names = np.array(samples.data.names) if classes is None else classes
        made = Confusion.empty(names)
        for cluster, head in self.heads.items():
            own = samples.data.picked(samples.rows[nearest == cluster])
            made = made + judging.confusion(head, own, names)
        return made


def adapted(
    federation: Federation,
    source: CellSource,
    head: Head,
    styles: ClientStyles,
    *,
    style: str = "lab",
    clusters: Clusters | None = None,
    trust: int = 2,
    sure: float = SURE,
    top: float = TOP,
    seed: int = 0,
    progress: Progress = silent,
) -> ClusterHeads:
    """Restyle, measure, one round of pseudo-labels per cluster: one message of every client.

    `trust` 0 asks nobody for pseudo-labels: restyling alone.
    """
    choice_of(style)
    if isinstance(trust, bool) or not isinstance(trust, int) or trust < 0:
        raise DataError(f"trust: expected a whole number from 0, got {trust!r}")
    groups = styles.clusters(seed) if clusters is None else clusters
    heads: dict[int, LinearHead] = {}
    first: dict[int, LinearHead] = {}
    up = 0
    for cluster in range(len(groups)):
        members = groups.members(cluster)
        rows = styles.rows(style, members)
        own = source.measured(head, style, rows, seed, progress)
        first[cluster] = heads[cluster] = _solved(head, [own])
        if trust:
            step = steps.pseudo_measure(head, sure=sure, top=top, **source.how)
            answer = federation.total(step, steps.with_head(first[cluster]), members)
            heads[cluster] = _solved(head, [own, *[answer.statistic] * trust])
            up += answer.up
        progress("clusters", cluster + 1, len(groups))
    return ClusterHeads(groups, heads, up, first)


def choice_of(style: str) -> str:
    """The name of a style that can be put on a source."""
    choice("style", style, tuple(STYLES))
    return style


def _solved(head: Head, statistics: list[Any]) -> LinearHead:
    sum_ = total(statistics)
    with threads.for_size(sum_.dimension):
        return head.solve(sum_)

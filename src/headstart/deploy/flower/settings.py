"""Configurations as Flower hands them over: flat, of plain values, words joined by - or _."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

from headstart.data.table import Columns
from headstart.errors import HeadstartError
from headstart.pipeline.config import nearest
from headstart.privacy.statement import TRUSTS

PARTS = ("head", "extractor", "model")  # of a model, that may train
UNITS = ("sample", "client")  # that noise hides
# What an owner insists on, whatever a server asks.
FLOORS = (
    *("trust", "sign", "peers", "least_group"),
    *("most_epsilon", "delta", "least_noise", "unit", "colluding"),
)
_KINDS: dict[str, tuple[type, ...]] = {"bool": (bool,), "float": (float, int), "int": (int,)}


K = TypeVar("K")


def told(kind: type[K], values: Mapping[str, Any], who: str) -> K:
    """A dataclass of plain fields; a key that it lacks is refused, the nearest named.

    `group.name = value` goes into the field `group`, which is a mapping.
    """
    known = {one.name: str(one.type) for one in fields(cast(Any, kind))}
    given: dict[str, Any] = {}
    for key, value in values.items():
        name, _, rest = key.partition(".")
        name = name.replace("-", "_")
        if name not in known or bool(rest) != known[name].startswith("Mapping"):
            raise HeadstartError(f"{who}: unknown key {key!r}{nearest(name, list(known))}")
        if rest:
            given.setdefault(name, {})[rest] = value
            continue
        types = _KINDS.get(known[name], (str,))
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise HeadstartError(f"{who}: {key}: expected a {known[name]}, got {value!r}")
        given[name] = value
    return kind(**given)


def paths(said: str) -> list[str]:
    """Of a list of files, apart by commas (a configuration of Flower's has no lists)."""
    return [part.strip() for part in said.split(",") if part.strip()]


@dataclass(frozen=True)
class OfTables:
    """What a table's columns are called (`client` is the name of a node)."""

    label: str = "label"
    client_column: str = "client"
    domain: str = "domain"
    split: str = "split"

    @property
    def columns(self) -> Columns:
        return Columns(self.label, self.client_column, self.domain, self.split)


@dataclass(frozen=True)
class ServerSettings(OfTables):
    """What a run is told: `[tool.flwr.app.config]` in pyproject.toml, or `flwr run -c run.toml`.

    pipeline   what is done: a head alone, or a head and what follows it (docs/pipelines.md)
    dimension  of the features; no client may send another
    nodes      names of those that should come, apart from each other by spaces: who is not there
               is named while a run waits
    wanted     uploads to wait for; patience: seconds for the rest of those asked, once they are in
    deadline   seconds until it goes on with what it has; and again for every later step
    ledger     the folder of the uploads; a later run on it asks only those that are missing
    output     the folder of the model and the report
    round      the name of this collection of uploads
    bound      the largest feature, in exact mode and out of it
    norm       the largest Euclidean norm of a sample's features (0: any, unless the extractor's is
               known)
    samples    the most of one client (`caps.NAME`: of that client alone), `classes` of all
    labels     what all labels are: "integer" or "text"
    class_list a text file on the server with the agreed classes, one per line (none: any, but no
               client brings more than `new_classes` that nobody else has)
    plugins    files of your own to load, apart by commas; clients must have the same bytes
    readmit    the new name of a node whose client was forgotten, to let its key come again
    test_data  labelled samples of the server's own: accuracy after every upload
    extractor  the agreed network, by its name or its file on the server (none: samples are
               features as they are); weights, text, views: as in `headstart fit`
    small_images  whether images are smaller than what the network takes, and so are not cropped
    scenes     width and height of images with masks, as in 480x360: rows are features of their
               cells, `samples` and `caps` count images (none: a row for each image)
    personal   also ask every client how the head does at home
    cohort     clients a round of training; evaluate_every: rounds
    secure     only sums of groups are seen (docs/secure.md); it needs a class_list
    group_size of those groups (0: all nodes that are wanted, in one)
    peers      a file of the nodes' public keys: rounds are signed (none: they are not)
    private    of a release with differential privacy (docs/differential.md): `private.epsilon` (0:
               none), `delta`, `unit`, `trust`, `samples` (planned), `clip`, `colluding`, `mean`
    """

    pipeline: str = "fed3r"
    dimension: int = 0
    nodes: str = ""
    wanted: int = 2
    deadline: float = 600.0
    patience: float = 60.0
    ledger: str = ""
    output: str = ""
    round: str = "1"
    exact: bool = True
    bound: float = 16.0
    norm: float = 0.0
    precision: str = ""
    samples: int = 100_000
    classes: int = 10_000
    labels: str = "integer"
    class_list: str = ""
    new_classes: int = 1000
    caps: Mapping[str, int] = field(default_factory=dict)
    plugins: str = ""
    readmit: str = ""
    test_data: str = ""
    extractor: str = ""
    weights: str = ""
    text: str = ""
    views: str = ""
    small_images: bool = False
    scenes: str = ""
    personal: bool = False
    cohort: int = 10
    evaluate_every: int = 1
    seed: int = 0
    secure: bool = False
    group_size: int = 0
    peers: str = ""
    private: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scene_size(self) -> tuple[int, int]:
        """Width and height of images with masks."""
        width, _, height = self.scenes.partition("x")
        if not (width.isdigit() and height.isdigit() and int(width) and int(height)):
            raise HeadstartError(
                f"run: scenes: expected width and height, as in 480x360, got {self.scenes!r}"
            )
        return int(width), int(height)

    def __post_init__(self) -> None:
        for name in ("dimension", "wanted", "cohort", "evaluate_every"):
            if getattr(self, name) < 1:
                raise HeadstartError(
                    f"run: {name}: expected a number of at least 1, got {getattr(self, name)}"
                )
        if not 0 < self.deadline < 1e6:
            raise HeadstartError(f"run: deadline: expected seconds, got {self.deadline!r}")
        if not 0 <= self.patience < 1e6:
            raise HeadstartError(f"run: patience: expected seconds, got {self.patience!r}")
        for name in ("ledger", "output"):
            if not getattr(self, name):
                raise HeadstartError(f"run: {name}: expected a folder, got none")


@dataclass(frozen=True)
class NodeSettings(OfTables):
    """What `node.toml` says; its owner writes it, and the server neither reads nor changes it.

    client     the name this node was registered under
    data       a folder class/file, or a .csv, .tsv, .parquet or .npz file
    folder     private: the node's secret, receipts of what it sent, its samples as read, and the
               count of the questions it has answered
    extractor, weights, text, engine, views, skip_corrupt, label, domain, split: as in
               `headstart fit`
    held_out   of its samples, for personal accuracy, if its data do not say which (`split`)
    small      send even where so few samples would be shown (docs/what-statistics-reveal.md)
    train      the part that may train: "head", or "extractor" or "model", which a server sends
    measure, calibrate, personal, training: how many different questions of each kind it answers
               about its samples, for ever (docs/deploy.md)
    plugins    files to load, apart by commas: the only code this node takes from anywhere
    trust      whom the owner trusts: "server" with statistics, "secure-sum" the other members of a
               masked group, "client" nobody: all noise is this node's own
    sign, peers  files of its signing key and of its peers' public keys: then it joins signed secure
               sums of these peers only
    least_group  the fewest members of a sum it joins
    most_epsilon, delta  of all releases over its samples together, for ever; above 0, nothing
               leaves without noise of its own
    least_noise  of each release: the deviation of the noise over what one `unit` of its data moves
    unit       that noise hides: "sample" or "client"
    colluding  members of a group that may side with the server, at least so many
    """

    client: str = ""
    data: str = ""
    folder: str = ""
    extractor: str = ""
    weights: str = ""
    text: str = ""
    engine: str = "onnx"
    views: str = ""
    skip_corrupt: bool = False
    held_out: float = 0.0
    seed: int = 0
    small: bool = False
    train: str = "head"
    measure: int = 8
    calibrate: int = 4
    personal: int = 16
    training: int = 100
    plugins: str = ""
    trust: str = "server"
    sign: str = ""
    peers: str = ""
    least_group: int = 3
    most_epsilon: float = 0.0
    delta: float = 1e-5
    least_noise: float = 0.0
    unit: str = "sample"
    colluding: int = 0

    def __post_init__(self) -> None:
        for name in ("client", "data", "folder"):
            if not getattr(self, name):
                raise HeadstartError(f"node: {name}: expected it in the node's configuration")
        for name, options in (("train", PARTS), ("trust", tuple(TRUSTS)), ("unit", UNITS)):
            if getattr(self, name) not in options:
                raise HeadstartError(
                    f"node: {name}: expected one of {', '.join(options)}, "
                    f"got {getattr(self, name)!r}"
                )
        if self.trust == "client" and not self.most_epsilon:
            raise HeadstartError(
                "node: most_epsilon: expected a budget above 0 with trust = client: without one "
                "any number of releases would be drawn, and their noise averages"
            )
        if bool(self.sign) != bool(self.peers):
            raise HeadstartError("node: sign, peers: expected both files or none of them")
        for name in ("most_epsilon", "least_noise", "colluding"):
            if not 0 <= getattr(self, name) < math.inf:
                raise HeadstartError(
                    f"node: {name}: expected 0 or more, got {getattr(self, name)!r}"
                )
        if self.least_group < 2:
            raise HeadstartError(f"node: least_group: expected 2 or more, got {self.least_group}")
        if not 0 < self.delta < 1:
            raise HeadstartError(f"node: delta: expected a chance, got {self.delta!r}")
        for name in ("measure", "calibrate", "personal", "training"):
            if getattr(self, name) < 0:
                raise HeadstartError(
                    f"node: {name}: expected a number of questions, got {getattr(self, name)}"
                )

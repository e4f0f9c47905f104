"""The settings of a run, in YAML or as `key=value`; of an unknown key the nearest is named."""

from __future__ import annotations

import difflib
import inspect
import itertools
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from headstart import gradient, heads
from headstart.data import augment
from headstart.data.augment import AUGMENTATIONS
from headstart.data.augment.domain_shift import DomainShift
from headstart.data.backbones.catalogue import NETWORKS
from headstart.data.partition import PARTITIONERS
from headstart.data.table import Columns
from headstart.errors import HeadstartError
from headstart.pipeline.notation import parse
from headstart.pipeline.pipeline import Pipeline
from headstart.registry import Registry, load_plugin, plugins, require_plugins


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number, as everybody expects (in YAML 1.1 it is a word).

    Aliases may repeat a few values, not thousands: each may stand for ten others, and ten lines for
    more than a machine holds.
    """

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        sizes: dict[int, int] = {}
        if node is not None and _expanded(node, sizes) - len(sizes) > _REPEATED:
            raise yaml.YAMLError(f"aliases that repeat more than {_REPEATED} values")
        return node


_REPEATED = 10_000


def _expanded(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many values a node stands for, aliases written out; ∞ for one that holds itself."""
    if id(node) not in sizes:
        sizes[id(node)] = sys.maxsize  # until it is known
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        children = itertools.chain.from_iterable(
            part if isinstance(part, tuple) else (part,) for part in inner
        )
        sizes[id(node)] = 1 + sum(_expanded(child, sizes) for child in children)
    return sizes[id(node)]


class _Dumper(yaml.SafeDumper):
    """Quotes the texts that `_Loader` would take for numbers."""


_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
for _yaml in (_Loader, _Dumper):
    _yaml.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


class NamedSettings(BaseModel):
    """What is registered, by its name, with settings: `iid`, `{name: dirichlet, alpha: 0.1}`."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class FederationConfig(BaseModel):
    """How clients are reached. What is not named here goes to the engine (`workers` of ray)."""

    model_config = ConfigDict(extra="allow", frozen=True)
    engine: str = "simulator"
    group_size: int | None = Field(None, ge=1, description="κ of Fed3R-Sync: only sums are seen")
    secure: bool = Field(False, description="sums of groups are opened by masks alone")

    @property
    def settings(self) -> dict[str, Any]:
        """The engine's own."""
        return dict(self.model_extra or {})

    @property
    def grouped(self) -> bool:
        return self.group_size is not None


class PrivateConfig(BaseModel):
    """Differential privacy of the released head; the fields of `PrivacyPlan`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    epsilon: float
    delta: float = 1e-5
    unit: Literal["sample", "image", "client"] = "sample"
    trust: Literal["server", "secure-sum", "client"] = "server"
    classes: list[int] | list[str] | None = Field(
        None, description="agreed beforehand; none: those of the server's own test set"
    )
    samples: int | None = Field(None, description="planned; none: as many as there are")
    clip: float | None = Field(None, description="samples that a client, or an image, counts for")
    colluding: int = Field(0, description="members that may side with the server (secure-sum)")
    mean: bool | str = Field(
        True, description="take out what all samples share, by a first message; or a public .npy"
    )
    residual: bool = Field(False, description="correct class means by a third message")
    projection: str | None = Field(None, description="columns of public data (d×p), a .npy file")
    careless: bool = Field(False, description="allow δ above 1/samples")


Inference = Literal["averaged", "standard", "whole", "by-domain", "by-domain-measured"]
_DENSE: dict[str, Any] = {"batch_norm": "average", "pixels": (96, 128)}  # FedDrive's on a CPU
_LEAST_SIDE = 8


class PluginFile(BaseModel):
    """A file of a user's own code, as it was when the run began."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    path: str
    sha256: str


class RunConfig(BaseModel):
    """One federation, end to end. Defaults are those of a small simulation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str = Field(description="digits, a .csv, .tsv, .parquet or .npz file, or a folder")
    test: str | None = Field(None, description="outside test samples that are not in the data")
    source: str | None = Field(
        None,
        description="labelled scenes of the server: a drive of the data, other scenes, or drawn; "
        "without test=… the test is the last test_fraction of each client; nothing is held_out",
    )
    text: str | None = Field(None, description="the column of sentences in a .csv or .tsv file")
    extractor: str | None = Field(None, description="a network's name, or an .onnx file of images")
    weights: str | None = Field(None, description="its weight file, if not found by itself")
    download: bool = Field(False, description="fetch published weights when nothing is here")
    engine: Literal["onnx", "torch"] = "onnx"
    views: Literal["flip"] | None = Field(
        None, description="flip: features of an image are means with those of its mirror image"
    )
    skip_corrupt: bool = Field(False, description="leave out images that cannot be decoded")
    label: str = "label"
    client: str = "client"
    domain: str = "domain"
    split: str = "split"
    test_fraction: float = Field(0.2, gt=0, lt=1, description="outside test set, if none is given")
    partition: NamedSettings | None = Field(
        None, description="how to make clients; none: the data's own"
    )
    held_out: float = Field(0.0, ge=0, lt=1, description="of each client, for personal accuracy")
    matched: bool = Field(
        False, description="test each client on outside test samples of its own class frequencies"
    )
    minimum: int = Field(1, ge=1, description="clients with fewer samples are left out")
    exact: bool = Field(True, description="bit-identical totals on a public lattice")
    bound: float | Literal["auto"] = Field("auto", description="largest feature in exact mode")
    precision: Literal["float64", "float32", "float16", "int8"] | None = Field(
        None, description="of the wire when not exact (none: float32)"
    )
    smoothing: float = Field(0.5, ge=0, description="added to a client's counts for its prior")
    temperature: Literal["training", "left-out"] | float = Field(
        "training",
        description="of a closed-form head's softmax: calibrated on the training loss, or as if "
        "samples were left out; or a number, and clients send nothing for it",
    )
    pipeline: list[Any] = Field(
        default_factory=lambda: [{"init": "fed3r"}], description="notation, or phases as a list"
    )
    federation: FederationConfig = Field(
        default_factory=lambda: FederationConfig.model_validate({}),
        description="engine, group_size, secure",
    )
    private: PrivateConfig | None = Field(
        None, description="epsilon, delta, unit, trust: a head with differential privacy"
    )
    cohort: int = Field(10, ge=1, description="clients per round of training")
    network: str | None = Field(None, description="to train on images: a network's name")
    pixels: int | tuple[int, int] = Field(
        32, description="of the images a network trains on: their side, or of scenes 96x128"
    )
    inference: Inference | None = Field(
        None,
        description="statistics of batch norm that a dense network is tested with; none: its own, "
        "or where they stay with clients those of all test images (whole)",
    )
    batch_norm: Literal["frozen", "average", "local"] = "frozen"
    shift: float | None = Field(
        None, ge=1, allow_inf_nan=False, description="δ: colours of images, by groups of clients"
    )
    augment: list[NamedSettings] | None = Field(
        None, description="of images a network trains on: crop, flip, fedrdn, or one of your own"
    )
    diagnostics: bool = Field(
        False, description="what training does to features, on some test samples, in the report"
    )
    evaluate_every: int = Field(1, ge=1, description="rounds")
    checkpoint_every: int = Field(10, ge=1, description="rounds that a kill may cost")
    writers: list[Literal["tensorboard", "mlflow", "wandb"]] = []
    curve_points: int = Field(100, ge=1, description="at most so many points of the curves")
    keep_uploads: bool = True
    plugins: list[PluginFile] = Field([], description="files of your own to load, by their paths")
    seed: int = Field(0, ge=0, description="of the split, cohorts and initialization")
    split_seed: int | None = Field(
        None, ge=0, description="of the test split and the partition alone; none: the seed"
    )

    @model_validator(mode="before")
    @classmethod
    def _dense(cls, values: Any) -> Any:
        """What a dense network begins with is other than of one that sees small images."""
        name = values.get("network") if isinstance(values, dict) else None
        if isinstance(name, str) and name in NETWORKS and NETWORKS[name].stride:
            values = {**_DENSE, **values}
        if isinstance(values, dict) and values.get("source") is not None:
            values = {**values, "held_out": 0.0}  # clients have no labels to be tested on
        return values

    @field_validator("pixels", mode="before")
    @classmethod
    def _sides(cls, value: Any) -> Any:
        sides = value.lower().split("x") if isinstance(value, str) else value
        sides = list(sides) if isinstance(sides, (list, tuple)) else [sides]
        if len(sides) not in (1, 2) or not all(str(side).isdecimal() for side in sides):
            raise ValueError(f"expected a side, or height and width as in 96x128, got {value!r}")
        if min(map(int, sides)) < _LEAST_SIDE:
            raise ValueError(f"expected sides of at least {_LEAST_SIDE} pixels, got {value!r}")
        return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))

    @field_validator("partition", mode="before")
    @classmethod
    def _partition_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("augment", mode="before")
    @classmethod
    def _augmentations(cls, value: Any) -> Any:
        several = value if isinstance(value, (list, tuple)) else [value] if value else []
        return [{"name": item} if isinstance(item, str) else item for item in several] or None

    @field_validator("temperature", mode="before")
    @classmethod
    def _temperature(cls, value: Any) -> Any:
        stated = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value in ("training", "left-out") or (stated and 0 < value < math.inf):
            return value
        raise ValueError("expected training, left-out or a number above 0")

    @field_validator("pipeline", mode="before")
    @classmethod
    def _pipeline(cls, value: Any) -> Any:
        try:
            return parsed(value).to_plain()
        except HeadstartError as error:
            raise ValueError(str(error).removeprefix("pipeline: ")) from None

    @model_validator(mode="after")
    def _known(self) -> RunConfig:
        if self.exact and self.precision is not None:
            raise ValueError("precision: exact statistics travel whole; give exact: false with it")
        if self.shift is not None and self.skip_corrupt:
            raise ValueError("shift: expected images that can all be decoded, got skip_corrupt")
        if self.shift is not None and self.matched:
            raise ValueError("matched: with shift, test images have domains that no client chose")
        if self.shift is not None and self.test is not None:
            raise ValueError("shift: expected test images among the data, got test")
        if self.augment is not None:
            object.__setattr__(self, "augment", _checked_augmentations(self.augment))
        if self.augment is not None and self.network is None:
            raise ValueError("augment: expected a network that trains on images; give network")
        if self.views is not None and self.network is not None:
            raise ValueError("views: expected an extractor that does not train, got network")
        if self.inference is not None and not self.dense:
            raise ValueError("inference: expected a dense network, which trains on masks")
        if self.matched and self.held_out:
            raise ValueError("held_out: with matched, clients are tested on other samples; give 0")
        if self.partition is not None:
            made = checked(self.partition, PARTITIONERS, given=1)
            object.__setattr__(self, "partition", made)
        if self.federation.secure and not (self.federation.grouped and self.exact):
            raise ValueError("secure: expected exact sums of groups; give group_size and exact")
        if self.private is not None and not self.exact:
            raise ValueError("private: expected exact sums, to which whole noise is added")
        return self

    @property
    def columns(self) -> Columns:
        return Columns(self.label, self.client, self.domain, self.split)

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the images a network trains on."""
        return self.pixels if isinstance(self.pixels, tuple) else (self.pixels, self.pixels)

    @property
    def dense(self) -> bool:
        """Whether the network that trains gives features per cell of an image."""
        return self.network is not None and NETWORKS[self.network].stride is not None

    @property
    def splitting_seed(self) -> int:
        """Of the test split and the partition."""
        return self.seed if self.split_seed is None else self.split_seed

    @property
    def personal(self) -> bool:
        """Whether clients have test parts of their own."""
        return self.matched or self.held_out > 0


def parsed(pipeline: str | list[Any] | Pipeline) -> Pipeline:
    """A pipeline, checked against the heads, methods and personalizations that can be named."""
    made = pipeline if isinstance(pipeline, (str, Pipeline)) else Pipeline.from_plain(pipeline)
    try:
        return parse(str(made), heads=heads.HEADS, algorithms=_Kinds())
    except HeadstartError as error:
        if isinstance(pipeline, str):
            raise
        # nobody wrote the text that the error points into
        raise HeadstartError(str(error).partition("\n")[0]) from None


class _Kinds(Mapping[str, str]):
    """Whether a client ends a method with a model of its own, by the method's name."""

    def __getitem__(self, name: str) -> str:
        recipe = gradient.make(name)
        personal = recipe.personal or recipe.adapt or "copy" in recipe.memory
        return "personal" if personal else "train"

    def __iter__(self) -> Iterator[str]:
        return iter(gradient.METHODS)

    def __len__(self) -> int:
        return len(gradient.METHODS)


def checked(named: NamedSettings, registry: Registry[Any], given: int = 0) -> NamedSettings:
    """By the name of the registry; its settings are among its parameters (after `given` ones)."""
    name = registry.entry(named.name).name
    parameters = list(inspect.signature(registry[name]).parameters)[given:]
    for key in named.settings:
        if key not in parameters:
            raise ValueError(f"{registry.kind}: {name} has no {key!r}{nearest(key, parameters)}")
    return named.model_copy(update={"name": name})


def _checked_augmentations(augmentations: list[NamedSettings]) -> list[NamedSettings]:
    """Each once, with settings that it takes; the domain shift has a key of its own."""
    made: list[NamedSettings] = []
    for named in augmentations:
        name = AUGMENTATIONS.entry(named.name, "augment").name
        if name == DomainShift.name:
            raise ValueError(f"augment: {name} is said by its intensity, as in shift: 1.5")
        if name in [other.name for other in made]:
            raise ValueError(f"augment: expected {name} once, got it twice")
        augment.make(name, named.settings)
        made.append(named.model_copy(update={"name": name}))
    return made


def nearest(word: str, names: list[str]) -> str:
    """ "; did you mean …?", or what there is."""
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; expected one of {', '.join(names)}"


def read_config(path: str | Path, changes: Sequence[str] = ()) -> RunConfig:
    """A YAML file, with `key=value` (dotted: `partition.alpha=0.5`) put on top."""
    settings = read_plain(path)
    for change in changes:
        apply_change(settings, change)
    return make_config(settings)


def read_plain(path: str | Path) -> dict[str, Any]:
    """The keys and values of a YAML file, as they stand there."""
    try:
        settings = parse_yaml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise HeadstartError(f"config: cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise HeadstartError(f"config: {path} is not YAML: {reason}") from None
    if not isinstance(settings, dict):
        raise HeadstartError(f"config: expected keys and values in {path}, got {settings!r}")
    return settings


def parse_yaml(text: str) -> Any:
    """A YAML text as plain values."""
    return _Loader(text).get_single_data()


def apply_change(settings: dict[str, Any], change: str) -> None:
    """Apply `key=value` to the settings in place; refuse a text without a key or a '='."""
    key, mark, value = change.partition("=")
    if not mark or not key:
        raise HeadstartError(f"change: expected key=value, got {change!r}")
    *path, last = key.split(".")
    place: Any = settings
    for part in path:
        inner = place.get(part) if isinstance(place, dict) else None
        if isinstance(inner, str):  # `partition: dirichlet` grows settings
            inner = {"name": inner}
        if not isinstance(inner, dict):
            inner = {}
        place[part] = inner
        place = inner
    try:
        place[last] = parse_yaml(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise HeadstartError(f"change: {value!r:.200} is not a YAML value") from None


def make_config(settings: Mapping[str, Any]) -> RunConfig:
    """Checked, or one line that says what is wrong."""
    fields = list(RunConfig.model_fields)
    for key in settings:
        if key not in fields:
            raise HeadstartError(f"config: unknown key {key!r}{nearest(str(key), fields)}")
    try:
        files = _with_plugins(settings.get("plugins"))
        return RunConfig.model_validate({**settings, "plugins": files})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = str(first["msg"]).removeprefix("Value error, ")
        came = f", got {first['input']!r}" if where and ", got " not in reason else ""
        raise HeadstartError(f"config: {where + ': ' if where else ''}{reason}{came}") from None


def _with_plugins(value: Any) -> list[dict[str, str]]:
    """All plugins of this process, and those that are named here.

    A path is loaded: who writes a configuration may name code to run. A path with a digest is what
    a run folder has kept, perhaps somebody else's: it must have been loaded already.
    """
    for item in value if isinstance(value, list | tuple) else [] if value is None else [value]:
        if isinstance(item, str | Path):
            load_plugin(item)
        elif isinstance(item, Mapping) and set(item) == {"path", "sha256"}:
            require_plugins({str(item["path"]): str(item["sha256"])})
        else:
            raise HeadstartError(f"plugins: expected paths of .py files, got {item!r:.200}")
    return [{"path": str(plugin.path), "sha256": plugin.sha256} for plugin in plugins()]


def kept_plugins(text: bytes) -> list[PluginFile]:
    """The plugins that a saved configuration names, not loaded; of a damaged one, none."""
    try:
        settings = parse_yaml(text.decode())
        return [PluginFile.model_validate(item) for item in settings.get("plugins", [])]
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, TypeError):
        return []


def dump_config(config: RunConfig) -> str:
    """Return the configuration as YAML."""
    settings = config.model_dump(mode="json")
    if not config.plugins:
        del settings["plugins"]
    return yaml.dump(settings, Dumper=_Dumper, sort_keys=False, allow_unicode=True)

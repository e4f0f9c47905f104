"""The options that commands share: each is defined here once, with its name, default and help.

A command takes a group of them as one argument, `split: SplitOptions`; `with_options` shows its
fields to typer as options of the command. What is not said is None, and the configuration's own
default holds.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from headstart.errors import HeadstartError

if TYPE_CHECKING:
    from headstart.data.table import Columns

DATA = "digits, a .csv/.tsv/.parquet/.npz file or a folder"
Data = Annotated[str, typer.Option("--data", help=DATA)]
Text = Annotated[str | None, typer.Option(help="column of sentences, in a .csv or .tsv file")]
Weights = Annotated[str | None, typer.Option(help="the extractor's weight file")]
Output = Annotated[
    Path | None, typer.Option("--out", "-o", help="the run folder; none: a new one in runs/")
]
CLIENTS = typer.Option(help="how many, for the partition")
ALPHA = typer.Option(help="of Dirichlet partitions; smaller is more unlike")
SEED = typer.Option(help="of the split, the cohorts and the initial models (0)")


@dataclass(frozen=True)
class ColumnOptions:
    """What the columns of a table are called."""

    label: Annotated[str | None, typer.Option(help="column of the labels (label)")] = None
    client: Annotated[str | None, typer.Option(help="column of the clients (client)")] = None
    domain: Annotated[str | None, typer.Option(help="column of the domains (domain)")] = None
    split: Annotated[str | None, typer.Option(help="column that says train or test (split)")] = None

    @property
    def named(self) -> Columns:
        """The columns; a role that has no other name is its own."""
        from headstart.data.table import Columns

        columns: dict[str, Any] = {role: getattr(self, role) for role in Columns().roles()}
        return Columns(**{role: column for role, column in columns.items() if column})


@dataclass(frozen=True)
class FeatureOptions:
    """How images or sentences become features."""

    text: Text = None
    extractor: Annotated[
        str | None,
        typer.Option(
            help="of images (mobilenet_v2, or another, or an .onnx file) or text (all_minilm_l6_v2)"
        ),
    ] = None
    weights: Weights = None
    download: Annotated[bool | None, typer.Option(help="fetch published weights")] = None
    views: Annotated[
        str | None, typer.Option(help="of images: flip, the mean of an image and its mirror image")
    ] = None
    skip_corrupt: Annotated[bool | None, typer.Option(help="leave out what cannot be decoded")] = (
        None
    )


@dataclass(frozen=True)
class SplitOptions:
    """The samples, who holds which of them, and any other setting as key=value."""

    data: Annotated[str | None, typer.Option("--data", help=DATA)] = None
    test: Annotated[
        str | None, typer.Option(help="test samples that are not in the data: a file or folder")
    ] = None
    test_fraction: Annotated[
        float | None, typer.Option(help="of the data, if no test samples are named (0.2)")
    ] = None
    held_out: Annotated[
        float | None, typer.Option(help="of each client, to test on (0; of run and compare 0.45)")
    ] = None
    partition: Annotated[
        str | None, typer.Option(help="make clients: dirichlet, shards, iid, … (`headstart list`)")
    ] = None
    clients: Annotated[int | None, CLIENTS] = None
    alpha: Annotated[float | None, ALPHA] = None
    shards: Annotated[int | None, typer.Option(help="of each client, for the partition shards")] = (
        None
    )
    exact: Annotated[bool | None, typer.Option(help="bit-identical totals")] = None
    temperature: Annotated[
        str | None, typer.Option(help="of the softmax: training, left-out, or a number")
    ] = None
    seed: Annotated[int | None, SEED] = None
    change: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", help="key=value: any other setting (cohort=5)"),
    ] = None


@dataclass(frozen=True)
class PrivacyOptions:
    """Differential privacy of the released head."""

    epsilon: Annotated[
        float | None, typer.Option(help="ε: a private head (see docs/differential.md)")
    ] = None
    delta: Annotated[float | None, typer.Option(help="δ of the promise (1e-5)")] = None
    unit: Annotated[
        str | None, typer.Option(help="whom it protects: one sample, image or client (sample)")
    ] = None
    trust: Annotated[
        str | None, typer.Option(help="who adds the noise: server, secure-sum, client (server)")
    ] = None

    classes: Annotated[
        Path | None, typer.Option(help="the classes agreed beforehand: a file, one per line")
    ] = None

    def put(self, settings: dict[str, Any]) -> None:
        """Into the settings, on top of what they say."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in values.items() if value is not None}
        if self.classes is not None:
            given["classes"] = _lines(self.classes)
        before = settings.get("private") or {}
        if given and "epsilon" not in {**before, **given}:
            raise HeadstartError(f"{next(iter(given))}: expected epsilon with it, got none")
        if given:
            settings["private"] = {**before, **given}


def _lines(path: Path) -> list[str]:
    """The lines of a text file that are not empty."""
    try:
        found = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise HeadstartError(f"classes: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise HeadstartError(f"classes: expected a text file, got {path}") from None
    if not any(found):
        raise HeadstartError(f"classes: expected one per line in {path}, got none")
    return [line for line in found if line]


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command, whose groups of options typer sees field by field."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    shown: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            shown += _parameters(groups[parameter.name])
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            shown.append(parameter.replace(kind=kind, annotation=hints[parameter.name]))

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        return command(**given, **made)

    return showing(run, shown, hints["return"])


def showing(
    command: Callable[..., Any], parameters: list[inspect.Parameter], returned: Any = None
) -> Callable[..., Any]:
    """The wrapper of a command, of which typer sees these parameters and not the wrapped one's."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    annotations = {parameter.name: parameter.annotation for parameter in parameters}
    command.__annotations__ = {**annotations, "return": returned}
    del command.__wrapped__  # type: ignore[attr-defined]
    return command


def _parameters(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]


# -- from options to a configuration ---------------------------------------------------------------

_PARTITION = {"clients": "clients", "alpha": "alpha", "shards": "shards_per_client"}
_DIGITS_CLIENTS = 50  # digits name no clients: so many are made, unless --clients says
_DIRICHLET, _SHARDS = {"name": "dirichlet"}, {"name": "shards"}


def config_of(base: Mapping[str, Any], *groups: Any) -> Any:
    """`base` with what was said on top: options, then key=value; checked."""
    from headstart.pipeline.config import apply_change, make_config

    settings = dict(base)
    for group in groups:
        if isinstance(group, PrivacyOptions):
            group.put(settings)
    given = _said(*(group for group in groups if not isinstance(group, PrivacyOptions)))
    changes = given.pop("change", [])
    made = (
        given.pop("partition", None),
        {key: given.pop(word) for word, key in _PARTITION.items() if word in given},
    )
    settings |= given
    if any(made):
        settings["partition"] = _partition(settings.get("partition"), *made)
    for change in changes:
        apply_change(settings, change)
    if "data" not in settings:
        raise HeadstartError("data: expected --data, got none")
    return make_config(_with_clients(settings))


def _said(*groups: Any) -> dict[str, Any]:
    values = {field.name: getattr(group, field.name) for group in groups for field in fields(group)}
    options = {name: value for name, value in values.items() if value is not None}
    with suppress(KeyError, ValueError):
        options["temperature"] = float(options["temperature"])
    return options


def _partition(before: Any, name: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """The partition of `before` with other settings; another name begins without any."""
    old = dict(before) if isinstance(before, Mapping) else {"name": before} if before else {}
    if name is not None and old.get("name") != name:
        old = {"name": name}
    return {**old, **given}


def _with_clients(settings: dict[str, Any]) -> dict[str, Any]:
    """With the name that goes with the settings of a partition; digits are dealt to 50 clients."""
    made = settings.get("partition") or {}
    if not isinstance(made, Mapping) or "name" in made:
        return settings
    name = _SHARDS if "shards_per_client" in made else _DIRICHLET
    if settings["data"] == "digits":
        usual = {"clients": _DIGITS_CLIENTS, **({} if name is _SHARDS else {"alpha": 0.1})}
        return {**settings, "partition": {**name, **usual, **made}}
    return {**settings, "partition": {**name, **made}} if made else settings

"""The reference, as Markdown: everything that has a name, from its docstring and its signature.

python scripts/reference.py           # names what has no text; exit code 1 if anything
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

Row = tuple[str, str, str]  # setting, default, kind


@dataclass(frozen=True)
class Item:
    """One name: what it is, its paper and equation as its file says them, settings, an example."""

    name: str
    title: str
    text: str
    settings: tuple[Row, ...] = ()
    example: str = ""
    source: str = ""

    def markdown(self) -> str:
        parts = [f"## {self.name}" + (f" · {self.title}" if self.title else ""), self.text]
        if self.settings:
            rows = [f"| `{name}` | {default} | {kind} |" for name, default, kind in self.settings]
            parts.append("\n".join(["| setting | default | |", "|---|---|---|", *rows]))
        if self.example:
            parts.append(f"```\n{self.example}\n```")
        if self.source:
            parts.append(f"In `{self.source}`.")
        return "\n\n".join(part for part in parts if part)


@dataclass(frozen=True)
class Page:
    """A page of items."""

    name: str
    title: str
    intro: str
    items: list[Item] = field(default_factory=list)

    def markdown(self) -> str:
        return "\n\n".join([f"# {self.title}", self.intro, *(i.markdown() for i in self.items)])


def pages() -> Iterator[tuple[str, str]]:
    """(file, Markdown) of every page of the reference."""
    made = [*registered(), commands(), public()]
    for page in made:
        yield f"reference/{page.name}.md", page.markdown() + "\n"
    lines = [f"- [{page.title}]({page.name}.md): {len(page.items)}" for page in made]
    text = "Everything that has a name, from the docstrings and registries of this version."
    links = "\n".join([*lines, "- [Glossary](glossary.md): symbols and terms"])
    yield "reference/index.md", f"# Reference\n\n{text}\n\n{links}\n"


# -- from registries -------------------------------------------------------------------------------


def registered() -> list[Page]:
    """A page per registry."""
    from headstart.data.augment import AUGMENTATIONS
    from headstart.data.backbones.catalogue import NETWORKS
    from headstart.data.datasets import DATASETS
    from headstart.data.partition import PARTITIONERS
    from headstart.gradient import METHODS
    from headstart.gradient.objectives import LOSSES
    from headstart.heads import HEADS

    return [
        Page("heads", "Heads", _HEADS, _items(HEADS, _head)),
        Page("methods", "Methods", _METHODS, _items(METHODS, _method)),
        Page("losses", "Losses and terms", _LOSSES, _items(LOSSES, _loss)),
        Page("partitioners", "Partitioners", _PARTITIONERS, _items(PARTITIONERS, _partitioner)),
        Page("datasets", "Data sets", _DATASETS, _items(DATASETS, _dataset)),
        Page("networks", "Networks", _NETWORKS, _items(NETWORKS, _network)),
        Page("augmentations", "Augmentations", _AUGMENTATIONS, _items(AUGMENTATIONS, _augment)),
    ]


_HEADS = (
    "What the server solves in closed form. Symbols are those of the [glossary](glossary.md): A "
    "and B are sums of z·zᵀ and e_y·zᵀ over samples, W the head. One alone is a pipeline; [Write a "
    "pipeline](../pipelines.md) has the rest."
)
_METHODS = (
    "How clients train for rounds. Each file says what it changes in FedAvg, nothing else; θ is "
    "what trains, θᵗ what the server sent. Settings that all methods share are in [Fine-tune and "
    "compare](../fine-tune.md)."
)
_LOSSES = (
    "What a client descends: `loss=` names a loss; `term=` adds a term to any method, `mix=` is "
    "its weight ([Train towards a fixed head](../feddr.md))."
)
_PARTITIONERS = (
    "Who holds which samples, in a simulation: `--partition NAME`, or `partition.name` in a file."
)
_DATASETS = (
    "Data that have a name. Files and folders need none: [features](../fit.md), "
    "[images](../images.md), [text](../text.md), [scenes](../segment.md)."
)
_NETWORKS = (
    "Extractors with published weights (`--extractor NAME`), and networks that are trained "
    "(`network=NAME`)."
)
_AUGMENTATIONS = (
    "What happens to a training image before it is read: `augment: [NAME, …]` in a run's settings."
)


def _items(registry: Any, make: Callable[[str, Any], Item]) -> list[Item]:
    return [make(entry.name, entry.load()) for entry in registry.entries() if _is_ours(entry)]


def _is_ours(entry: Any) -> bool:
    from headstart.registry import PACKAGE

    return bool(entry.source == PACKAGE)


def _head(name: str, kind: Any) -> Item:
    sent = f"A client sends {_article(kind.statistic)}."
    text = f"{_doc(kind)}\n\n{_doc(_module(kind))}\n\n{sent}"
    example = f"headstart fit --data digits --head {name}\nheadstart.{kind.__name__}()"
    return Item(name, kind.title, text, _fields(kind), example, kind.__module__)


def _article(statistic: Any) -> str:
    return f"`{statistic.__name__}`, {_first(_doc(statistic)).split('. ')[0].lower()}".rstrip(".")


_TOWARDS = {"spherefed": "Orthonormal"} | dict.fromkeys(
    ("dot-regression", "feddr-plus", "fedetf", "fedgela"), "ETF"
)
_OF_METHOD = {  # losses with settings of their own, which their methods know
    "balanced": ["ETF + FedETF-20"],
    "scaled": ["ETF + FedGELA-20"],
    "sphere": ["Orthonormal + SphereFed-20"],
}


def _method(name: str, make: Any) -> Item:
    text = _doc(make) or _doc(_module(make))
    head = _TOWARDS.get(name, "none")
    example = _run([f"Fed3R + {name}-20(head)", f"{head} + {name}-20"])
    return Item(name, "", text, _parameters(make), example, make.__module__)


def _loss(name: str, loss: Any) -> Item:
    losses = importlib.import_module("headstart.gradient.losses")
    function = getattr(losses, getattr(loss.value, "name", ""), loss.value)
    kind = "a term, for any method" if loss.references else "a loss"
    settings = tuple((key, f"`{value:g}`", "") for key, value in loss.usual.items())
    how = f"FedAvg-20(head, term={name})" if loss.references else f"local-only-20(loss={name})"
    example = _run([f"Fed3R + {how}", f"none + {how}", *_OF_METHOD.get(name, ())])
    return Item(name, kind, _doc(function), settings, example, "headstart.gradient.losses")


def _run(pipelines: Sequence[str]) -> str:
    """The first command of these that would run: on digits, or on images through a network."""
    for data, words in (("digits", ""), ("photos", " network=small_cnn pixels=32")):
        for pipeline in pipelines:
            if _would_run(pipeline, data):
                return f'headstart run "{pipeline}" --data {data}{words}'
    return ""


def _would_run(pipeline: str, data: str) -> bool:
    from headstart.errors import HeadstartError
    from headstart.pipeline.config import parsed
    from headstart.pipeline.run import check_pipeline

    try:
        check_pipeline(_experiment(data).context(), parsed(pipeline))
    except HeadstartError:
        return False
    return True


@cache
def _experiment(data: str) -> Any:
    """A few samples over two clients, for what may be asked of them."""
    from headstart.pipeline.config import make_config
    from headstart.pipeline.experiment import prepare

    split = {"partition": {"name": "iid", "clients": 2}, "held_out": 0.45}
    if data == "digits":
        return prepare(make_config({"data": "digits", **split}))
    with tempfile.TemporaryDirectory() as folder:
        _draw(Path(folder))
        network = {"network": "small_cnn", "pixels": 32, "test_fraction": 0.25}
        return prepare(make_config({"data": folder, **network, "held_out": 0.45}))


def _draw(folder: Path) -> None:
    """Grey images: two clients, two classes."""
    from PIL import Image

    for client in "ab":
        for shade in (50, 200):
            place = folder / client / str(shade)
            place.mkdir(parents=True)
            for k in range(8):
                Image.new("RGB", (32, 32), (shade + k,) * 3).save(place / f"{k}.png")


def _partitioner(name: str, deal: Any) -> Item:
    given = {"labels", "rng", "seed", "data", "n", "ids", "samples", "domains"}
    settings = tuple(row for row in _parameters(deal) if row[0] not in given)
    example = f"headstart fit --data digits --partition {name} --clients 20"
    example = example if any(row[0] == "clients" for row in settings) else ""
    return Item(name, "", _doc(deal), settings, example, deal.__module__)


def _dataset(name: str, load: Any) -> Item:
    return Item(name, "", _doc(load), _parameters(load), f"headstart fit --data {name}")


def _network(name: str, network: Any) -> Item:
    use = (
        f"headstart fit --data photos --extractor {name}"
        if network.weights
        else f'headstart run "none + FedAvg-20" --data photos network={name} pixels=32'
    )
    facts = [f"Features: {network.dimension}." if getattr(network, "dimension", 0) else ""]
    facts.append("Dense: a feature per cell, for masks." if network.stride else "")
    title = "extractor" if network.weights else "trained"
    return Item(
        name,
        title,
        " ".join([network.about[:1].upper() + network.about[1:] + ".", *facts]).strip(),
        (),
        use,
    )


def _augment(name: str, kind: Any) -> Item:
    settings = _fields(kind) if dataclasses.is_dataclass(kind) else _parameters(kind)
    text = "\n\n".join(dict.fromkeys([_doc(kind), _doc(_module(kind))]))
    return Item(name, "", text, settings, "", kind.__module__)


# -- commands and Python ---------------------------------------------------------------------------


def commands() -> Page:
    """Every command's help."""
    import typer.main

    from headstart.cli import app

    group = typer.main.get_command(app)
    intro = (
        "`headstart COMMAND --help` prints the same; [The command line](../command-line.md) has "
        "completion and JSON."
    )
    return Page("commands", "Commands", intro, [*_commands(group, "headstart")])


def _commands(group: Any, path: str) -> Iterator[Item]:
    from headstart.cli.examples import EXAMPLES

    for name, command in group.commands.items():
        where = f"{path} {name}"
        if hasattr(command, "commands"):
            yield from _commands(command, where)
            continue
        rows = tuple(_option(parameter) for parameter in command.params)
        example = "\n".join(EXAMPLES[where.removeprefix("headstart ")])
        yield Item(where, "", command.help or "", rows, example)


def _option(parameter: Any) -> Row:
    names = (
        ", ".join(parameter.opts) if parameter.opts[0].startswith("-") else parameter.name.upper()
    )
    default = parameter.default
    shown = (
        f"`{default}`"
        if isinstance(default, (str, int, float)) and default not in ("", False)
        else ""
    )
    return names, shown, _cell(getattr(parameter, "help", None) or "")


def public() -> Page:
    """The public names of the package."""
    import headstart

    intro = "`import headstart as hs` gives these; [Use it from Python](../python.md) uses them."
    return Page("python", "Python", intro, [_named(headstart, name) for name in headstart.__all__])


def _named(package: Any, name: str) -> Item:
    thing = getattr(package, name)
    if not callable(thing):
        return Item(f"hs.{name}", "", f"`{thing!r}`")
    methods = tuple(_methods(thing)) if inspect.isclass(thing) else ()
    return Item(f"hs.{name}", "", f"`{name}{_signature(thing)}`\n\n{_doc(thing)}{''.join(methods)}")


def _methods(kind: type) -> Iterator[str]:
    found = [
        (name, getattr(kind, name))
        for name, _ in sorted(vars(kind).items())
        if not name.startswith("_")
    ]
    shown = [(name, thing) for name, thing in found if inspect.isroutine(thing) and _doc(thing)]
    if shown:
        yield "\n"
    for name, thing in shown:
        yield f"\n- `{name}{_signature(thing)}`: {_first(_doc(thing))}"


def _signature(thing: Any) -> str:
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return "(…)"
    return "(" + ", ".join(p.name for p in parameters if p.name not in ("self", "cls")) + ")"


# -- texts -----------------------------------------------------------------------------------------


def _module(thing: Any) -> Any:
    return sys.modules[thing.__module__]


def _doc(thing: Any) -> str:
    """The docstring as Markdown; indented lines stay as they are, for they are tables."""
    own = thing.__doc__ if not inspect.isclass(thing) else vars(thing).get("__doc__")
    if not own or (inspect.isclass(thing) and own.startswith(f"{thing.__name__}(")):
        return ""
    paragraphs = inspect.cleandoc(own).split("\n\n")
    return "\n\n".join(_paragraph(text) for text in paragraphs)


def _paragraph(text: str) -> str:
    lines = text.splitlines()
    table = sum("  " in line.strip() for line in lines) > 1
    return f"```text\n{text}\n```" if table else _cell(text, line="\n")


def _cell(text: str, line: str = " ") -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("\n", line)


def _first(text: str) -> str:
    return text.split("\n\n")[0].replace("\n", " ")


def _fields(kind: Any) -> tuple[Row, ...]:
    if not dataclasses.is_dataclass(kind):
        return ()
    shown = [one for one in dataclasses.fields(kind) if one.init and not one.name.startswith("_")]
    return tuple((one.name, _default(one.default), _kind(one.type)) for one in shown)


def _parameters(function: Any) -> tuple[Row, ...]:
    parameters = inspect.signature(function).parameters.values()
    named = [one for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    return tuple((one.name, _default(one.default), _kind(one.annotation)) for one in named)


def _default(value: Any) -> str:
    absent = (dataclasses.MISSING, inspect.Parameter.empty)
    return "" if any(value is one for one in absent) else f"`{value!r}`"


def _kind(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    name = annotation if isinstance(annotation, str) else annotation.__name__
    return f"`{name.replace(' | ', ' or ')}`"  # a bar would end the table's cell


def untold(made: Iterable[Page]) -> list[str]:
    """Items without a text."""
    return [
        f"{page.title}: {item.name}"
        for page in made
        for item in page.items
        if not item.text.strip()
    ]


def main() -> int:
    found = untold([*registered(), commands(), public()])
    print("\n".join(found) or "everything has a text")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Figures, inline in the page and as files: one quiet style, the same bytes every time.

Text stays text, so that it can be selected, read aloud and drawn in the page's own font.
"""

from __future__ import annotations

import functools
import io
import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
WIDTH = 6.2  # inches of 72 units: half a page when wide, a whole phone when narrow
INK, FAINT, GRID = "#1f2933", "#66717d", "#e4e8ec"
_STYLE: dict[str, object] = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # TrueType, which journals ask for
    "text.parse_math": False,  # a name with $ is a name
    "figure.dpi": 72,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": "#9aa5b1",
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": "#9aa5b1",
    "ytick.color": "#9aa5b1",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.6,
}
_UNDATED = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
}


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure, and the bytes of its files."""

    name: str
    description: str
    canvas: Figure

    @functools.cached_property
    def svg(self) -> bytes:
        return self._saved("svg")

    @functools.cached_property
    def pdf(self) -> bytes:
        _ = self.svg  # which finds the places of everything
        self.canvas.set_layout_engine("none")
        return self._saved("pdf")

    def inline(self) -> str:
        """The drawing alone: no document, no namespaces, no style rules, ids of its own."""
        return _tidy(self.svg.decode(), self.name, self.description)

    def _saved(self, kind: str) -> bytes:
        file = io.BytesIO()
        with _styled(self.name):
            self.canvas.savefig(file, format=kind, metadata=_UNDATED[kind])
        return file.getvalue()


def drawn(
    height: float, name: str = ""
) -> Callable[[Callable[[Figure, T], str]], Callable[..., Drawing | None]]:
    """Make data → Drawing of a function that draws them and answers with a description.

    An empty description says that there is nothing to show: then there is no drawing either.
    """

    def wrap(draw: Callable[[Figure, T], str]) -> Callable[..., Drawing | None]:
        default = name or draw.__name__.replace("_", "-")

        def made(data: T, *, name: str = default) -> Drawing | None:
            from matplotlib.figure import Figure

            with _styled(name):
                canvas = Figure(figsize=(WIDTH, height), layout="constrained")
                description = draw(canvas, data)
            return Drawing(name, description, canvas) if description else None

        return made

    return wrap


@contextmanager
def _styled(name: str) -> Iterator[None]:
    from matplotlib import style

    layers: Any = ["default", {**_STYLE, "svg.hashsalt": name}]
    with style.context(layers), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")  # the browser may have it
        yield


def _tidy(source: str, key: str, description: str) -> str:
    root = ElementTree.fromstring(source)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) == "style":
                parent.remove(child)
    used = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', source))
    for element in root.iter():
        _tidy_element(element, key, used)
    view = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update({"viewBox": view, "role": "img", "aria-label": description})
    return ElementTree.tostring(root, encoding="unicode")


def _tidy_element(element: ElementTree.Element, key: str, used: set[str]) -> None:
    element.tag = _local(element.tag)
    attributes = {_local(at): " ".join(value.split()) for at, value in element.attrib.items()}
    if attributes.get("id") not in used:
        attributes.pop("id", None)
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    element.attrib.clear()
    element.attrib.update({at: _tidy_value(at, attributes[at], key) for at in attributes})
    if element.tag not in ("text", "tspan"):
        element.text = (element.text or "").strip()
    element.tail = ""


def _tidy_value(attribute: str, value: str, key: str) -> str:
    if attribute == "id":
        return f"{key}-{value}"
    if attribute == "href":
        return value.replace("base64, ", "base64,") if value[0] != "#" else f"#{key}-{value[1:]}"
    if attribute == "style":
        return re.sub(r"font-family: [^;]*;? ?", "", value)
    value = value.replace("url(#", f"url(#{key}-")
    return re.sub(r"(\.\d\d)\d+", r"\1", value) if attribute in ("d", "x", "y") else value


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]

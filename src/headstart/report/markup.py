"""Pieces of the page: sections, cards, tiles and tables. What comes in as text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headstart.report.values import text


class Tile(NamedTuple):
    """A key number: what it is, its value, and a note that puts it in its place."""

    label: str
    value: str
    note: str = ""


def section(title: str, lead: str, *cards: str) -> str:
    """A section of the cards that are not empty; nothing when all are."""
    shown = [card for card in cards if card]
    if not shown:
        return ""
    body = "\n".join(shown)
    return (
        f'<section>\n<h2>{text(title)}</h2>\n<p class="lead">{text(lead, 2000)}</p>\n'
        f'<div class="cards">\n{body}\n</div>\n</section>'
    )


def figure(svg: str, caption: str) -> str:
    """A figure on white with its caption; nothing without the drawing."""
    if not svg:
        return ""
    return (
        f'<figure class="card"><div class="plot">{svg}</div>'
        f"<figcaption>{text(caption, 2000)}</figcaption></figure>"
    )


def card(body: str, *, title: str = "", caption: str = "", wide: bool = False) -> str:
    """A card around markup; nothing when it is empty."""
    if not body:
        return ""
    above = f"<h3>{text(title)}</h3>" if title else ""
    below = f'<p class="caption">{text(caption, 2000)}</p>' if caption else ""
    return f'<div class="card{" wide" * wide}">{above}{body}{below}</div>'


def tiles(shown: Iterable[Tile]) -> str:
    each = "\n".join(
        f"<div><dt>{text(tile.label)}</dt>"
        f'<dd><div class="value">{text(tile.value)}</div>'
        f'<div class="note">{text(tile.note)}</div></dd></div>'
        for tile in shown
    )
    return f'<dl class="tiles">\n{each}\n</dl>' if each else ""


def table(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table of text, its first column naming the rows; nothing without rows."""
    lines = "\n".join(_row(cells) for cells in body)
    if not lines:
        return ""
    head = "".join(f'<th scope="col">{text(cell)}</th>' for cell in header)
    above = f"<thead><tr>{head}</tr></thead>" if header else ""
    return f'<div class="scroll"><table>{above}<tbody>\n{lines}\n</tbody></table></div>'


def _row(cells: Sequence[str]) -> str:
    first, *rest = cells
    others = "".join(f"<td>{text(cell)}</td>" for cell in rest)
    return f'<tr><th scope="row">{text(first)}</th>{others}</tr>'


def paragraphs(*shown: str) -> str:
    return "".join(f"<p>{text(words, 5000)}</p>" for words in shown)

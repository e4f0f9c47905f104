"""The report: one HTML file, no scripts, no links, readable offline, the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from headstart.files import write_text
from headstart.report import sections
from headstart.report.markup import Tile, tiles
from headstart.report.plots import PERSONAL
from headstart.report.values import (
    Results,
    head_title,
    main_head,
    number,
    part,
    percent,
    plain,
    points,
    rows,
    size,
    text,
)


def write_report(results: dict[str, Any], path: Path) -> None:
    """Write the report of `results` to `path`. Parts that are missing or None are left out."""
    write_text(path, page(results))


def page(results: Results) -> str:
    """The whole page as a string."""
    return render(
        str(results.get("title") or "A run without a title"),
        _summary(results),
        _tiles(results),
        [make(results) for make in sections.ALL],
        _footer(results),
    )


def render(
    title: str, summary: str, shown: Iterable[Tile], bodies: Iterable[str], footer: str
) -> str:
    """A page around sections; empty ones are left out."""
    return Template(_resource("page.html")).substitute(
        title=text(title),
        style=_resource("style.css"),
        summary=text(summary, 2000),
        tiles=tiles(shown),
        sections="\n".join(body for body in bodies if body),
        footer=text(footer),
    )


def _resource(name: str) -> str:
    return (files("headstart.report") / name).read_text(encoding="utf-8")


def _clients(results: Results) -> float | None:
    """How many clients there are, from the first part that says so."""
    for told in (
        part(part(results, "partition"), "summary").get("clients"),
        part(results, "reveals").get("clients"),
        len(rows(results, "clients")) or None,
    ):
        if number(told) is not None:
            return number(told)
    return None


def _summary(results: Results) -> str:
    head, data, clients = main_head(results), part(results, "data"), _clients(results)
    accuracy, pooled = number(head.get("accuracy")), number(head.get("pooled_accuracy"))
    if not head or accuracy is None:
        return "A federation of clients that each speak once."
    who = "the clients" if clients is None else f"{plain(clients)} client{'s' * (clients != 1)}"
    words = f"{head_title(head)} classifies {percent(accuracy)} of "
    words += f"{plain(data['test'])} test samples" if data.get("test") else "the test samples"
    words += f" correctly after one message from {'each of ' * (clients != 1)}{who}"
    if pooled is not None:
        gap = accuracy - pooled
        words += ", as with pooled data" if gap == 0 else f" ({points(gap)} against pooled data)"
    sent = number(head.get("bytes_per_client"))
    return words + (f", for {size(sent)} a client." if sent is not None else ".")


def _tiles(results: Results) -> list[Tile]:
    """The key numbers, those that are known."""
    head, data, clients = main_head(results), part(results, "data"), _clients(results)
    accuracy, pooled = number(head.get("accuracy")), number(head.get("pooled_accuracy"))
    found = []
    if accuracy is not None:
        note = f"balanced {percent(head.get('balanced_accuracy'))}"
        found.append(Tile("Test accuracy", percent(accuracy), note))
    if accuracy is not None and pooled is not None:
        gap = accuracy - pooled
        note = "no difference" if gap == 0 else f"federated: {points(gap)}"
        found.append(Tile("With pooled data", percent(pooled), note))
    if number(head.get("bytes_per_client")) is not None:
        formula = number(head.get("formula_bytes_per_client"))
        note = f"{size(formula)} by formula" if formula else "once"
        found.append(Tile("Upload a client", size(head["bytes_per_client"]), note))
    found += _personal_tile(head)
    if clients is not None:
        name = str(part(results, "partition").get("name") or "")
        found.append(Tile("Clients", plain(clients), name and f"{name} partition"))
    if data:
        classes, dimension = len(rows(data, "classes")), plain(data.get("dimension"))
        note = f"{classes:,} classes, dimension {dimension}"
        found.append(Tile("Training samples", plain(data.get("samples")), note))
    return found


def _personal_tile(head: Results) -> list[Tile]:
    means = part(head, "personal")
    base = number(means.get("global"))
    known = [(title, number(means.get(key))) for key, title in PERSONAL.items() if key != "global"]
    found = [(mean, title) for title, mean in known if mean is not None]
    if base is None or not found:
        return []
    mean, title = found[-1]  # the one that asks most of a client, not the best in hindsight
    return [Tile("Personal accuracy", percent(mean), f"{title}; global {percent(base)}")]


def _footer(results: Results) -> str:
    version, created = results.get("headstart"), results.get("created")
    words = f"Headstart {version}" if version else "Headstart"
    return f"{words}, results of {created}." if created else f"{words}."

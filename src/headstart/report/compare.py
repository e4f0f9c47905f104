"""Sentences side by side: one HTML page, and its tables as text for terminals, files and docs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headstart.data.shift import CHANNELS
from headstart.files import write_text
from headstart.report import compare_plots as plots
from headstart.report.axis import STRETCHED
from headstart.report.columns import Column, grouped_table, seconds
from headstart.report.diagnoses import diagnoses
from headstart.report.html import render
from headstart.report.markup import Tile, card, figure, section, table
from headstart.report.names import short
from headstart.report.outcomes import (
    Rows,
    accuracies,
    as_csv,
    as_markdown,
    domains,
    final,
    personal,
    reached,
    spent,
    table_rows,
    target_rows,
    targets,
)
from headstart.report.values import (
    MISSING,
    Results,
    flops,
    number,
    part,
    percent,
    plain,
    points,
    rows,
    size,
)

__all__ = [
    "Rows",
    "as_csv",
    "as_markdown",
    "compare_page",
    "table_rows",
    "target_rows",
    "targets",
    "write_compare",
]
NEAR = 0.01  # of the best accuracy: what a cheaper sentence may lack


def write_compare(results: Sequence[dict[str, Any]], path: Path, title: str = "") -> None:
    """Write the page that compares sentences. Parts that are missing or None are left out."""
    write_text(path, compare_page(results, title))


def compare_page(results: Sequence[Results], title: str = "") -> str:
    """The whole page as a string."""
    many = f"{len(results)} sentences, side by side" if len(results) != 1 else "One sentence"
    names, shared = short([_name(result) for result in results])
    results = [{**one, "sentence": name} for one, name in zip(results, names, strict=True)]
    told = {"sentences": results}
    alike = f"Every training has {', '.join(shared)}." if shared else ""
    summary = " ".join(words for words in (_summary(results), _images(results), alike) if words)
    made = (achieved(told), price(told), to_targets(told), clients(told), diagnoses(results))
    return render(title or many, summary, _tiles(results), made, "Headstart.")


# -- above all -------------------------------------------------------------------------------------


def _best(results: Sequence[Results], read: Callable[[Results], float | None]) -> Results | None:
    known = [result for result in results if read(result) is not None]
    return max(known, key=lambda result: read(result) or 0.0, default=None)


def _cheapest(results: Sequence[Results], key: str) -> tuple[Results, float] | None:
    """Who is first within a point of the best accuracy by this cost, and the cost."""
    best = max((value for result in results for value in accuracies(result)), default=None)
    if best is None:
        return None
    prices = [(result, reached(result, best - NEAR, key)) for result in results]
    known = [(result, price) for result, price in prices if price]
    return min(known, key=lambda pair: pair[1], default=None)


def _summary(results: Sequence[Results]) -> str:
    best = _best(results, final)
    if best is None and any(map(accuracies, results)):
        return "In the end clients share a part of a model, which has no accuracy of its own."
    if best is None:
        return "Nothing was evaluated on an outside test set."
    words = f"{_name(best)} ends with the highest accuracy, {percent(final(best))}"
    if len(results) == 1:
        words = f"{_name(best)} ends with an accuracy of {percent(final(best))}"
    found = _cheapest(results, "both")
    if found is None or len(results) == 1:
        return words + "."
    least = f"{size(found[1])} both ways"
    if found[0] is best:
        return f"{words}, and comes within a point of that for the fewest bytes, {least}."
    return f"{words}. {_name(found[0])} comes within a point of that for the fewest bytes, {least}."


def _images(results: Sequence[Results]) -> str:
    """What was done to the colours of images, for all sentences alike."""
    told = part(results[0], "images") if results else {}
    words = []
    if number(told.get("shift")) is not None:
        words.append(
            f"Images are shifted by δ = {told['shift']:g}: clients, and test images, fall into "
            "three groups in which red, green or blue is that much stronger."
        )
    if told.get("augment"):
        words.append("FedRDN normalizes training images with the channels of a random client.")
    return " ".join(words)


def _tiles(results: Sequence[Results]) -> list[Tile]:
    found = []
    best, own = _best(results, final), _best(results, _after)
    if best is not None:
        found.append(Tile("Best accuracy", percent(final(best)), _name(best)))
    if own is not None:
        found.append(Tile("Best personal accuracy", percent(_after(own)), _name(own)))
    for label, key, write in (("bytes", "both", size), ("FLOPs a client", "flops", flops)):
        cheapest = _cheapest(results, key)
        if cheapest is not None:
            title = f"Least {label}, within a point of the best"
            found.append(Tile(title, write(cheapest[1]), _name(cheapest[0])))
    return found


# -- sections --------------------------------------------------------------------------------------


def achieved(told: Results) -> str:
    shown = card(
        grouped_table(_GROUPS, rows(told, "sentences"), _name, corner="Sentence", dense=True),
        caption="The best of a column is shaded. Accuracy: of the shared model, on a test set that "
        "no client holds. Personal: on the clients' own test parts, before and after they made the "
        "model their own; weighted by their test samples, or every client counting the same. "
        "Bytes: of the whole federation. FLOPs: of a client, the mean over all, a multiply-add "
        "counting once. Done: pass by pass, a backward pass as two forward ones. Torch: its "
        "counter over those passes, which leaves out gradients that nobody needs. Formula: as "
        "the papers count them, with 4 bytes a number.",
        wide=True,
    )
    lead = "What every sentence achieves, for whom, and what it takes."
    return section("The sentences", lead, shown)


def price(told: Results) -> str:
    results = rows(told, "sentences")
    most = max((value for result in results for value in accuracies(result)), default=0.0)
    words = (
        "A dot is the end of a phase; a sentence that speaks once has a dotted line, its level. "
        "Curves that begin much lower come in from below."
    )
    if most >= STRETCHED:
        words += " High accuracies are spread out: equal steps are equal factors of error."
    lead = "Up is more accurate, left is cheaper. Rounds hide what a round costs: see the others."
    return section(
        "Accuracy and its price",
        lead,
        figure(plots.by_round(told), words),
        figure(
            plots.by_bytes(told),
            "Bytes of all clients together: up as measured on the wire, down of the arrays that "
            "are broadcast. What has cost nothing yet has no place here.",
        ),
        figure(
            plots.by_flops(told),
            "FLOPs of a client, the mean over all clients, of what was really done: features that "
            "are kept are computed once.",
        ),
        figure(
            plots.by_formula(told),
            "Bytes up as the papers count them, 4 a number, whatever our messages save.",
        ),
    )


def to_targets(told: Results) -> str:
    results = rows(told, "sentences")
    aims = targets(results)
    cards = [
        card(
            grouped_table([("", _aimed(aims, key, write))], results, _name, corner="Sentence"),
            title=title,
            wide=True,
        )
        for title, key, write in (
            ("Rounds", "round", plain),
            ("Bytes both ways", "both", size),
            ("Bytes up", "up", size),
            ("Bytes up, by formula", "formula_up", size),
            ("FLOPs a client", "flops", flops),
            ("FLOPs a client, counted by torch", "counted", flops),
            ("FLOPs a client, by formula", "formula_flops", flops),
        )
    ]
    lead = (
        "What it took until the test accuracy was first as high as the column says; a dash where "
        "it never was. The best of a column is shaded."
    )
    return section("The cost of a target accuracy", lead, *cards)


def _aimed(aims: Sequence[float], key: str, write: Callable[[Any], str]) -> list[Column]:
    def read(aim: float) -> Callable[[Results], Any]:
        return lambda result: reached(result, aim, key)

    return [Column(f"{round(100 * aim, 2):g}%", read(aim), write, min) for aim in aims]


def clients(told: Results) -> str:
    drawing = figure(
        plots.client_changes(told),
        "Each curve sorts the clients by what they gained or lost, in percentage points of their "
        "own test part. A client with few test samples moves in large steps.",
    )
    epochs = figure(
        plots.epochs_at_home(told),
        "What a client gains by training alone, and what it forgets: means over clients, weighted "
        "by their samples. Left: its own test part. Middle and right: an outside test set, samples "
        "of classes that the client has, and of classes that it lacks.",
    )
    lines = []
    for result in rows(told, "sentences"):
        own = personal(result)
        if own is not None:
            spread = np.quantile(own.change, (0, 0.1, 0.5, 0.9)).tolist()
            by = [points(value).removesuffix(" points") for value in spread]
            lines.append((_name(result), str(own.gain), str(own.same), str(own.lose), *by))
    head = ("Sentence", "gain", "same", "lose", "worst", "10%", "median", "90%")
    facts = card(
        table(head, lines) if lines else "",
        title="Clients",
        caption="How many clients gain and lose, and quantiles over clients of the difference in "
        "percentage points.",
        wide=True,
    )
    lead = "A mean hides who pays for it: every client's accuracy after, less that before."
    return section("Who gains, who loses", lead, drawing, epochs, facts)


# -- reading results -------------------------------------------------------------------------------


def _name(result: Results) -> str:
    return str(result.get("sentence") or "a sentence")


def _after(result: Results) -> float | None:
    own = personal(result)
    return None if own is None else own.weighted[1]


def _of_personal(which: str, at: int | None = None) -> Callable[[Results], Any]:
    """A field of what clients gained; of a pair, the one before (0) or after (1)."""

    def read(result: Results) -> Any:
        own = personal(result)
        found = None if own is None else getattr(own, which)
        return found if found is None or at is None else found[at]

    return read


def _arrow(which: str) -> Callable[[Results], str]:
    """Before → after, in one cell."""
    before, after = _of_personal(which, 0), _of_personal(which, 1)

    def show(result: Results) -> str:
        if before(result) is None:
            return MISSING
        return f"{percent(before(result)).removesuffix('%')} → {percent(after(result))}"

    return show


def _domain(name: str) -> Callable[[Results], Any]:
    return lambda result: domains(result)[name]


def _cost(key: str) -> Callable[[Results], Any]:
    return lambda result: spent(result, key)


_GROUPS = (
    ("", (Column("accuracy", final, percent, max),)),
    ("Test images with more", tuple(Column(n, _domain(n), percent, max) for n in CHANNELS)),
    (
        "Personal, before → after",
        (
            Column("weighted", _of_personal("weighted", 1), percent, max, _arrow("weighted")),
            Column("plain mean", _of_personal("plain", 1), percent, max, _arrow("plain")),
        ),
    ),
    (
        "Clients that",
        (
            Column("gain", _of_personal("gain"), plain, max),
            Column("lose", _of_personal("lose"), plain, min),
        ),
    ),
    ("", (Column("rounds", _cost("round"), plain),)),
    (
        "Bytes",
        (
            Column("up", _cost("up"), size, min),
            Column("formula", _cost("formula_up"), size),
            Column("down", _cost("down"), size, min),
        ),
    ),
    (
        "FLOPs a client",
        (
            Column("done", _cost("flops"), flops, min),
            Column("torch", _cost("counted"), flops),
            Column("formula", _cost("formula_flops"), flops),
        ),
    ),
    ("", (Column("time", lambda result: number(result.get("seconds")), seconds),)),
)

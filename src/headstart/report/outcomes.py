"""What can be said of sentences side by side: costs, costs to a target, who gains and who loses.

A result is the plain values of one sentence; its curve's bytes are of the whole federation and its
FLOPs a client's, both from the beginning, its rounds from the beginning of their phase.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headstart.data.shift import CHANNELS
from headstart.report.values import MISSING, Results, number, part, rows

Array = NDArray[np.float64]
Point = dict[str, float | None]
_COSTS = ("up", "down", "flops", "counted", "formula_up", "formula_flops")


# -- a curve ---------------------------------------------------------------------------------------


def curve(result: Results) -> list[Point]:
    """The points with `round` counted over the sentence, and `both`, the bytes both ways.

    A phase in which nothing goes up (each client alone) has no rounds, whatever it counts.
    """
    found: list[Point] = []
    phase, past, now, sent = None, 0.0, 0.0, 0.0
    for point in rows(result, "curve"):
        if point.get("phase") != phase:
            phase, past, now = point.get("phase"), past + now, 0.0
            sent = (found[-1]["up"] if found else None) or 0.0
        costs = {key: number(point.get(key)) for key in _COSTS}
        up, down = costs["up"], costs["down"]
        if up is None or up > sent:
            now = number(point.get("round")) or 0.0
        both = None if up is None else up + (down or 0.0)
        accuracy = number(point.get("accuracy"))
        at = number(phase)
        found.append({"phase": at, "round": past + now, "accuracy": accuracy, "both": both} | costs)
    return found


def spent(result: Results, key: str) -> float | None:
    """The last that is known of a cost."""
    known = [point[key] for point in curve(result) if point[key] is not None]
    return known[-1] if known else None


def accuracies(result: Results) -> list[float]:
    return [point["accuracy"] for point in curve(result) if point["accuracy"] is not None]


def final(result: Results) -> float | None:
    """The accuracy at the end."""
    if "accuracy" in result:  # none where clients share parts of a model alone
        return number(result["accuracy"])
    known = accuracies(result)
    return known[-1] if known else None


def domains(result: Results) -> dict[str, float | None]:
    """The accuracy by the domain of the test images, where their colours were shifted."""
    told = part(part(result, "images"), "accuracy")
    return {name: number(told.get(name)) for name in CHANNELS}


# -- the price of an accuracy ----------------------------------------------------------------------


def targets(results: Sequence[Results]) -> list[float]:
    """Tens from 30% to the best that any reaches, and five fine steps up to it."""
    best = max((value for result in results for value in accuracies(result)), default=0.0)
    step = 0.01 if best < 0.95 else 0.005 if best < 0.99 else 0.001
    top = math.floor(best / step + 1e-9)
    fine = [round(step * at, 4) for at in range(max(top - 4, 1), top + 1)]
    tens = [at / 10 for at in range(3 if best >= 0.3 else 1, 10) if at / 10 <= best]
    return sorted({*tens, *fine})


def reached(result: Results, target: float, key: str) -> float | None:
    """A cost when the accuracy is first at least the target; None where it never is."""
    for point in curve(result):
        if point["accuracy"] is not None and point["accuracy"] >= target - 1e-9:
            return point[key]
    return None


# -- clients ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Personal:
    """Clients' own test parts, before and after they made the model their own."""

    weighted: tuple[float, float]
    plain: tuple[float, float]
    change: Array  # of a client's accuracy, sorted

    @property
    def gain(self) -> int:
        return int((self.change > 0).sum())

    @property
    def lose(self) -> int:
        return int((self.change < 0).sum())

    @property
    def same(self) -> int:
        return len(self.change) - self.gain - self.lose


def personal(result: Results) -> Personal | None:
    """Over the clients that were tested; None without any."""
    told = part(result, "personal")
    columns = [rows(told, key) for key in ("tested", "before", "after")]
    found = [
        triple
        for triple in zip(*columns, strict=False)
        if all(number(value) is not None for value in triple) and triple[0] > 0
    ]
    if not found:
        return None
    tested, before, after = np.array(found, dtype=np.float64).T
    total = tested.sum()
    return Personal(
        (float(before.sum() / total), float(after.sum() / total)),
        (float((before / tested).mean()), float((after / tested).mean())),
        np.sort((after - before) / tested),
    )


# -- tables as text --------------------------------------------------------------------------------


class Rows(NamedTuple):
    """A table of text: units are in its header, so that every cell is a number or a name."""

    header: tuple[str, ...]
    body: list[tuple[str, ...]]


Read = Callable[[Results], float | None]


def _of_personal(read: Callable[[Personal], float]) -> Read:
    def of(result: Results) -> float | None:
        found = personal(result)
        return None if found is None else read(found)

    return of


def _of_domain(name: str) -> Read:
    return lambda result: domains(result).get(name)


def _spent(key: str, unit: float = 1.0) -> Read:
    def of(result: Results) -> float | None:
        found = spent(result, key)
        return None if found is None else found / unit

    return of


def _hundred(read: Read) -> Read:
    def of(result: Results) -> float | None:
        found = read(result)
        return None if found is None else 100 * found

    return of


_TABLE: dict[str, tuple[Read, str]] = {
    "accuracy %": (_hundred(final), ".1f"),
    **{f"{name} %": (_hundred(_of_domain(name)), ".1f") for name in CHANNELS},
    "before %": (_hundred(_of_personal(lambda own: own.weighted[0])), ".1f"),
    "after %": (_hundred(_of_personal(lambda own: own.weighted[1])), ".1f"),
    "plain before %": (_hundred(_of_personal(lambda own: own.plain[0])), ".1f"),
    "plain after %": (_hundred(_of_personal(lambda own: own.plain[1])), ".1f"),
    "gain": (_of_personal(lambda own: own.gain), ".0f"),
    "lose": (_of_personal(lambda own: own.lose), ".0f"),
    "rounds": (_spent("round"), ".0f"),
    "MB up": (_spent("up", 1e6), ""),
    "MB down": (_spent("down", 1e6), ""),
    "formula MB up": (_spent("formula_up", 1e6), ""),
    "GFLOPs a client": (_spent("flops", 1e9), ""),
    "torch GFLOPs": (_spent("counted", 1e9), ""),
    "formula GFLOPs": (_spent("formula_flops", 1e9), ""),
    "seconds": (lambda result: number(result.get("seconds")), ".1f"),
}
_PRICES = {
    "round": ("round", 1.0, ".0f"),
    "MB up": ("up", 1e6, ""),
    "formula MB up": ("formula_up", 1e6, ""),
    "MB both ways": ("both", 1e6, ""),
    "GFLOPs a client": ("flops", 1e9, ""),
    "torch GFLOPs": ("counted", 1e9, ""),
    "formula GFLOPs": ("formula_flops", 1e9, ""),
}


def table_rows(results: Sequence[Results], brief: bool = False) -> Rows:
    """A sentence a row: what it achieves and what it costs; columns without values are left out.

    `brief`, for terminals: without plain means, formulas, torch's count and domains.
    """
    known = {title: [read(result) for result in results] for title, (read, _) in _TABLE.items()}
    kept = [title for title, values in known.items() if any(v is not None for v in values)]
    if brief:
        long = ("plain", "formula", "torch", *CHANNELS)
        kept = [title for title in kept if title.split()[0] not in long]
    body = [
        (_sentence(result), *(_written(known[title][at], _TABLE[title][1]) for title in kept))
        for at, result in enumerate(results)
    ]
    return Rows(("sentence", *kept), body)


def target_rows(results: Sequence[Results], aims: Sequence[float] | None = None) -> Rows:
    """Every target and sentence a row: the first round that reaches it, and the costs until then.

    `aims` are fractions; without them they are chosen (see `targets`).
    """
    body = []
    for aim in targets(results) if aims is None else aims:
        for result in results:
            cells = []
            for key, unit, form in _PRICES.values():
                found = reached(result, aim, key)
                cells.append(_written(None if found is None else found / unit, form))
            body.append((f"{round(100 * aim, 2):g}", _sentence(result), *cells))
    return Rows(("accuracy %", "sentence", *_PRICES), body)


def as_csv(table: Rows) -> str:
    """For programs: what is missing is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows(["" if cell == MISSING else cell for cell in row] for row in table.body)
    return text.getvalue()


def as_markdown(table: Rows) -> str:
    """For pages: names to the left, numbers to the right."""
    sides = tuple("---" if title == "sentence" else "---:" for title in table.header)
    lines = [table.header, sides]
    shown = [[cell.replace("|", "\\|") for cell in row] for row in (*lines, *table.body)]
    return "".join(f"| {' | '.join(row)} |\n" for row in shown)


def _sentence(result: Results) -> str:
    return " ".join(str(result.get("sentence") or "a sentence").split())


def _written(value: float | None, form: str) -> str:
    """By the format, or else to three figures: 0.0123, 4.56, 78.9, 12300."""
    if value is None:
        return MISSING
    if form:
        return format(value, form)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
